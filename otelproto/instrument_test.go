package otelproto_test

import (
	"context"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	grpcstats "google.golang.org/grpc/stats"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

func newReader() (*sdkmetric.ManualReader, *sdkmetric.MeterProvider) {
	r := sdkmetric.NewManualReader()

	return r, sdkmetric.NewMeterProvider(sdkmetric.WithReader(r))
}

// point is a data point of one of our metrics.
type point struct {
	metricdata.HistogramDataPoint[int64]

	metric string
}

func (p point) attr(key attribute.Key) string {
	v, _ := p.Attributes.Value(key)

	return v.String()
}

func points(t *testing.T, r sdkmetric.Reader) []point {
	t.Helper()

	var (
		rm  metricdata.ResourceMetrics
		all []point
	)

	if err := r.Collect(context.WithoutCancel(t.Context()), &rm); err != nil {
		t.Fatal(err)
	}

	for _, sm := range rm.ScopeMetrics {
		if sm.Scope.Name != otelproto.ScopeName {
			t.Errorf("scope %q", sm.Scope.Name)
		}

		for _, m := range sm.Metrics {
			if m.Unit != "By" || m.Description == "" {
				t.Errorf("%s has unit %q and description %q", m.Name, m.Unit, m.Description)
			}

			for _, dp := range m.Data.(metricdata.Histogram[int64]).DataPoints {
				all = append(all, point{dp, m.Name})
			}
		}
	}

	return all
}

// asRows gives points as a registry would.
func asRows(t *testing.T, all []point) map[stats.Key]stats.Row {
	t.Helper()

	rows := make(map[stats.Key]stats.Row)

	for _, p := range all {
		k := stats.Key{
			Method: p.attr("rpc.method"), Type: p.attr("otelproto.message.type"), Retry: p.attr("otelproto.rpc.retry") == "true",
		}
		if p.Attributes.HasValue("otelproto.message.variant") {
			k.Variant = p.attr("otelproto.message.variant")
		}

		if p.attr("network.io.direction") == "receive" {
			k.Direction = stats.Receive
		}

		r := rows[k]
		r.Key = k
		h := stats.Histogram{Bounds: p.Bounds, Counts: p.BucketCounts, Sum: uint64(p.Sum)}

		switch p.metric {
		case "otelproto.client.message.wire_size":
			r.Client, r.Wire, r.Messages = true, h, p.Count
		case "otelproto.client.message.size":
			r.Client, r.Size, r.Messages = true, h, p.Count
		case "otelproto.server.message.wire_size":
			r.Wire, r.Messages = h, p.Count
		case "otelproto.server.message.size":
			r.Size, r.Messages = h, p.Count
		default:
			t.Errorf("metric %q", p.metric)
		}

		rows[k] = r
	}

	return rows
}

// One run, both sinks on each side: what the SDK aggregates is the independent count.
func TestInstrumentsAndRegistryAgree(t *testing.T) {
	for name, buckets := range map[string][]float64{
		"default": otelproto.DefaultBuckets(), "none": {}, "odd": {-1, 0.5, 5, 7, 10.25, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			clientReg := stats.NewRegistry(stats.WithBuckets(buckets...))
			serverReg := stats.NewRegistry(stats.WithBuckets(buckets...))
			clientReader, clientProvider := newReader()
			serverReader, serverProvider := newReader()
			bounds := otelproto.WithBuckets(buckets...)

			p := grpctest.New(t, grpctest.Options{
				Server: []grpc.ServerOption{
					grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithMeterProvider(serverProvider), bounds)),
					grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(serverReg))),
				},
				Dial: append(otelproto.DialOptions(otelproto.WithMeterProvider(clientProvider), bounds),
					otelproto.DialOptions(otelproto.WithRegistry(clientReg))...),
			})
			workload(t, p.Client)
			workload(t, p.Client, useGzip())
			p.Close()

			for _, side := range []struct {
				reader sdkmetric.Reader
				reg    *stats.Registry
			}{{clientReader, clientReg}, {serverReader, serverReg}} {
				want := asRows(t, points(t, side.reader))
				got := make(map[stats.Key]stats.Row)

				for _, r := range side.reg.Snapshot().Total {
					got[r.Key] = r
				}

				if len(want) == 0 {
					t.Fatal("no points")
				}

				if name == "none" { // the SDK keeps a bucket that all values are in
					for k, r := range got {
						r.Wire.Counts, r.Size.Counts, r.Wire.Bounds, r.Size.Bounds = nil, nil, nil, nil
						got[k] = r
					}

					for k, r := range want {
						diff(t, "the SDK's buckets", r.Wire.Counts, []uint64{r.Messages, 0})
						diff(t, "the SDK's buckets", r.Size.Counts, []uint64{r.Messages, 0})

						r.Wire.Counts, r.Size.Counts, r.Wire.Bounds, r.Size.Bounds = nil, nil, nil, nil
						want[k] = r
					}
				}

				diff(t, "rows", got, want)
			}
		})
	}
}

func TestAttributesOfEverySource(t *testing.T) {
	reader, mp := newReader()
	h := otelproto.NewClientHandler(
		otelproto.WithMeterProvider(mp),
		otelproto.WithConnAttributes(otelproto.PeerAddress, otelproto.PeerPort, otelproto.LocalAddress),
		otelproto.WithRPCAttributes(func(context.Context) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String("tenant", "t1"), attribute.String("rpc.method", "not this one")}
		}),
	)

	send(t.Context(), h, "/package.Service/Method", "example.com:8443")

	got := points(t, reader)
	diff(t, "points", len(got), 2)
	want := attribute.NewSet(
		attribute.String("rpc.system.name", "grpc"),
		attribute.String("rpc.method", "package.Service/Method"),
		attribute.String("network.io.direction", "transmit"),
		attribute.String("otelproto.message.type", "_OPAQUE"),
		attribute.String("server.address", "example.com"),
		attribute.Int("server.port", 8443),
		attribute.String("network.peer.address", "10.0.0.2"),
		attribute.Int("network.peer.port", 2),
		attribute.String("network.local.address", "10.0.0.1"),
		attribute.String("tenant", "t1"),
	)
	diff(t, "attributes", got[0].Attributes.ToSlice(), want.ToSlice())
}

// send drives a client's handler through one call of 10 bytes and gives the connection's end.
func send(ctx context.Context, h grpcstats.Handler, method, authority string) (end func()) {
	local, remote := tcpAddr("10.0.0.1", 1), tcpAddr("10.0.0.2", 2)
	conn := h.TagConn(ctx, &grpcstats.ConnTagInfo{LocalAddr: local, RemoteAddr: remote})
	h.HandleConn(conn, &grpcstats.ConnBegin{Client: true})

	rpc := h.TagRPC(ctx, &grpcstats.RPCTagInfo{FullMethodName: method})
	h.HandleRPC(rpc, &grpcstats.Begin{Client: true})
	h.HandleRPC(rpc, &grpcstats.OutHeader{Client: true, LocalAddr: local, RemoteAddr: remote, Authority: authority})
	h.HandleRPC(rpc, &grpcstats.OutPayload{Client: true, Payload: []byte("0123456789"), Length: 10, WireLength: 15})
	h.HandleRPC(rpc, &grpcstats.End{Client: true})

	return func() { h.HandleConn(conn, &grpcstats.ConnEnd{Client: true}) }
}

// lifecycle is a provider whose histograms can be bound and finished, and that writes down what happens.
type lifecycle struct {
	noop.MeterProvider

	mu                         sync.Mutex
	recorded, bound, finished  map[string]int
	unboundRecords, sumOfBound int
}

type lifecycleMeter struct {
	noop.Meter

	l *lifecycle
}

type lifecycleHistogram struct {
	embedded.Int64Histogram

	l     *lifecycle
	name  string
	attrs string
}

func newLifecycle() *lifecycle {
	return &lifecycle{recorded: map[string]int{}, bound: map[string]int{}, finished: map[string]int{}}
}

func (l *lifecycle) Meter(string, ...metric.MeterOption) metric.Meter { return lifecycleMeter{l: l} }

func (m lifecycleMeter) Int64Histogram(name string, _ ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return lifecycleHistogram{l: m.l, name: name}, nil
}

func (h lifecycleHistogram) Enabled(context.Context) bool { return true }

func (h lifecycleHistogram) Record(_ context.Context, v int64, opts ...metric.RecordOption) {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()

	if h.attrs == "" || len(opts) > 0 {
		h.l.unboundRecords++

		return
	}

	h.l.recorded[h.attrs]++
	h.l.sumOfBound += int(v)
}

func (h lifecycleHistogram) Bind(attrs ...attribute.KeyValue) metric.Int64Histogram {
	set := attribute.NewSet(attrs...)
	h.attrs = h.name + " " + set.Encoded(attribute.DefaultEncoder())

	h.l.mu.Lock()
	defer h.l.mu.Unlock()

	h.l.bound[h.attrs]++

	return h
}

func (h lifecycleHistogram) Finish(_ context.Context, attrs ...attribute.KeyValue) {
	set := attribute.NewSet(attrs...)

	h.l.mu.Lock()
	defer h.l.mu.Unlock()

	h.l.finished[h.name+" "+set.Encoded(attribute.DefaultEncoder())]++
}

func TestSeriesAreBoundAndFinishedWithTheirConnection(t *testing.T) {
	l := newLifecycle()
	h := otelproto.NewClientHandler(otelproto.WithMeterProvider(l),
		otelproto.WithConnAttributes(otelproto.PeerPort), otelproto.WithSeriesLimit(1))

	first := send(t.Context(), h, "/s/m", "a")
	second := send(t.Context(), h, "/s/m", "a") // shares the series
	diff(t, "bound", len(l.bound), 2)

	first()
	diff(t, "finished while one is open", len(l.finished), 0)
	second()
	diff(t, "finished", l.finished, l.bound)
	diff(t, "records with attributes", l.unboundRecords, 0)
	diff(t, "sum", l.sumOfBound, 2*(10+15))

	send(t.Context(), h, "/s/other", "a")() // the limit has room again
	diff(t, "bound in the end", len(l.bound), 4)
	diff(t, "finished in the end", l.finished, l.bound)
}

func TestSeriesWithoutConnectionAttributesAreNeverFinished(t *testing.T) {
	l := newLifecycle()
	h := otelproto.NewClientHandler(otelproto.WithMeterProvider(l))

	send(t.Context(), h, "/s/m", "a")()
	diff(t, "bound", len(l.bound), 2)
	diff(t, "finished", len(l.finished), 0)
}
