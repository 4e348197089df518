package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each benchmark runs once, in a process of its own whose TestMain looks for goroutines that a benchmark left behind.
func TestEveryBenchmarkRunsAndComparesOursWithAPeer(t *testing.T) {
	list := strings.Fields(self(t, "-test.list=^Benchmark"))
	if i := slices.Index(list, "PASS"); i >= 0 {
		list = list[:i]
	}
	r, err := readRounds(strings.NewReader(self(t, "-test.run=^$", "-test.bench=.", "-test.benchtime=1x", "-test.short")), "once")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		i := slices.IndexFunc(r.tables, func(table *table) bool { return "Benchmark"+table.name == name })
		if i < 0 {
			t.Errorf("%s gave no figures", name)
			continue
		}
		t.Logf("%s by %v", name, r.tables[i].ways)
		if len(r.tables[i].ways) < 2 {
			t.Errorf("%s has nothing that ours is compared with", name)
		}
	}
	if len(list) == 0 || len(list) != len(r.tables) {
		t.Errorf("%d benchmarks gave %d tables", len(list), len(r.tables))
	}
}

func self(t *testing.T, args ...string) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // go test's own timeout doesn't hold for benchmarks
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}

func TestRunPrintsTheTablesOfAFile(t *testing.T) {
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-read", "-o", filepath.Join("testdata", "rounds.txt")}, &out, &progress); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "### OtelprotoEvents, 6 rounds") || progress.Len() > 0 {
		t.Errorf("out:\n%s\nprogress:\n%s", &out, &progress)
	}
}

func TestRunNamesWhatIsWrongWithItsArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-count", "0"}, "-count 0"},
		{[]string{"Broadcast"}, `"Broadcast"`},
		{[]string{"-times", "3"}, "-times"},
		{[]string{"-read", "-o", "nowhere.txt"}, "nowhere.txt"},
	} {
		if err := run(t.Context(), tt.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: err = %v, want one that names %s", tt.args, err, tt.want)
		}
	}
}

func TestFactsNameTheVersionsOfThePeers(t *testing.T) {
	var b strings.Builder
	if err := writeFacts(t.Context(), &b, []string{"-test.bench=Wake", "-test.benchtime=1s"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nflags: -bench=Wake -benchtime=1s\n", " github.com/cskr/pubsub/v2@v", "go: go1.", "load-before: "} {
		if !strings.Contains("\n"+strings.ReplaceAll(b.String(), "modules: ", "modules:  "), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}
