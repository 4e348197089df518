package statsmetric_test

import (
	"context"
	"errors"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

// All that a producer gives, spelled out, through a reader of the SDK.
func TestSummedMetricsAreThoseOfTheReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := stats.NewRegistry(stats.WithBuckets(0, 100), stats.WithExemplars())
		reader := metric.NewManualReader(metric.WithProducer(statsmetric.NewProducer(r)))
		_ = metric.NewMeterProvider(metric.WithReader(reader))

		time.Sleep(time.Second)

		socket := r.Wrap(fakeConn{local: tcp(1), remote: tcp(2)}, true)
		c := r.Open(stats.ConnInfo{Client: true, Authority: "server:443", Local: socket.LocalAddr(), Remote: socket.RemoteAddr()})
		span := trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
		})
		c.Series(stats.Key{Method: "s/M", Type: "t.T", Variant: "put", Retry: true}).
			Record(trace.ContextWithSpanContext(t.Context(), span), 50, 200)
		_, _ = socket.Write(make([]byte, 80))
		_, _ = socket.Read(make([]byte, 30))
		record(t, r.Open(stats.ConnInfo{}), stats.Key{Method: "s/M", Type: "t.T", Direction: stats.Receive}, 2, 100)
		_ = r.Open(stats.ConnInfo{})

		recorded := time.Now()

		time.Sleep(time.Second)
		c.Close()
		_ = socket.Close()

		var got metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &got); err != nil {
			t.Fatal(err)
		}

		client := attribute.NewSet(
			attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", "s/M"),
			attribute.String("network.io.direction", "transmit"),
			attribute.String("otelproto.message.type", "t.T"), attribute.String("otelproto.message.variant", "put"),
			attribute.Bool("otelproto.rpc.retry", true), attribute.String("server.address", "server"), attribute.Int("server.port", 443),
		)
		server := attribute.NewSet(
			attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", "s/M"),
			attribute.String("network.io.direction", "receive"),
			attribute.String("otelproto.message.type", "t.T"),
		)
		exemplar := func(v int64) []metricdata.Exemplar[int64] {
			return []metricdata.Exemplar[int64]{{
				Time: recorded, Value: v, TraceID: append([]byte{1}, make([]byte, 15)...), SpanID: append([]byte{2}, make([]byte, 7)...),
			}}
		}
		histogram := func(
			name, description string, set attribute.Set, count uint64, sum int64, counts []uint64, e []metricdata.Exemplar[int64],
		) metricdata.Metrics {
			return metricdata.Metrics{Name: name, Description: description, Unit: "By", Data: metricdata.Histogram[int64]{
				Temporality: metricdata.CumulativeTemporality,
				DataPoints: []metricdata.HistogramDataPoint[int64]{{
					Attributes: set, StartTime: start, Time: time.Now(), Count: count, Sum: sum,
					Bounds: []float64{0, 100}, BucketCounts: counts, Exemplars: e,
				}},
			}}
		}
		counter := func(name, description string, transmit, receive int64) metricdata.Metrics {
			point := func(direction string, v int64) metricdata.DataPoint[int64] {
				return metricdata.DataPoint[int64]{
					Attributes: attribute.NewSet(attribute.String("network.io.direction", direction)),
					StartTime:  start, Time: time.Now(), Value: v,
				}
			}

			return metricdata.Metrics{Name: name, Description: description, Unit: "By", Data: metricdata.Sum[int64]{
				Temporality: metricdata.CumulativeTemporality, IsMonotonic: true,
				DataPoints: []metricdata.DataPoint[int64]{point("transmit", transmit), point("receive", receive)},
			}}
		}

		const (
			wire = "Size of each message on the wire: compressed payload and gRPC's 5-byte prefix."
			size = "Size of each message uncompressed, without prefix."
		)

		want := metricdata.ScopeMetrics{
			Metrics: []metricdata.Metrics{
				histogram("otelproto.server.message.wire_size", wire, server, 2, 210, []uint64{0, 0, 2}, nil),
				histogram("otelproto.server.message.size", size, server, 2, 200, []uint64{0, 2, 0}, nil),
				histogram("otelproto.client.message.wire_size", wire, client, 1, 50, []uint64{0, 1, 0}, exemplar(50)),
				histogram("otelproto.client.message.size", size, client, 1, 200, []uint64{0, 0, 1}, exemplar(200)),
				counter("otelproto.connection.io", "Bytes that the sockets carried.", 80, 30),
				counter("otelproto.connection.overhead",
					"Bytes of the sockets less the messages' wire bytes: headers, frames, TLS.", 30, 30),
				{
					Name: "otelproto.connections", Unit: "{connection}", Description: "Live connections.",
					Data: metricdata.Sum[int64]{
						Temporality: metricdata.CumulativeTemporality,
						DataPoints:  []metricdata.DataPoint[int64]{{StartTime: start, Time: time.Now(), Value: 2}},
					},
				},
			},
		}
		want.Scope.Name, want.Scope.SchemaURL = statsmetric.ScopeName, semconv.SchemaURL

		if len(got.ScopeMetrics) != 1 {
			t.Fatalf("%d scopes", len(got.ScopeMetrics))
		}

		metricdatatest.AssertEqual(t, want, got.ScopeMetrics[0])
	})
}

func TestDeltasCoverTheTimeSinceTheExportBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := stats.NewRegistry()
		c := r.Open(stats.ConnInfo{})
		record(t, c, stats.Key{Type: "A"}, 1, 10)

		b := newBackend(t, "delta", statsmetric.NewProducer(r, statsmetric.Delta()), true)
		times := func() (from, to time.Time) {
			p := b.collect()[0].Data.(metricdata.Histogram[int64]).DataPoints[0]

			return p.StartTime, p.Time
		}

		time.Sleep(time.Second)

		if from, to := times(); !from.Equal(start) || !to.Equal(start.Add(time.Second)) {
			t.Errorf("from %v to %v", from, to)
		}

		time.Sleep(time.Second)

		if n := len(b.collect()); n != 1 {
			t.Errorf("%d metrics, expected the number of connections only", n)
		}

		time.Sleep(time.Second)
		record(t, c, stats.Key{Type: "A"}, 1, 10)

		if from, to := times(); !from.Equal(start.Add(2*time.Second)) || !to.Equal(start.Add(3*time.Second)) {
			t.Errorf("from %v to %v", from, to)
		}
	})
}

func TestAConnectionsAttributes(t *testing.T) {
	unix := &net.UnixAddr{Name: "/run/s", Net: "unix"}

	for name, c := range map[string]struct {
		info stats.ConnInfo
		want string
	}{
		"client": {stats.ConnInfo{Client: true, Local: tcp(1), Remote: tcp(2), Authority: "s:9"},
			"network.local.port=1,network.peer.address=10.0.0.1,network.peer.port=2,server.address=s,server.port=9"},
		"server": {stats.ConnInfo{Local: tcp(1), Remote: tcp(2)}, "network.peer.address=10.0.0.1,network.peer.port=2"},
		"client on a Unix socket": {stats.ConnInfo{Client: true, Local: &net.UnixAddr{Net: "unix"}, Remote: unix},
			"network.peer.address=/run/s,otelproto.connection.id=1"},
		"server on a Unix socket": {stats.ConnInfo{Local: unix, Remote: &net.UnixAddr{Net: "unix"}}, "otelproto.connection.id=1"},
		"no addresses":            {stats.ConnInfo{}, "otelproto.connection.id=1"},
		"no local address": {stats.ConnInfo{Client: true, Remote: tcp(2)},
			"network.peer.address=10.0.0.1,network.peer.port=2,otelproto.connection.id=1"},
	} {
		r := stats.NewRegistry()
		p := statsmetric.NewProducer(r, statsmetric.PerConnection())
		record(t, r.Open(c.info), stats.Key{}, 1, 1)

		scopes, err := p.Produce(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		metricName := "otelproto.server.message.size"
		if c.info.Client {
			metricName = "otelproto.client.message.size"
		}

		var got []string

		for kv := range strings.SplitSeq(texts(t, scopes[0].Metrics, metricName)[0], ",") {
			if !strings.HasPrefix(kv, "rpc.") && !strings.HasPrefix(kv, "network.io") && !strings.HasPrefix(kv, "otelproto.message") {
				got = append(got, kv)
			}
		}

		if diff := cmp.Diff(c.want, strings.Join(got, ",")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}

		p.Close()
	}
}

func TestTwoConnectionsWithEqualAddressesNeverShareASeries(t *testing.T) {
	for _, opts := range [][]statsmetric.Option{{statsmetric.PerConnection()}, {statsmetric.PerConnection(), statsmetric.Delta()}} {
		r := stats.NewRegistry()
		b := newBackend(t, "", statsmetric.NewProducer(r, opts...), len(opts) == 2)
		info := stats.ConnInfo{Client: true, Local: tcp(1), Remote: tcp(2)}
		one, two := r.Open(info), r.Open(info)
		record(t, one, stats.Key{Type: "A"}, 1, 10)
		record(t, two, stats.Key{Type: "A"}, 2, 10)

		sets := texts(t, b.collect(), "otelproto.client.message.size")
		if len(sets) != 2 || strings.Contains(sets[0], "connection.id") || !strings.Contains(sets[1], "otelproto.connection.id=2") {
			t.Errorf("got %q", sets)
		}

		// The third has the addresses of the first, which ends in the same export.
		one.Close()

		three := r.Open(info)
		record(t, two, stats.Key{Type: "A"}, 1, 10)
		record(t, three, stats.Key{Type: "A"}, 4, 10)
		b.collect()
		record(t, two, stats.Key{Type: "A"}, 1, 10)
		record(t, three, stats.Key{Type: "A"}, 1, 10)

		// The names are kept for life, though that of the first is free again.
		sets = texts(t, b.collect(), "otelproto.client.message.size")
		if len(sets) != 2 || !strings.Contains(sets[0], "id=2") || !strings.Contains(sets[1], "id=3") {
			t.Errorf("got %q", sets)
		}

		if got := b.total("otelproto.client.message.size")[""]; got != (value{10 - 0, 100}) {
			t.Errorf("got %v, expected 10 messages of 10 bytes", got)
		}

		b.producer.Close()
	}
}

func TestAClosedConnectionIsExportedOnceMoreAndThenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stats.NewRegistry()
		b := newBackend(t, "", statsmetric.NewProducer(r, statsmetric.PerConnection()), false)
		long := r.Open(stats.ConnInfo{Remote: tcp(1)})
		record(t, long, stats.Key{Type: "A"}, 1, 10)
		b.collect()
		time.Sleep(time.Second)

		brief := r.Open(stats.ConnInfo{Remote: tcp(2)})
		opened := time.Now()

		record(t, brief, stats.Key{Type: "A"}, 3, 10)
		record(t, long, stats.Key{Type: "A"}, 1, 10)
		long.Close()
		brief.Close()
		time.Sleep(time.Second)

		points := b.collect()[1].Data.(metricdata.Histogram[int64]).DataPoints
		if len(points) != 2 || points[0].Count != 2 || points[1].Count != 3 || !points[1].StartTime.Equal(opened) {
			t.Errorf("got %+v", points)
		}

		time.Sleep(time.Second)

		exported := time.Now()
		if metrics := b.collect(); len(metrics) != 1 || len(texts(t, metrics, "otelproto.connections")) != 1 {
			t.Errorf("got %+v", metrics)
		}

		time.Sleep(time.Second)
		record(t, long, stats.Key{Type: "A"}, 5, 10)
		time.Sleep(time.Second)

		points = b.collect()[1].Data.(metricdata.Histogram[int64]).DataPoints
		if len(points) != 1 || points[0].Count != 5 || !points[0].StartTime.Equal(exported) {
			t.Errorf("what came late: got %+v", points)
		}

		b.producer.Close()
	})
}

// The addresses of a connection that has ended are free.
func TestAnAddressMayBeUsedAgain(t *testing.T) {
	r := stats.NewRegistry()
	b := newBackend(t, "", statsmetric.NewProducer(r, statsmetric.PerConnection()), false)

	for range 3 {
		c := r.Open(stats.ConnInfo{Remote: tcp(1)})
		record(t, c, stats.Key{Type: "A"}, 1, 10)
		c.Close()

		if sets := texts(t, b.collect(), "otelproto.server.message.size"); len(sets) != 1 || strings.Contains(sets[0], "connection.id") {
			t.Errorf("got %q", sets)
		}
	}

	b.producer.Close()
}

func TestTheOverheadNeverGoesBackwards(t *testing.T) {
	for name, opts := range map[string][]statsmetric.Option{"summed": nil, "per connection": {statsmetric.PerConnection()}} {
		r := stats.NewRegistry()
		b := newBackend(t, name, statsmetric.NewProducer(r, opts...), false)
		s := r.Wrap(fakeConn{local: tcp(1), remote: tcp(2)}, false)
		c := r.Open(stats.ConnInfo{Local: s.LocalAddr()})
		overhead := func() uint64 {
			b.collect()

			return b.total("otelproto.connection.overhead", directionKey)["|receive"].sum
		}

		_, _ = s.Read(make([]byte, 1_000)) // of which 900 are a message that is not yet received

		if got := overhead(); got != 1_000 {
			t.Errorf("%s: %d, expected 1000", name, got)
		}

		record(t, c, stats.Key{Direction: stats.Receive}, 1, 895)

		if got := overhead(); got != 1_000 {
			t.Errorf("%s: %d, expected to stay at 1000", name, got)
		}

		_, _ = s.Read(make([]byte, 1_050))

		if got := overhead(); got != 1_150 {
			t.Errorf("%s: %d, expected 1150", name, got)
		}

		// What was sent is counted before it is written.
		record(t, c, stats.Key{Direction: stats.Transmit}, 1, 995)

		if b.collect(); b.total("otelproto.connection.overhead", directionKey)["|transmit"].sum != 0 {
			t.Errorf("%s: %v", name, b.total("otelproto.connection.overhead", directionKey))
		}

		b.producer.Close()
		c.Close()
		_ = s.Close()
	}
}

// An attribute keeps less of a name than the registry does, and authorities have several spellings.
func TestRowsWhoseAttributesAreEqualAreOnePoint(t *testing.T) {
	long := strings.Repeat("m", 300)

	r := stats.NewRegistry()
	all := backends(t, r)

	for range 3 {
		for _, authority := range []string{"a/b", "a%2Fb"} {
			c := r.Open(stats.ConnInfo{Client: true, Authority: authority, Local: tcp(1), Remote: tcp(2)})
			record(t, c, stats.Key{Method: long + "1"}, 1, 10)
			record(t, c, stats.Key{Method: long + "2"}, 1, 20)
		}

		for _, b := range all {
			b.collect() // fails if two points have the same attributes
		}
	}

	for _, b := range all {
		if got := b.total("otelproto.client.message.size")[""]; got != (value{12, 180}) {
			t.Errorf("%s: got %v, expected 12 messages, 180 bytes", b.name, got)
		}

		b.producer.Close()
	}
}

// The SDK writes into the memory of what it got for the export before.
func TestAnExportMayBeOverwritten(t *testing.T) {
	r := stats.NewRegistry()
	all := backends(t, r)
	c := r.Open(stats.ConnInfo{Remote: tcp(1)})

	for range 3 {
		record(t, c, stats.Key{Type: "A"}, 1, 10)

		brief := r.Open(stats.ConnInfo{Remote: tcp(2)})
		record(t, brief, stats.Key{Type: "A"}, 1, 10)
		brief.Close()

		for _, b := range all {
			for _, m := range b.collect() {
				if h, ok := m.Data.(metricdata.Histogram[int64]); ok {
					for _, p := range h.DataPoints {
						clear(p.BucketCounts)
						clear(p.Bounds)
					}
				}
			}
		}
	}

	if got := r.Snapshot().Total[0]; got.Size.Count() != 6 || got.Size.Bounds[1] != 16 {
		t.Errorf("got %+v", got)
	}

	for _, b := range all {
		if got := b.total("otelproto.server.message.size")[""]; got != (value{6, 60}) {
			t.Errorf("%s: got %v", b.name, got)
		}

		b.producer.Close()
	}
}

func TestAProducerThatIsClosedOrHasNoRegistryProducesNothing(t *testing.T) {
	before := otel.GetErrorHandler()
	defer otel.SetErrorHandler(before)

	var reported error

	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { reported = err }))

	none := statsmetric.NewProducer(nil, nil)
	if reported == nil || !strings.Contains(reported.Error(), "expected a registry") {
		t.Errorf("reported %v", reported)
	}

	closed := statsmetric.NewProducer(stats.NewRegistry(), statsmetric.PerConnection())
	closed.Close()
	closed.Close()
	none.Close()

	for _, p := range []*statsmetric.Producer{none, closed} {
		if got, err := p.Produce(t.Context()); got != nil || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// What was read of closed connections is not read again, so nothing is read in vain.
func TestAContextThatIsDoneReadsNothing(t *testing.T) {
	r := stats.NewRegistry()
	b := newBackend(t, "", statsmetric.NewProducer(r, statsmetric.PerConnection()), false)
	c := r.Open(stats.ConnInfo{})
	record(t, c, stats.Key{}, 1, 10)
	c.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if got, err := b.producer.Produce(ctx); got != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", got, err)
	}

	b.collect()

	if got := b.total("otelproto.server.message.size")[""]; got != (value{1, 10}) {
		t.Errorf("got %v", got)
	}

	b.producer.Close()
}

// The SDK has no Close for producers: for one that is garbage nothing is kept.
func TestAForgottenProducerLetsGo(t *testing.T) {
	r := stats.NewRegistry(stats.WithWaitingLimit(math.MaxInt))
	forgotten := make(chan struct{})

	func() {
		p := statsmetric.NewProducer(r, statsmetric.PerConnection())
		runtime.AddCleanup(p, func(c chan struct{}) { close(c) }, forgotten)
	}()

	for done := false; !done; {
		runtime.GC()

		select {
		case <-forgotten:
			done = true
		default:
		}
	}

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	const conns, series = 20, 50

	kept := func() uint64 {
		var before, after runtime.MemStats

		runtime.GC()
		runtime.ReadMemStats(&before)

		for range conns {
			c := r.Open(stats.ConnInfo{})
			for i := range series {
				record(t, c, stats.Key{Type: strings.Repeat("T", i)}, 1, 1)
			}
			c.Close()
		}

		runtime.GC()
		runtime.ReadMemStats(&after)

		return after.HeapAlloc - min(after.HeapAlloc, before.HeapAlloc)
	}

	for tries := 100; kept() > conns*series*100; <-tick.C {
		if tries--; tries == 0 {
			t.Fatal("the registry still keeps closed connections")
		}
	}
}

func TestConnectionsBeyondTheLimitAreOneWithID0(t *testing.T) {
	silence(t)

	for _, delta := range []bool{false, true} {
		opts := []statsmetric.Option{statsmetric.PerConnection()}
		if delta {
			opts = append(opts, statsmetric.Delta())
		}

		r := stats.NewRegistry(stats.WithConnLimit(1))
		b := newBackend(t, "", statsmetric.NewProducer(r, opts...), delta)
		r.Open(stats.ConnInfo{})

		for range 3 {
			s := r.Wrap(fakeConn{local: tcp(1), remote: tcp(2)}, false)
			c := r.Open(stats.ConnInfo{Local: s.LocalAddr()})
			record(t, c, stats.Key{Direction: stats.Receive}, 1, 10)
			_, _ = s.Read(make([]byte, 100))
			b.collect()
			record(t, c, stats.Key{Direction: stats.Receive}, 1, 10)
			c.Close()
			_ = s.Close()

			sets := texts(t, b.collect(), "otelproto.server.message.size")
			if len(sets) != 1 || !strings.Contains(sets[0], "otelproto.connection.id=0") {
				t.Errorf("got %q", sets)
			}
		}

		if got := b.total("otelproto.server.message.wire_size")[""]; got != (value{6, 90}) {
			t.Errorf("got %v", got)
		}

		if got := b.total("otelproto.connection.io", directionKey)["|receive"]; got.sum != 300 {
			t.Errorf("got %v", got)
		}

		b.producer.Close()
	}
}

func TestAnExemplarOfConnectionsBeyondTheLimitIsExportedOnce(t *testing.T) {
	silence(t)

	r := stats.NewRegistry(stats.WithConnLimit(1), stats.WithExemplars())
	b := newBackend(t, "", statsmetric.NewProducer(r, statsmetric.PerConnection()), false)
	r.Open(stats.ConnInfo{})

	c := r.Open(stats.ConnInfo{})
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	})
	c.Series(stats.Key{}).Record(trace.ContextWithSpanContext(t.Context(), span), 15, 10)
	c.Close()

	for want := range 2 {
		p := b.collect()[0].Data.(metricdata.Histogram[int64]).DataPoints[0]
		if len(p.Exemplars) != 1-want {
			t.Errorf("export %d: exemplars %v", want, p.Exemplars)
		}
	}

	b.producer.Close()
}
