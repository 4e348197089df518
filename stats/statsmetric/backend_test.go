package statsmetric_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// value is a point of any kind.
type value struct{ count, sum uint64 }

func (v value) plus(w value) value { return value{v.count + w.count, v.sum + w.sum} }

// series is what a backend knows of one.
type series struct {
	start time.Time
	last  time.Time
	value value
	// earlier is what the series before, with the same attributes, had at its end.
	earlier value
}

// backend keeps what exports say, as one that sums rates over all series does, and checks that they make sense.
type backend struct {
	t        *testing.T
	name     string
	producer *statsmetric.Producer
	delta    bool
	series   map[string]map[attribute.Set]*series
	// attrs of the last export, by metric.
	attrs map[string]map[attribute.Set]bool
	at    time.Time
}

func newBackend(t *testing.T, name string, p *statsmetric.Producer, delta bool) *backend {
	t.Helper()

	return &backend{t: t, name: name, producer: p, delta: delta, series: make(map[string]map[attribute.Set]*series)}
}

func (b *backend) collect() []metricdata.Metrics {
	b.t.Helper()

	scopes, err := b.producer.Produce(b.t.Context())
	if err != nil || len(scopes) != 1 {
		b.t.Fatalf("%d scopes, %v", len(scopes), err)
	}

	b.attrs = make(map[string]map[attribute.Set]bool)
	before := b.at

	for _, m := range scopes[0].Metrics {
		temporality := metricdata.CumulativeTemporality
		if b.delta && m.Name != "otelproto.connections" {
			temporality = metricdata.DeltaTemporality
		}

		var got metricdata.Temporality

		switch data := m.Data.(type) {
		case metricdata.Histogram[int64]:
			got = data.Temporality

			for _, p := range data.DataPoints {
				var n uint64
				for _, c := range p.BucketCounts {
					n += c
				}

				if n != p.Count || len(p.BucketCounts) != len(p.Bounds)+1 {
					b.t.Fatalf("%s: %s counts %d in buckets of %d", b.name, m.Name, p.Count, n)
				}

				b.point(m.Name, p.Attributes, p.StartTime, p.Time, before, value{p.Count, uint64(p.Sum)})
			}
		case metricdata.Sum[int64]:
			got = data.Temporality

			if data.IsMonotonic == (m.Name == "otelproto.connections") {
				b.t.Fatalf("%s: monotonic is %v", m.Name, data.IsMonotonic)
			}

			if data.IsMonotonic {
				for _, p := range data.DataPoints {
					b.point(m.Name, p.Attributes, p.StartTime, p.Time, before, value{0, uint64(p.Value)})
				}
			}
		}

		if got != temporality {
			b.t.Fatalf("%s: %s has temporality %v, expected %v", b.name, m.Name, got, temporality)
		}
	}

	return scopes[0].Metrics
}

func (b *backend) point(metric string, set attribute.Set, start, at, before time.Time, v value) {
	b.t.Helper()

	if b.attrs[metric] == nil {
		b.attrs[metric] = make(map[attribute.Set]bool)
	}

	if b.attrs[metric][set] {
		b.t.Fatalf("%s: %s has two points with %v", b.name, metric, set.Encoded(attribute.DefaultEncoder()))
	}

	b.attrs[metric][set] = true
	b.at = at

	if start.After(at) {
		b.t.Fatalf("%s: %s starts %v after its time", b.name, metric, start.Sub(at))
	}

	all := b.series[metric]
	if all == nil {
		all = make(map[attribute.Set]*series)
		b.series[metric] = all
	}

	s := all[set]

	switch {
	case s == nil:
		all[set] = &series{start: start, last: at, value: v}
	case b.delta:
		if start.Before(s.last) {
			b.t.Fatalf("%s: %s overlaps the point before by %v", b.name, metric, s.last.Sub(start))
		}

		s.value, s.last = s.value.plus(v), at
	case !start.Equal(s.start):
		if start.Before(s.last) && s.last.Equal(before) {
			b.t.Fatalf("%s: %s of %v starts anew %v before its last point",
				b.name, metric, set.Encoded(attribute.DefaultEncoder()), s.last.Sub(start))
		}

		s.earlier, s.start, s.value, s.last = s.earlier.plus(s.value), start, v, at
	default:
		if v.count < s.value.count || v.sum < s.value.sum {
			b.t.Fatalf("%s: %s of %v went from %v to %v", b.name, metric, set.Encoded(attribute.DefaultEncoder()), s.value, v)
		}

		s.value, s.last = v, at
	}
}

// total is what the backend has of a metric altogether, by some attributes.
func (b *backend) total(metric string, by ...attribute.Key) map[string]value {
	all := make(map[string]value)

	for set, s := range b.series[metric] {
		var text strings.Builder

		for _, k := range by {
			v, _ := set.Value(k)
			text.WriteString("|" + v.String())
		}

		name := text.String()
		all[name] = all[name].plus(s.value).plus(s.earlier)
	}

	return all
}

// texts gives the attributes of the points of a metric.
func texts(t *testing.T, metrics []metricdata.Metrics, name string) []string {
	t.Helper()

	var all []string

	for _, m := range metrics {
		if m.Name != name {
			continue
		}

		switch data := m.Data.(type) {
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				all = append(all, p.Attributes.Encoded(attribute.DefaultEncoder()))
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				all = append(all, fmt.Sprint(p.Attributes.Encoded(attribute.DefaultEncoder()), " = ", p.Value))
			}
		}
	}

	return all
}

// fakeConn is a connection that reads and writes as much as it is asked to.
type fakeConn struct {
	net.Conn

	local, remote net.Addr
}

func (fakeConn) Read(p []byte) (int, error)  { return len(p), nil }
func (fakeConn) Write(p []byte) (int, error) { return len(p), nil }
func (fakeConn) Close() error                { return nil }
func (c fakeConn) LocalAddr() net.Addr       { return c.local }
func (c fakeConn) RemoteAddr() net.Addr      { return c.remote }

func tcp(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port} }

func record(t *testing.T, c *stats.Conn, k stats.Key, n, size int) {
	t.Helper()

	for range n {
		c.Series(k).Record(t.Context(), size+5, size)
	}
}
