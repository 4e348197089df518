// Command gofuzz runs every fuzz target of one module of this repository for a while each and fails if one of them does.
//
//	go run ./internal/devtools/gofuzz DIR FUZZTIME
//
// A target that fails with nothing but "context deadline exceeded" is run again: until Go 1.27 the fuzzing coordinator reports its
// own deadline that way when it loses a race (go.dev/issue/75804). With a finding, go test names the input that it has written.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gofuzz DIR FUZZTIME")
		os.Exit(2)
	}
	ok, err := run(os.Args[1], os.Args[2], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gofuzz:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// target is a fuzz test and the import path of its package.
type target struct{ pkg, name string }

// run reports whether every target of the module in dir held.
func run(dir, fuzztime string, w io.Writer) (bool, error) {
	targets, err := list(dir)
	if err != nil {
		return false, err
	}
	held := 0
	for _, t := range targets {
		start := time.Now()
		out, err := fuzz(dir, fuzztime, t)
		if err != nil && deadlineOnly(out) {
			fmt.Fprintf(w, "%s in %s: the fuzzing coordinator's own deadline, again\n", t.name, t.pkg)
			out, err = fuzz(dir, fuzztime, t)
		}
		var exit *exec.ExitError
		switch {
		case err == nil:
			held++
			fmt.Fprintf(w, "%s in %s: %s (%.1fs)\n", t.name, t.pkg, lastProgress(out), time.Since(start).Seconds())
		case errors.As(err, &exit):
			fmt.Fprintf(w, "%s in %s:\n%s", t.name, t.pkg, out)
		default:
			return false, fmt.Errorf("fuzz %s in %s: %w", t.name, t.pkg, err)
		}
	}
	fmt.Fprintf(w, "%d of %d fuzz targets held\n", held, len(targets))
	return held == len(targets), nil
}

// list returns the fuzz targets of the module in dir. go test prints the names that match in a package before the line that says
// that the package is done.
func list(dir string) ([]target, error) {
	cmd := exec.Command("go", "test", "-list", "^Fuzz", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list fuzz targets: %w\n%s", err, out)
	}
	var targets []target
	var names []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 1:
			names = append(names, fields[0])
		case len(fields) > 1:
			for _, name := range names {
				targets = append(targets, target{fields[1], name})
			}
			names = nil
		}
	}
	return targets, nil
}

func fuzz(dir, fuzztime string, t target) ([]byte, error) {
	cmd := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", fuzztime, t.pkg)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

// failure matches the first lines under a failed test: its name, then what it said.
var failure = regexp.MustCompile(`(?m)^--- FAIL: .*\n((?:    .*\n)*)`)

// deadlineOnly reports whether all that a failed run had to say is that its time was up.
func deadlineOnly(out []byte) bool {
	m := failure.FindSubmatch(out)
	return m != nil && string(bytes.TrimSpace(m[1])) == "context deadline exceeded" && !bytes.Contains(out, []byte("Failing input"))
}

// lastProgress returns what the last progress line counted.
func lastProgress(out []byte) string {
	i := bytes.LastIndex(out, []byte("fuzz: elapsed: "))
	if i < 0 {
		return "held"
	}
	line, _, _ := bytes.Cut(out[i:], []byte("\n"))
	_, counts, _ := strings.Cut(string(line), ", ")
	return counts
}
