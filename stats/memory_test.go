//go:build !race

package stats_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/otelproto/otelproto-go/stats"
)

// heap gives the bytes in use.
func heap() uint64 {
	var m runtime.MemStats

	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}

func TestASeriesTakesAtMost512Bytes(t *testing.T) {
	const conns, series = 500, 20

	for name, limit := range map[string]uint64{"plain": 280, "compressed": 512} {
		t.Run(name, func(t *testing.T) {
			r := stats.NewRegistry()
			keys := make([]stats.Key, series)

			for i := range keys {
				keys[i] = stats.Key{Method: "service/Method", Type: fmt.Sprint("type ", i)}
			}

			all := make([]*stats.Conn, conns)
			for i := range all {
				all[i] = r.Open(stats.ConnInfo{})
			}

			all[0].Series(keys[0]) // the table of keys is not per series
			for _, k := range keys {
				all[0].Series(k)
			}

			before := heap()

			for _, c := range all[1:] {
				for _, k := range keys {
					s := c.Series(k)
					s.Record(t.Context(), 105, 100)

					if name == "compressed" {
						s.Record(t.Context(), 50, 100)
					}
				}
			}

			each := (heap() - before) / ((conns - 1) * series)
			t.Logf("%d bytes a series", each)

			if each > limit {
				t.Errorf("%d bytes a series, expected at most %d", each, limit)
			}

			runtime.KeepAlive(all)
			runtime.KeepAlive(r)
		})
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	for name, opts := range map[string][]stats.Option{"plain": nil, "exemplars": {stats.WithExemplars()}} {
		s := newTestSeries(t, opts...)
		ctx := sampled(context.Background(), 1)
		s.Record(ctx, 10_000, 10_000)

		if n := testing.AllocsPerRun(1_000, func() { s.Record(ctx, 105, 100) }); n != 0 {
			t.Errorf("%s: %v allocations a message, expected none", name, n)
		}

		if n := testing.AllocsPerRun(1_000, func() { s.Record(ctx, 40, 100) }); n != 0 {
			t.Errorf("%s: %v allocations a compressed message, expected none", name, n)
		}
	}
}

// Connections come and go while a reader reads, and a second one doesn't.
func TestTheHeapStaysFlatOverManyConnections(t *testing.T) {
	const conns = 100_000

	collectErrors(t)

	r := stats.NewRegistry(stats.WithWaitingLimit(2_000))
	reader, lazy := r.NewConnReader(), r.NewConnReader()
	keys := []stats.Key{{Method: "m", Type: "A"}, {Method: "m", Type: "B", Direction: stats.Receive}, {Method: "m", Type: "C"}}
	open := make([]*stats.Conn, 100)

	var closed uint64

	churn := func(n int) {
		for i := range n {
			if old := open[i%len(open)]; old != nil {
				old.Close()
			}

			c := r.Open(stats.ConnInfo{Client: i%2 == 0, Authority: "a"})
			open[i%len(open)] = c

			for j, k := range keys {
				c.Series(k).Record(t.Context(), 100*(j+1)+5, 100*(j+1))
			}

			if i%400 == 0 {
				closed += uint64(len(reader.Read().Closed))
			}
		}
	}

	churn(10_000)

	before := heap()
	churn(conns)

	after := heap()
	t.Logf("heap %d before, %d after %d connections", before, after, conns)

	if after > before+before/20 {
		t.Errorf("the heap grew from %d to %d bytes, expected at most 5 %% more", before, after)
	}

	for _, c := range open {
		c.Close()
	}

	closed += uint64(len(reader.Read().Closed))
	if closed != conns+10_000 {
		t.Errorf("the reader saw %d closed connections, expected %d", closed, conns+10_000)
	}

	s := r.Snapshot()
	if len(s.Conns) != 0 || len(s.Total) != 6 {
		t.Fatalf("%d live connections and %d rows, expected 0 and 6", len(s.Conns), len(s.Total))
	}

	for i, row := range s.Total {
		size := uint64(100 * (i%3 + 1))
		if row.Messages != (conns+10_000)/2 || row.Size.Sum != row.Messages*size || row.Wire.Sum != row.Messages*(size+5) {
			t.Errorf("got %+v", row)
		}
	}

	runtime.KeepAlive(lazy)
}
