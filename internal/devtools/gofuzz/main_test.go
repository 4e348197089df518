package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	holding = `package m

import "testing"

func FuzzHolds(f *testing.F) { f.Fuzz(func(*testing.T, byte) {}) }
`
	falling = `package b

import "testing"

func FuzzFalls(f *testing.F) { f.Fuzz(func(t *testing.T, b bool) { t.Error("oh no") }) }
`
)

func TestEveryTargetRunsAndAFindingFails(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module m\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "m_test.go"), holding)
	var b strings.Builder
	ok, err := run(dir, "50x", &b)
	if err != nil || !ok || !strings.Contains(b.String(), "FuzzHolds in m: execs: ") {
		t.Errorf("a target that holds: ok = %v, err = %v, output:\n%s", ok, err, b.String())
	}

	write(t, filepath.Join(dir, "b", "b_test.go"), falling)
	b.Reset()
	ok, err = run(dir, "50x", &b)
	if err != nil || ok {
		t.Errorf("a target that falls: ok = %v, err = %v", ok, err)
	}
	for _, want := range []string{"FuzzFalls in m/b:\n", "oh no", "Failing input written to testdata", "1 of 2 fuzz targets held\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the output doesn't say %q:\n%s", want, b.String())
		}
	}
}

func TestATestBinaryThatDoesNotBuildIsAnError(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module m\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "m_test.go"), "package m\n\nvar x int = \"\"\n")
	if _, err := run(dir, "1x", new(strings.Builder)); err == nil {
		t.Error("no error")
	}
}

func TestOnlyABareDeadlineIsTheCoordinators(t *testing.T) {
	const progress = "fuzz: elapsed: 3s, execs: 40304 (0/sec), new interesting: 104 (total: 108)\n"
	for _, tt := range []struct {
		name, out string
		want      bool
	}{
		{"bare", progress + "--- FAIL: FuzzX (3.20s)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\tm\t3.2s\n", true},
		{"with a finding", progress + "--- FAIL: FuzzX (1.20s)\n    --- FAIL: FuzzX (0.00s)\n" +
			"        x_test.go:9: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzX/0\nFAIL\n", false},
		{"something else", progress + "--- FAIL: FuzzX (1.20s)\n    fuzzing process hung or terminated unexpectedly\nFAIL\n", false},
		{"not run", "FAIL\tm [build failed]\n", false},
	} {
		if got := deadlineOnly([]byte(tt.out)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if got, want := lastProgress([]byte(progress+"PASS\n")), "execs: 40304 (0/sec), new interesting: 104 (total: 108)"; got != want {
		t.Errorf("progress %q, want %q", got, want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
