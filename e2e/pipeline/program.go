package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The version of VictoriaMetrics is the newest that this Go version builds.
const (
	victoriaMetrics        = "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics"
	victoriaMetricsVersion = "v1.151.0"
)

// Root gives the root of the repository, above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte("module github.com/otelproto/otelproto-go\n")) {
			return dir, nil
		}

		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("pipeline: no go.mod of github.com/otelproto/otelproto-go above the working directory")
		}

		dir = up
	}
}

// Collector gives the path of the collector, built if it isn't there.
func Collector(ctx context.Context) (string, error) { return ofCollector(ctx, "collector", ".") }

// Prometheus gives the path of the other backend, built if it isn't there: without what finds targets in clouds, and without its
// page. It is a tool of the collector's module, which says why.
func Prometheus(ctx context.Context) (string, error) {
	return ofCollector(ctx, "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", "-tags", "remove_all_sd,slicelabels")
}

// quickly gives flags for a build without what only a debugger needs, in four fifths of the time.
func quickly() []string { return []string{"-gcflags", "all=-dwarf=false", "-ldflags", "-s -w"} }

// ofCollector builds a program of the collector's module.
func ofCollector(ctx context.Context, name, program string, flags ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}

	source := filepath.Join(root, "e2e", "collector")

	version, err := fingerprint(source)
	if err != nil {
		return "", err
	}

	return build(ctx, filepath.Join(root, ".bin", name, version, name), source, nil, func(dir string) []string {
		return slices.Concat([]string{"build", "-o", filepath.Join(dir, name)}, quickly(), flags, []string{program})
	})
}

// VictoriaMetrics gives the path of the backend, built if it isn't there.
func VictoriaMetrics(ctx context.Context) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}

	file := filepath.Join(root, ".bin", "victoria-metrics", victoriaMetricsVersion, "victoria-metrics")

	return build(ctx, file, root, []string{"CGO_ENABLED=0", "GOFLAGS="}, func(string) []string {
		return slices.Concat([]string{"install"}, quickly(), []string{victoriaMetrics + "@" + victoriaMetricsVersion})
	})
}

// Compute builds examples/compute in dir and gives its path.
func Compute(ctx context.Context, dir string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}

	file := filepath.Join(dir, "compute")

	return file, run(ctx, filepath.Join(root, "examples"), nil, "build", "-o", file, "./compute")
}

// build runs the go command in source, unless there is a file of that name. The file appears there when it is whole, and of two builds
// at the same time, by two test packages, the second waits for the first.
func build(ctx context.Context, file, source string, env []string, args func(dir string) []string) (string, error) {
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}

	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return "", err
	}

	unlock, err := lock(file + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()

	if _, err := os.Stat(file); err == nil { // by now
		return file, nil
	}

	dir, err := os.MkdirTemp(filepath.Dir(file), "build")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)

	fmt.Fprintf(os.Stderr, "building %s, once: this takes a minute or two\n", filepath.Base(file))

	if err := run(ctx, source, append(env, "GOBIN="+dir), args(dir)...); err != nil {
		return "", err
	}

	return file, os.Rename(filepath.Join(dir, filepath.Base(file)), file)
}

func run(ctx context.Context, dir string, env []string, args ...string) error {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), env...)

	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("pipeline: go %s: %w\n%s", strings.Join(args, " "), err, out)
	}

	return nil
}

// fingerprint stands for what a program is built from.
func fingerprint(dir string) (string, error) {
	h := sha256.New()

	fmt.Fprintln(h, runtime.Version())

	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}

		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}

	return hex.EncodeToString(h.Sum(nil))[:12], nil
}
