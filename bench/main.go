// Command bench runs the benchmarks of this folder, which compare otelproto, channel and broadcast with their peers, and prints
// the ratios as Markdown.
//
// It builds the benchmarks once and runs all of them again and again. So each round has every peer within a short time, a ratio
// is of two figures from one round, and what slows the machine for a while slows both or shows as spread.
//
//	go run -C bench . -bench Broadcast -count 10 -benchtime 200ms
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run writes tables to out and what go test prints meanwhile to progress.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	pattern := flags.String("bench", ".", "run the benchmarks that match, as go test does")
	count := flags.Int("count", 10, "rounds; fewer than 6 have no spread")
	benchtime := flags.String("benchtime", "200ms", "time or number of times (100x) for each benchmark in each round")
	file := flags.String("o", filepath.Join("results", "peers.txt"), "write the figures here, as input for benchstat")
	read := flags.Bool("read", false, "don't run anything, print what the file of -o holds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *count < 1 {
		return fmt.Errorf("-count %d: at least one round is needed", *count)
	}
	if !*read {
		if err := measure(ctx, *file, progress, *count, "-test.bench="+*pattern, "-test.benchtime="+*benchtime); err != nil {
			return err
		}
	}
	f, err := os.Open(*file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := readRounds(f, *file)
	if err != nil {
		return err
	}
	return r.write(out)
}

// measure builds the benchmarks and writes the given number of rounds to file.
func measure(ctx context.Context, file string, progress io.Writer, count int, args ...string) (err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "bench.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, ".")
	build.Stdout, build.Stderr = progress, progress
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the benchmarks: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := writeFacts(ctx, f, args); err != nil {
		return err
	}
	for i := range count {
		fmt.Fprintf(progress, "round %d of %d\n", i+1, count)
		test := exec.CommandContext(ctx, program, append([]string{"-test.run=^$", "-test.timeout=0"}, args...)...)
		test.Stdout, test.Stderr = io.MultiWriter(f, progress), progress
		if err := test.Run(); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	return nil
}

// writeFacts says where figures come from, in the form that go test has for it. It adds the processor itself.
func writeFacts(ctx context.Context, w io.Writer, args []string) error {
	const direct = "{{if not (or .Main .Indirect .Replace)}}{{.Path}}@{{.Version}}{{end}}"
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", direct, "all").Output()
	if err != nil {
		return fmt.Errorf("versions of the peers: %w", err)
	}
	load := "unknown"
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(b), " ")
	}
	_, err = fmt.Fprintf(w, "go: %s\nprocessors: %d\nload-before: %s\nflags: %s\nmodules: %s\n", runtime.Version(),
		runtime.NumCPU(), load, strings.ReplaceAll(strings.Join(args, " "), "-test.", "-"), strings.Join(strings.Fields(string(out)), " "))
	return err
}

// plural is for counts in a sentence.
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}
