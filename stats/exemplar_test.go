package stats_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelproto/otelproto-go/stats"
)

// sampled gives a context with a sampled span that is told by n.
func sampled(ctx context.Context, n byte) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}, TraceFlags: trace.FlagsSampled,
	}))
}

func exemplarOf(n byte, size uint64, at time.Time) *stats.Exemplar {
	return &stats.Exemplar{Time: at, Wire: size + 5, Size: size, TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}}
}

func TestTheLargestMessageOfASampledSpanIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSeries(t, stats.WithExemplars())
		unsampled := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{9}, SpanID: trace.SpanID{9},
		}))

		time.Sleep(time.Second)
		record(sampled(t.Context(), 1), s.Series, 1, 100)
		record(unsampled, s.Series, 1, 10_000)
		record(t.Context(), s.Series, 1, 10_000)

		var none context.Context

		record(none, s.Series, 1, 10_000)

		first := exemplarOf(1, 100, time.Now())
		if diff := cmp.Diff(first, s.row().Exemplar); diff != "" {
			t.Error(diff)
		}

		time.Sleep(time.Second)
		record(sampled(t.Context(), 2), s.Series, 1, 99)

		if diff := cmp.Diff(first, s.row().Exemplar); diff != "" {
			t.Errorf("a smaller one: %s", diff)
		}

		record(sampled(t.Context(), 3), s.Series, 1, 101)

		if diff := cmp.Diff(exemplarOf(3, 101, time.Now()), s.row().Exemplar); diff != "" {
			t.Errorf("a larger one: %s", diff)
		}
	})
}

func TestAReadingStartsTheSearchForTheLargestAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSeries(t, stats.WithExemplars())
		sums, conns := s.registry.NewReader(), s.registry.NewConnReader()

		time.Sleep(time.Second)
		record(sampled(t.Context(), 1), s.Series, 1, 1_000)

		want := exemplarOf(1, 1_000, time.Now())

		time.Sleep(time.Second)

		if diff := cmp.Diff(want, sums.Read().Sums[0].Exemplar); diff != "" {
			t.Errorf("sums: %s", diff)
		}

		if diff := cmp.Diff(want, conns.Read().Conns[0].Rows[0].Exemplar); diff != "" {
			t.Errorf("connections: %s", diff)
		}

		if one, two := sums.Read().Sums[0].Exemplar, conns.Read().Conns[0].Rows[0].Exemplar; one != nil || two != nil {
			t.Errorf("read twice: %+v, %+v", one, two)
		}

		if diff := cmp.Diff(want, s.row().Exemplar); diff != "" {
			t.Errorf("a snapshot shows it until there is a newer one: %s", diff)
		}

		time.Sleep(time.Second)
		record(sampled(t.Context(), 2), s.Series, 1, 10)

		want = exemplarOf(2, 10, time.Now())
		s.conn.Close()

		if diff := cmp.Diff(want, s.registry.Snapshot().Closed[0].Exemplar); diff != "" {
			t.Errorf("closed: %s", diff)
		}

		time.Sleep(time.Second)

		if diff := cmp.Diff(want, sums.Read().Sums[0].Exemplar); diff != "" {
			t.Errorf("sums: %s", diff)
		}

		if diff := cmp.Diff(want, conns.Read().Closed[0].Rows[0].Exemplar); diff != "" {
			t.Errorf("closed connections: %s", diff)
		}

		conns.Close()
	})
}

// The window of two snapshots has no exemplar from before it.
func TestAWindowHasItsOwnExemplars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSeries(t, stats.WithExemplars())
		record(sampled(t.Context(), 1), s.Series, 1, 1_000)
		time.Sleep(time.Second)

		first := s.registry.Snapshot()

		time.Sleep(time.Second)
		record(sampled(t.Context(), 2), s.Series, 1, 10)

		if w := s.registry.Snapshot().Sub(first); w.Total[0].Exemplar != nil || w.Conns[0].Rows[0].Exemplar != nil {
			t.Errorf("got %+v", w.Total[0].Exemplar)
		}
	})
}

func TestWithoutTheOptionThereAreNoExemplars(t *testing.T) {
	s := newTestSeries(t)
	record(sampled(t.Context(), 1), s.Series, 1, 1_000)

	if e := s.row().Exemplar; e != nil {
		t.Errorf("got %+v", e)
	}
}

func TestOfManyGoroutinesTheLargestMessageWins(t *testing.T) {
	s := newTestSeries(t, stats.WithExemplars())

	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			ctx := sampled(context.Background(), byte(g+1))
			for i := range 500 {
				record(ctx, s.Series, 1, i*8+g)
			}
		})
	}
	wg.Wait()

	if e := s.row().Exemplar; e.Size != 499*8+7 || e.TraceID != (trace.TraceID{8}) {
		t.Errorf("got %+v", e)
	}
}
