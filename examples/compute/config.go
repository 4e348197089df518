package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/encoding/gzip"
)

// A config is what the flags say.
type config struct {
	duration  time.Duration
	replicas  int
	processes int
	rate      float64
	compress  string
	seed      uint64
	restart   time.Duration
	json      bool
	debugAddr string
	export    string
}

// A usageError is a mistake in the command line.
type usageError struct{ message string }

func (e *usageError) Error() string { return "compute: " + e.message }

// Limits of what runs in one operating system process without being about something else.
const (
	maxProcesses = 64
	maxRate      = 100_000
)

func parse(args []string, output io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("compute", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.DurationVar(&c.duration, "duration", 0, "how long to run; 0: until interrupted")
	flags.IntVar(&c.replicas, "replicas", 2, "how many replicas do the instance's work, each all of it")
	flags.IntVar(&c.processes, "processes", 2, "how many processes share a replica's work")
	flags.Float64Var(&c.rate, "rate", 100, "how many questions to ask a second")
	flags.StringVar(&c.compress, "compress", "", "how to compress messages: gzip, or nothing")
	flags.Uint64Var(&c.seed, "seed", 1, "what tables and questions follow from")
	flags.DurationVar(&c.restart, "restart", 0, "how often to restart a replica, one after the other; 0: never")
	flags.BoolVar(&c.json, "json", false, "print the final snapshot as JSON and nothing else")
	flags.StringVar(&c.debugAddr, "debug-addr", defaultDebugAddr, "where to serve the debug page of the controller; empty: nowhere")
	flags.StringVar(&c.export, "export", exportInstruments,
		"what is exported if the environment names an exporter: "+exportInstruments+" of the handlers, or the controller's "+exportRegistry)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(output)
		_, _ = fmt.Fprintln(output, "usage: compute [flags]")
		flags.PrintDefaults()
		return c, err
	}
	if err != nil {
		return c, &usageError{err.Error()}
	}
	return c, c.check(flags.Args())
}

func (c config) check(rest []string) error {
	for _, flaw := range []struct {
		is      bool
		message string
	}{
		{len(rest) > 0, fmt.Sprintf("unexpected arguments %q", rest)},
		{c.duration < 0, fmt.Sprintf("-duration is %v, want 0 or more", c.duration)},
		{c.replicas < 1 || c.replicas > maxProcesses, fmt.Sprintf("-replicas is %d, want 1 to %d", c.replicas, maxProcesses)},
		{c.processes < 1 || c.processes > maxProcesses, fmt.Sprintf("-processes is %d, want 1 to %d", c.processes, maxProcesses)},
		{!(c.rate > 0 && c.rate <= maxRate), fmt.Sprintf("-rate is %v, want more than 0 and at most %d", c.rate, maxRate)},
		{c.compress != "" && c.compress != gzip.Name, fmt.Sprintf("-compress is %q, want %s or nothing", c.compress, gzip.Name)},
		{
			c.export != exportInstruments && c.export != exportRegistry,
			fmt.Sprintf("-export is %q, want %s or %s", c.export, exportInstruments, exportRegistry),
		},
		{c.restart < 0, fmt.Sprintf("-restart is %v, want 0 or more", c.restart)},
	} {
		if flaw.is {
			return &usageError{flaw.message}
		}
	}
	return nil
}
