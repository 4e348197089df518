package statsmetric_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

func inUse() uint64 {
	var m runtime.MemStats

	runtime.GC()
	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}

// Time by number of series, and bytes held by the registry alone and with producer and export.
func BenchmarkProduce(b *testing.B) {
	for _, mode := range []struct {
		name string
		opts []statsmetric.Option
	}{
		{"summed", nil},
		{"summed_delta", []statsmetric.Option{statsmetric.Delta()}},
		{"per_connection", []statsmetric.Option{statsmetric.PerConnection()}},
		{"per_connection_delta", []statsmetric.Option{statsmetric.PerConnection(), statsmetric.Delta()}},
	} {
		for _, conns := range []int{50, 500, 5_000, 10_000} {
			b.Run(fmt.Sprintf("%s/series=%d", mode.name, conns*20), func(b *testing.B) {
				before := inUse()
				r := stats.NewRegistry()
				p := statsmetric.NewProducer(r, mode.opts...)

				for i := range conns {
					c := r.Open(stats.ConnInfo{Remote: &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i)), Port: 1 + i}})
					for j := range 20 {
						k := stats.Key{Method: "package.Service/Method", Type: fmt.Sprint("package.Type", j)}
						c.Series(k).Record(context.Background(), 105, 100)
					}
				}

				held := inUse() - before

				var got []metricdata.ScopeMetrics

				for b.Loop() {
					var err error
					if got, err = p.Produce(b.Context()); err != nil {
						b.Fatal(err)
					}
				}

				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(conns*20), "ns/series")
				b.ReportMetric(float64(held)/1e6, "MB-registry")
				b.ReportMetric(float64(inUse()-before)/1e6, "MB-with-export")
				runtime.KeepAlive(got)
				runtime.KeepAlive(r)
				p.Close()
			})
		}
	}
}
