package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/otelproto/otelproto-go/examples/invoke/caller"
	"github.com/otelproto/otelproto-go/examples/invoke/journal"
	"github.com/otelproto/otelproto-go/stats"
)

// A report is what became of the calls.
type report struct {
	caller.Result

	config   config
	took     time.Duration
	moves    uint64
	resyncs  uint64
	versions uint64
	counts   journal.Counts
}

// print prints the report, and which messages took the bandwidth.
func (r *report) print(w io.Writer, rows []stats.Row) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%d calls of %d workers in %v (%.0f a second), completion %s, chaos %v\n", r.config.calls, r.config.workers,
		r.took.Round(time.Millisecond), float64(r.config.calls)/r.took.Seconds(), r.config.completion, r.config.chaos)
	fmt.Fprintf(&out, "completed %d  retried %d  timed out %d  resyncs %d  lost %d\n",
		r.Completed, r.Retried, r.TimedOut, r.resyncs, r.Lost)
	fmt.Fprintf(&out, "journal: %d accepted, %d outcomes, %d applied; %d moves of %d shards; %d versions, %d calls on a stale one; "+
		"slowest call %v\n\n", r.counts.Accepted, r.counts.Outcomes, r.counts.Applied, r.moves, r.config.shards, r.versions, r.Stale,
		r.Slowest.Round(time.Millisecond))

	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "method\tway\tmessage\tvariant\tmessages\ton the wire\tmean")
	slices.SortFunc(rows, func(a, b stats.Row) int { return cmp.Compare(b.Wire.Sum, a.Wire.Sum) })
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t%v\t%s\t%s\t%d\t%d B\t%.0f B\n",
			short(row.Key.Method), row.Key.Direction, short(row.Key.Type), row.Key.Variant, row.Messages, row.Wire.Sum, row.Wire.Mean())
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("invoke: printing the table: %w", err)
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("invoke: printing the report: %w", err)
	}
	return nil
}

// short takes the package off a name, which is the same for all.
func short(name string) string { return strings.TrimPrefix(name, "invoke.v1.") }

// verdict is an error if something was lost or happened twice.
func (r *report) verdict(ctx context.Context) error {
	if ctx.Err() != nil {
		return errors.New("invoke: interrupted")
	}
	var errs []error
	if calls := uint64(r.config.calls); r.Lost > 0 || r.Completed != calls {
		errs = append(errs, fmt.Errorf("invoke: %d of %d calls completed, %d lost", r.Completed, calls, r.Lost))
	}
	if r.counts.Accepted != r.counts.Outcomes || r.counts.Outcomes != r.counts.Applied {
		errs = append(errs, fmt.Errorf("invoke: %d invocations were accepted, %d have an outcome, and workers applied %d",
			r.counts.Accepted, r.counts.Outcomes, r.counts.Applied))
	}
	if r.Stale > 0 {
		errs = append(errs, fmt.Errorf("invoke: %d calls ran on a version that was superseded before", r.Stale))
	}
	return errors.Join(append(errs, r.FirstErr)...)
}
