package statshttp_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

// large is a registry of many connections with 20 series each.
func large(b *testing.B, conns int) *stats.Registry {
	b.Helper()

	reg := stats.NewRegistry()

	for i := range conns {
		c := reg.Open(stats.ConnInfo{
			Local:  &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443},
			Remote: &net.TCPAddr{IP: net.IPv4(10, 1, byte(i>>8), byte(i)), Port: 1024 + i%60_000},
		})

		for k := range 20 {
			record(c, stats.Direction(k%2), fmt.Sprintf("kv.Type%d", k/4), fmt.Sprint("v", k%4), 1, 100*k)
		}
	}

	return reg
}

// BenchmarkPage makes whole answers. A request of one that comes alone reads the registry; those of many readers share readings.
func BenchmarkPage(b *testing.B) {
	for _, conns := range []int{100, 1000, 10_000} {
		reg := large(b, conns)

		b.Run(fmt.Sprintf("conns=%d/snapshot", conns), func(b *testing.B) {
			b.ReportAllocs()

			for b.Loop() {
				reg.Snapshot()
			}
		})

		for _, format := range []string{"html", "json", "text"} {
			b.Run(fmt.Sprintf("conns=%d/alone/%s", conns, format), func(b *testing.B) {
				b.ReportAllocs()

				var bytes int

				for b.Loop() {
					// A handler of its own has no reading to share.
					bytes = len(get(b, statshttp.Handler(reg), "/?format="+format).Body.Bytes())
				}

				b.ReportMetric(float64(bytes), "bytes/page")
			})
		}

		b.Run(fmt.Sprintf("conns=%d/shared/html", conns), func(b *testing.B) {
			b.ReportAllocs()

			h := statshttp.Handler(reg)

			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?format=html&connsort=peer&peer=10.1", nil))
			}
		})
	}
}
