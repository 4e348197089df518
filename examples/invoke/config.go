package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// A config is what the flags say.
type config struct {
	workers     int
	calls       int
	concurrency int
	executors   int
	shards      int
	completion  string
	window      int
	chaos       bool
	seed        uint64
	timeout     time.Duration
}

// How callers learn that their invocation has finished.
const (
	byKey   = "keyed" // through broadcast.Waiters
	byTopic = "topic" // through a broadcast.Topic per shard
)

// Limits of what runs in one operating system process.
const (
	maxExecutors = 64
	maxMany      = 10_000_000
)

// A usageError is a mistake in the command line.
type usageError struct{ message string }

func (e *usageError) Error() string { return "invoke: " + e.message }

func parse(args []string, output io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("invoke", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&c.workers, "workers", 1000, "how many workers there are")
	flags.IntVar(&c.calls, "calls", 20_000, "how many invocations to make")
	flags.IntVar(&c.concurrency, "concurrency", 256, "how many callers there are, each with one call at a time")
	flags.IntVar(&c.executors, "executors", 4, "how many executors share the workers")
	flags.IntVar(&c.shards, "shards", 16, "how many shards the workers are in")
	flags.StringVar(&c.completion, "completion", byKey, "how callers learn of outcomes: "+byKey+" or "+byTopic)
	flags.IntVar(&c.window, "window", 1, "with -completion "+byTopic+", how many events are kept for those who lag")
	flags.BoolVar(&c.chaos, "chaos", false, "move shards between executors all the time")
	flags.Uint64Var(&c.seed, "seed", 1, "what calls and moves follow from")
	flags.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long a caller waits for an outcome before it counts as lost")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(output)
		_, _ = fmt.Fprintln(output, "usage: invoke [flags]")
		flags.PrintDefaults()
		return c, err
	}
	if err != nil {
		return c, &usageError{err.Error()}
	}
	return c, c.check(flags.Args())
}

func (c config) check(rest []string) error {
	if len(rest) > 0 {
		return &usageError{fmt.Sprintf("unexpected arguments %q", rest)}
	}
	for _, number := range []struct {
		flag      string
		value, to int
	}{
		{"workers", c.workers, maxMany},
		{"calls", c.calls, maxMany},
		{"concurrency", c.concurrency, maxMany},
		{"executors", c.executors, maxExecutors},
		{"shards", c.shards, maxMany},
		{"window", c.window, maxMany},
	} {
		if number.value < 1 || number.value > number.to {
			return &usageError{fmt.Sprintf("-%s is %d, want 1 to %d", number.flag, number.value, number.to)}
		}
	}
	if c.completion != byKey && c.completion != byTopic {
		return &usageError{fmt.Sprintf("-completion is %q, want %s or %s", c.completion, byKey, byTopic)}
	}
	if c.timeout <= 0 {
		return &usageError{fmt.Sprintf("-timeout is %v, want more than 0", c.timeout)}
	}
	return nil
}
