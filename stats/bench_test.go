package stats_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/otelproto/otelproto-go/stats"
)

func BenchmarkRecord(b *testing.B) {
	for name, opts := range map[string][]stats.Option{
		"default": nil, "no_bounds": {stats.WithBuckets()}, "exemplars": {stats.WithExemplars()},
	} {
		for kind, wire := range map[string]int{"plain": 105, "compressed": 50} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				s := newTestSeries(b, opts...)
				ctx := context.Background()

				b.ReportAllocs()

				for b.Loop() {
					s.Record(ctx, wire, 100)
				}
			})
		}
	}

	b.Run("parallel", func(b *testing.B) {
		s := newTestSeries(b)

		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s.Record(context.Background(), 105, 100)
			}
		})
	})
}

// fill opens connections with series of their own.
func fill(tb testing.TB, r *stats.Registry, conns, series int) []*stats.Series {
	tb.Helper()

	all := make([]*stats.Series, 0, conns*series)

	for i := range conns {
		c := r.Open(stats.ConnInfo{Remote: &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i)), Port: i}})
		for j := range series {
			s := c.Series(stats.Key{Method: "package.Service/Method", Type: fmt.Sprint("package.Type", j)})
			record(context.Background(), s, 1, 100)
			all = append(all, s)
		}
	}

	return all
}

// 1k, 10k, 100k series, and the 10,000 connections with 20 series that are the aim: time, and bytes held.
func BenchmarkSnapshot(b *testing.B) {
	for _, conns := range []int{50, 500, 5_000, 10_000} {
		b.Run(fmt.Sprintf("series=%d", conns*20), func(b *testing.B) {
			before := inUse()
			r := stats.NewRegistry()
			series := fill(b, r, conns, 20)
			held := inUse() - before

			var s stats.Snapshot

			for b.Loop() {
				s = r.Snapshot()
			}

			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(conns*20), "ns/series")
			b.ReportMetric(float64(held)/1e6, "MB-registry")
			b.ReportMetric(float64(inUse()-before)/1e6, "MB-with-snapshot")
			runtime.KeepAlive(s)
			runtime.KeepAlive(series)
		})
	}
}

func inUse() uint64 {
	var m runtime.MemStats

	runtime.GC()
	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}

// Recording while another goroutine reads without a pause: the same registry, or one like it, which takes as much of the machine's
// time and memory. The ratio of these two is what recording waits for. They take turns with recording alone.
func BenchmarkRecordDuringSnapshots(b *testing.B) {
	r, like := stats.NewRegistry(), stats.NewRegistry()
	series := fill(b, r, 1_000, 20)
	fill(b, like, 1_000, 20)

	measure := func(read func()) float64 {
		var wg sync.WaitGroup

		stop := make(chan struct{})

		if read != nil {
			started := make(chan struct{})

			wg.Go(func() {
				read()
				close(started)

				for {
					select {
					case <-stop:
						return
					default:
						read()
					}
				}
			})
			<-started
		}

		start := time.Now()

		for i := range 1_000_000 {
			series[i%32].Record(b.Context(), 105, 100)
		}

		each := float64(time.Since(start).Nanoseconds()) / 1_000_000

		close(stop)
		wg.Wait()

		return each
	}

	var alone, same, other []float64

	for b.Loop() {
		alone = append(alone, measure(nil))
		same = append(same, measure(func() { r.Snapshot() }))
		other = append(other, measure(func() { like.Snapshot() }))
	}

	slices.Sort(alone)
	b.ReportMetric(alone[len(alone)/2], "alone-ns")
	ratio(b, same, other, "same-registry", "other-registry")
}

func ratio(b *testing.B, ours, theirs []float64, name, other string) {
	b.Helper()
	slices.Sort(ours)
	slices.Sort(theirs)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours[len(ours)/2], name+"-ns")
	b.ReportMetric(theirs[len(theirs)/2], other+"-ns")
	b.ReportMetric(ours[len(ours)/2]/theirs[len(theirs)/2], "ratio")
}

func BenchmarkOpenSeriesClose(b *testing.B) {
	for name, readers := range map[string]int{"no_reader": 0, "one_reader": 1} {
		b.Run(name, func(b *testing.B) {
			r := stats.NewRegistry()

			var rd *stats.Reader
			if readers > 0 {
				rd = r.NewConnReader()
				defer rd.Close()
			}

			b.ReportAllocs()

			for i := 0; b.Loop(); i++ {
				c := r.Open(stats.ConnInfo{})
				c.Series(stats.Key{Type: "A"}).Record(b.Context(), 105, 100)
				c.Close()

				if rd != nil && i%1_000 == 0 {
					rd.Read()
				}
			}
		})
	}
}
