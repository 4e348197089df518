// Command gotest runs go test in one module of this repository and prints what it says, less the noise: a line per package, the
// output of what failed, each skipped test with its reason, and the numbers of tests at the end.
//
// With CI=true it also prints a line per passed test, and a skipped test is a failure: on somebody's laptop a tool may be
// missing, where the results count it may not.
//
//	go run ./internal/devtools/gotest DIR [go test arguments]
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: gotest DIR [go test arguments]")
		os.Exit(2)
	}
	ok, err := run(os.Args[1], os.Args[2:], os.Stdout, os.Getenv("CI") == "true")
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run reports whether go test succeeded and, if strict, nothing was skipped.
func run(dir string, args []string, w io.Writer, strict bool) (bool, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, fmt.Errorf("output of go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start go test: %w", err)
	}
	r := newReport(w, strict)
	readErr := r.read(out)
	err = cmd.Wait()
	ok := r.end()
	var exit *exec.ExitError
	switch {
	case readErr != nil:
		return false, readErr
	case errors.As(err, &exit):
		return false, nil // what failed has been printed
	case err != nil:
		return false, fmt.Errorf("wait for go test: %w", err)
	}
	return ok, nil
}
