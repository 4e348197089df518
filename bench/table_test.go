package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testdata holds what six rounds printed, and their medians and ratios, which were computed by other means.
func TestATableHasTheMedianOfOursAndTheMedianOfEachRoundsRatio(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "rounds.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := readRounds(f, f.Name())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "rounds.md"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCells(t *testing.T) {
	figures := func(unit string, samples ...float64) *row {
		all := []float64{2e-9, 4e-9, 2e-9, 8e-9, 2e-9, 2e-9}
		return &row{"", unit, map[string][]float64{ours: all[:len(samples)], "peer": samples}}
	}
	for _, tt := range []struct {
		name, way string
		row       *row
		want      string
	}{
		{"ours with its spread", ours, figures("sec/op", 1, 1, 1, 1, 1, 1), "2.000ns ±300%"},
		{"ours without enough rounds for one", ours, figures("sec/op", 1), "2.000ns"},
		{
			"the ratio is of each round, not of the medians", "peer",
			figures("sec/op", 4e-9, 8e-9, 4e-9, 16e-9, 4e-9, 2e-9), "2.0× (1.0–2.0)",
		},
		{"few rounds have no spread", "peer", figures("sec/op", 4e-9, 8e-9), "2.0×"},
		{"a large ratio has no digits after the point", "peer", figures("sec/op", 2.468e-6), "1234×"},
		{"a small ratio keeps two", "peer", figures("sec/op", 2.468e-11), "0.012×"},
		{"allocations are counted, since nothing divides by 0", "peer", figures("allocs/op", 12), "12"},
		{"who wasn't measured", "other", figures("sec/op", 1), "—"},
	} {
		if got := tt.row.cell(tt.way); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestFiguresThatCannotBeComparedAreAnError(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "PASS\n", "no benchmark"},
		{"no way in the name", "BenchmarkWake/parked=1-2 1 5 ns/op\n", "Wake/parked=1-2 says not by which way"},
		{"nothing of ours", "BenchmarkWake/parked=1/by=cond-2 1 5 ns/op\n", "Wake (parked=1): sec/op has no figure of ours"},
		{
			"a round that broke off",
			"BenchmarkWake/by=ours-2 1 5 ns/op\nBenchmarkWake/by=cond-2 1 5 ns/op\nBenchmarkWake/by=ours-2 1 5 ns/op\n",
			"Wake (): 2 figures of ours, but 1 of cond",
		},
		{"a line that isn't whole", "BenchmarkWake/by=ours-2 1 five ns/op\n", "in:1: parsing measurement"},
	} {
		if _, err := readRounds(strings.NewReader(tt.in), "in"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want %q", tt.name, err, tt.want)
		}
	}
}
