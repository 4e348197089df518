package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchunit"
)

// ours is the way that the others are compared with. A benchmark's name says the way it measures: …/by=ours, …/by=channels.
const ours = "ours"

// rounds is what was measured.
type rounds struct {
	facts  map[string]string
	tables []*table
}

// A table is one benchmark function.
type table struct {
	name string
	ways []string // columns, as they first occur
	rows []*row
}

// A row is one configuration and unit. Its samples are in the order of rounds, so that equal places belong together.
type row struct {
	config, unit string
	samples      map[string][]float64 // by way
}

// readRounds reads what go test printed for several rounds of benchmarks.
func readRounds(r io.Reader, file string) (*rounds, error) {
	result := &rounds{facts: make(map[string]string)}
	reader := benchfmt.NewReader(r, file)
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, rec
		case *benchfmt.Result:
			for _, c := range rec.Config {
				result.facts[c.Key] = string(c.Value)
			}
			if err := result.add(rec); err != nil {
				return nil, err
			}
		}
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	if len(result.tables) == 0 {
		return nil, fmt.Errorf("%s: no benchmark in it", file)
	}
	var errs []error
	for _, t := range result.tables {
		errs = append(errs, t.check())
	}
	return result, errors.Join(errs...)
}

func (r *rounds) add(res *benchfmt.Result) error {
	base, parts := res.Name.Parts()
	var way string
	var config []string
	for _, p := range parts {
		s := string(p)
		if by, ok := strings.CutPrefix(s, "/by="); ok {
			way = by
		} else if !strings.HasPrefix(s, "-") { // the number of processors stands among the facts
			config = append(config, strings.TrimPrefix(s, "/"))
		}
	}
	if way == "" {
		return fmt.Errorf("benchmark %s says not by which way", res.Name)
	}
	t := r.table(string(base))
	if !slices.Contains(t.ways, way) {
		t.ways = append(t.ways, way)
	}
	for _, v := range res.Values {
		if v.Unit != "B/op" { // the number of allocations says it
			w := t.row(strings.Join(config, ", "), v.Unit)
			w.samples[way] = append(w.samples[way], v.Value)
		}
	}
	return nil
}

func (r *rounds) table(name string) *table {
	for _, t := range r.tables {
		if t.name == name {
			return t
		}
	}
	t := &table{name: name}
	r.tables = append(r.tables, t)
	return t
}

func (t *table) row(config, unit string) *row {
	for _, w := range t.rows {
		if w.config == config && w.unit == unit {
			return w
		}
	}
	w := &row{config, unit, make(map[string][]float64)}
	t.rows = append(t.rows, w)
	return w
}

// check reports rows that can't be compared.
func (t *table) check() error {
	for _, w := range t.rows {
		want := len(w.samples[ours])
		if want == 0 {
			return fmt.Errorf("benchmark %s (%s): %s has no figure of %s", t.name, w.config, w.unit, ours)
		}
		for way, s := range w.samples {
			if len(s) != want {
				return fmt.Errorf("benchmark %s (%s): %s of %s, but %d of %s", t.name, w.config, plural(want, "figure"), ours, len(s), way)
			}
		}
	}
	return nil
}

// write prints Markdown: where the figures come from, as far as they say, and the tables.
func (r *rounds) write(w io.Writer) error {
	var b strings.Builder
	for _, key := range []string{"cpu", "processors", "load-before", "go", "goos", "goarch", "flags", "modules"} {
		if v := r.facts[key]; v != "" {
			fmt.Fprintf(&b, "- %s: %s\n", key, v)
		}
	}
	for _, t := range r.tables {
		t.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *table) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s, %s\n\n| |", t.name, plural(len(t.rows[0].samples[ours]), "round"))
	others := slices.DeleteFunc(slices.Clone(t.ways), func(way string) bool { return way == ours })
	columns := append([]string{ours}, others...)
	for _, way := range columns {
		fmt.Fprintf(b, " %s |", way)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, w := range t.rows {
		if w.zero() {
			continue
		}
		label := w.unit
		if w.config != "" {
			label = w.config + ", " + w.unit
		}
		fmt.Fprintf(b, "| %s |", label)
		for _, way := range columns {
			fmt.Fprintf(b, " %s |", w.cell(way))
		}
		b.WriteString("\n")
	}
}

// zero reports whether there is nothing to compare: nobody allocates.
func (w *row) zero() bool {
	for _, s := range w.samples {
		if slices.ContainsFunc(s, func(v float64) bool { return v != 0 }) {
			return false
		}
	}
	return true
}

// cell is a value for ours and for what can't be divided, else the ratio.
func (w *row) cell(way string) string {
	s := w.samples[way]
	if s == nil {
		return "—"
	}
	if way == ours || w.unit == "allocs/op" {
		sum := summary(s)
		if w.unit == "allocs/op" {
			return fmt.Sprintf("%.4g", sum.Center)
		}
		text := benchunit.Scale(sum.Center, benchunit.ClassOf(w.unit)) + symbol(w.unit)
		if math.IsInf(sum.Hi, 0) {
			return text
		}
		return text + " ±" + sum.PctRangeString()
	}
	ratios := make([]float64, len(s))
	for i, v := range s {
		ratios[i] = v / w.samples[ours][i]
	}
	sum := summary(ratios)
	if math.IsInf(sum.Hi, 0) {
		return ratio(sum.Center) + "×"
	}
	return fmt.Sprintf("%s× (%s–%s)", ratio(sum.Center), ratio(sum.Lo), ratio(sum.Hi))
}

// summary is the median and the interval in which it lies with 95 %. A Sample sorts its values; ours stay by round.
func summary(s []float64) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(s), &benchmath.DefaultThresholds), 0.95)
}

// ratio has two digits, or all before the point: a machine with neighbours is good for no more.
func ratio(v float64) string {
	switch {
	case v >= 9.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 0.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

func symbol(unit string) string {
	switch {
	case strings.Contains(unit, "sec"):
		return "s"
	case strings.HasSuffix(unit, "B"):
		return "B"
	default:
		return ""
	}
}
