package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of go test -json (see go doc test2json); of a build, ImportPath and Output are set.
type event struct {
	Action, Package, Test, Output string
}

// test names a test, or with an empty name all of a package that belongs to no test.
type test struct{ pkg, name string }

// report prints the events of one run. Packages run side by side, so each one's lines are held back until it ends.
type report struct {
	w      io.Writer
	strict bool // a skip is a failure, and passed tests are printed

	output                           map[test][]string        // of tests that haven't ended
	lines                            map[string]*bytes.Buffer // by package
	packages, passed, failed, faulty int                      // faulty: packages that failed
	skipped                          []string                 // test, package and reason
}

func newReport(w io.Writer, strict bool) *report {
	return &report{w: w, strict: strict, output: make(map[test][]string), lines: make(map[string]*bytes.Buffer)}
}

// read takes events from in until it ends. A line that isn't an event is printed as it is.
func (r *report) read(in io.Reader) error {
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.add(e)
			} else {
				r.printf("%s", line)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}

func (r *report) add(e event) {
	if e.Package == "" {
		r.printf("%s", e.Output) // of a build
		return
	}
	if r.lines[e.Package] == nil {
		r.lines[e.Package] = new(bytes.Buffer)
	}
	t := test{e.Package, e.Test}
	switch {
	case e.Action == "output" && e.Test != "":
		r.output[t] = append(r.output[t], e.Output)
	case e.Action == "output":
		if e.Output != "PASS\n" {
			r.lines[e.Package].WriteString(e.Output)
		}
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		if e.Test == "" {
			r.endPackage(e.Package, e.Action)
		} else {
			r.endTest(t, e.Action)
		}
	}
}

func (r *report) endTest(t test, action string) {
	lines := slices.DeleteFunc(r.output[t], func(s string) bool { return strings.HasPrefix(s, "===") })
	delete(r.output, t)
	switch action {
	case "fail":
		r.failed++
		r.keep(t.pkg, lines)
	case "skip":
		r.keep(t.pkg, lines)
		reason := slices.DeleteFunc(lines, func(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "---") })
		r.skipped = append(r.skipped, t.name+" in "+t.pkg+": "+strings.TrimSpace(strings.Join(reason, "")))
	default:
		r.passed++
		if r.strict && !strings.Contains(t.name, "/") {
			r.keep(t.pkg, slices.DeleteFunc(lines, func(s string) bool { return !strings.HasPrefix(s, "---") }))
		}
	}
}

// endPackage prints what a package had to say. A test that never ended (a panic, a timeout) belongs to it.
func (r *report) endPackage(pkg, action string) {
	switch action {
	case "fail":
		r.packages, r.faulty = r.packages+1, r.faulty+1
	case "pass":
		r.packages++ // a skipped one has no tests
	}
	for t, lines := range r.output {
		if t.pkg == pkg {
			delete(r.output, t)
			if action == "fail" {
				r.printf("%s", strings.Join(lines, ""))
			}
		}
	}
	r.printf("%s", r.lines[pkg])
	delete(r.lines, pkg)
}

func (r *report) keep(pkg string, lines []string) {
	for _, line := range lines {
		r.lines[pkg].WriteString(line)
	}
}

// end prints the numbers and reports whether all is well.
func (r *report) end() bool {
	r.printf("%d packages, %d tests passed, %d failed, %d skipped\n", r.packages, r.passed, r.failed, len(r.skipped))
	if len(r.skipped) > 0 && r.strict {
		r.printf("with CI=true a skip is a failure:\n")
		for _, s := range r.skipped {
			r.printf("  %s\n", s)
		}
	}
	return r.faulty == 0 && r.failed == 0 && (len(r.skipped) == 0 || !r.strict)
}

func (r *report) printf(format string, args ...any) {
	fmt.Fprintf(r.w, format, args...)
}
