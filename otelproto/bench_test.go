package otelproto_test

import (
	"context"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// One payload event of a running RPC, handed to the handler as grpc-go does. otelgrpc records no size: it is the floor.
func BenchmarkPayload(b *testing.B) {
	put := &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: make([]byte, 80)}}}
	get := &testproto.Command{Kind: &testproto.Command_Get{Get: &testproto.Get{Key: "k"}}}
	plain := &testproto.Plain{Data: make([]byte, 90)}
	tagged := &testproto.Tagged{Name: "name"}

	handlers := []struct {
		name string
		new  func() grpcstats.Handler
	}{
		{"otelgrpc", func() grpcstats.Handler {
			return otelgrpc.NewServerHandler(otelgrpc.WithMeterProvider(noop.NewMeterProvider()))
		}},
		{"registry", func() grpcstats.Handler {
			return otelproto.NewServerHandler(otelproto.WithRegistry(stats.NewRegistry()))
		}},
		{"registry_declared", func() grpcstats.Handler {
			return otelproto.NewServerHandler(
				otelproto.WithRegistry(stats.NewRegistry()), otelproto.WithVariantField("otelproto.test.Tagged", "name"))
		}},
		{"instruments", func() grpcstats.Handler {
			mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))

			return otelproto.NewServerHandler(otelproto.WithMeterProvider(mp))
		}},
	}
	payloads := []struct {
		name string
		of   func(i int) any
	}{
		{"plain", func(int) any { return plain }},
		{"envelope", func(int) any { return put }},
		{"alternating", func(i int) any {
			if i%2 == 0 {
				return put
			}

			return get
		}},
		{"tagged", func(int) any { return tagged }},
	}

	for _, h := range handlers {
		for _, p := range payloads {
			b.Run(h.name+"/"+p.name, func(b *testing.B) {
				handler := h.new()
				ctx := begin(handler)
				first := grpcstats.InPayload{Payload: p.of(0), Length: 100, CompressedLength: 100, WireLength: 105}
				second := first
				second.Payload = p.of(1)
				events := [2]*grpcstats.InPayload{&first, &second}

				b.ReportAllocs()

				for i := 0; b.Loop(); i++ {
					handler.HandleRPC(ctx, events[i&1])
				}
			})
		}
	}
}

// The ratios that matter, each from pairs of short runs that take turns, so that a noisy machine slows both alike.
func BenchmarkPayloadRatio(b *testing.B) {
	put := &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: make([]byte, 80)}}}
	get := &testproto.Command{Kind: &testproto.Command_Get{Get: &testproto.Get{Key: "k"}}}
	plain := &testproto.Plain{Data: make([]byte, 90)}
	sdk := func() otelproto.Option {
		return otelproto.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	}
	registry := func() otelproto.Option { return otelproto.WithRegistry(stats.NewRegistry()) }
	events := func(h grpcstats.Handler, payloads ...any) func(n int) {
		ctx := begin(h)

		evs := make([]*grpcstats.InPayload, len(payloads))
		for i, p := range payloads {
			evs[i] = &grpcstats.InPayload{Payload: p, Length: 100, CompressedLength: 100, WireLength: 105}
		}

		return func(n int) {
			for i := range n {
				h.HandleRPC(ctx, evs[i%len(evs)])
			}
		}
	}
	peer := func() func(n int) {
		return events(otelgrpc.NewServerHandler(otelgrpc.WithMeterProvider(noop.NewMeterProvider())), plain)
	}

	b.Run("registry_plain/otelgrpc", func(b *testing.B) { paired(b, events(otelproto.NewServerHandler(registry()), plain), peer()) })
	b.Run("registry_envelope/otelgrpc", func(b *testing.B) { paired(b, events(otelproto.NewServerHandler(registry()), put), peer()) })
	b.Run("registry_alternating/otelgrpc", func(b *testing.B) {
		paired(b, events(otelproto.NewServerHandler(registry()), put, get), peer())
	})
	declared := otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind")
	eight := bundle(put, get, put, get, put, get, put, get)
	b.Run("registry_repeated_1/otelgrpc", func(b *testing.B) {
		paired(b, events(otelproto.NewServerHandler(registry(), declared), bundle(get)), peer())
	})
	b.Run("registry_repeated_8/otelgrpc", func(b *testing.B) {
		paired(b, events(otelproto.NewServerHandler(registry(), declared), eight), peer())
	})
	b.Run("registry_repeated_8/decoding", func(b *testing.B) {
		paired(b, events(otelproto.NewServerHandler(registry(), declared), eight), decoding(b, eight))
	})
	b.Run("instruments_plain/two_records", func(b *testing.B) {
		paired(b, events(otelproto.NewServerHandler(sdk()), plain), twoRecords())
	})
	b.Run("instruments_envelope/two_records", func(b *testing.B) {
		paired(b, events(otelproto.NewServerHandler(sdk()), put), twoRecords())
	})
}

// Reading a oneof's case from the generated struct, against protobuf's reflection.
func BenchmarkCaseRatio(b *testing.B) {
	put := &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{}}}
	kind := put.ProtoReflect().Descriptor().Oneofs().ByName("kind")
	field, _ := reflect.TypeFor[testproto.Command]().FieldByName("Kind")
	cases := 0

	paired(b, func(n int) {
		for range n {
			if otelproto.IsCaseSet(put, field.Offset) {
				cases++
			}
		}
	}, func(n int) {
		for range n {
			if put.ProtoReflect().WhichOneof(kind) != nil {
				cases++
			}
		}
	})
}

// decoding is what the receiver of a message has to do anyway.
func decoding(b *testing.B, m proto.Message) func(n int) {
	b.Helper()

	data, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}

	return func(n int) {
		for range n {
			if err := proto.Unmarshal(data, m.ProtoReflect().New().Interface()); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// twoRecords is what the SDK takes: two records with a set of attributes made before.
func twoRecords() func(n int) {
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("bench")
	wire, _ := meter.Int64Histogram("wire", metric.WithExplicitBucketBoundaries(otelproto.DefaultBuckets()...))
	size, _ := meter.Int64Histogram("size", metric.WithExplicitBucketBoundaries(otelproto.DefaultBuckets()...))
	opts := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(
		attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", "otelproto.test.Test/Bidi"),
		attribute.String("network.io.direction", "receive"), attribute.String("otelproto.message.type", "otelproto.test.Command"),
		attribute.String("otelproto.message.variant", "put"),
	))}

	return func(n int) {
		for range n {
			wire.Record(context.Background(), 105, opts...)
			size.Record(context.Background(), 100, opts...)
		}
	}
}

// paired reports the median time of ours and theirs and the ratio of the medians.
func paired(b *testing.B, ours, theirs func(n int)) { pairedBy(b, 1_000, ours, theirs) }

// pairedBy does so with a number of operations at a time.
func pairedBy(b *testing.B, chunk int, ours, theirs func(n int)) {
	b.Helper()

	var a, t []float64

	measure := func(f func(n int)) float64 {
		start := time.Now()
		f(chunk)

		return float64(time.Since(start).Nanoseconds()) / float64(chunk)
	}

	for b.Loop() {
		a = append(a, measure(ours))
		t = append(t, measure(theirs))
	}

	slices.Sort(a)
	slices.Sort(t)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(a[len(a)/2], "ours-ns")
	b.ReportMetric(t[len(t)/2], "theirs-ns")
	b.ReportMetric(a[len(a)/2]/t[len(t)/2], "ratio")
}

// begin brings a server's handler to the middle of an RPC and gives the context that grpc-go then hands to it.
func begin(h grpcstats.Handler) context.Context {
	local, remote := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2}
	ctx := h.TagConn(context.Background(), &grpcstats.ConnTagInfo{LocalAddr: local, RemoteAddr: remote})
	h.HandleConn(ctx, &grpcstats.ConnBegin{})

	ctx = h.TagRPC(ctx, &grpcstats.RPCTagInfo{FullMethodName: testproto.Test_Bidi_FullMethodName})
	h.HandleRPC(ctx, &grpcstats.InHeader{FullMethod: testproto.Test_Bidi_FullMethodName, LocalAddr: local, RemoteAddr: remote})
	h.HandleRPC(ctx, &grpcstats.Begin{IsClientStream: true, IsServerStream: true})

	return ctx
}

// A whole RPC's events, to see the allocations: those of the events themselves are the floor.
func BenchmarkRPC(b *testing.B) {
	for name, h := range map[string]grpcstats.Handler{
		"none":     noHandler{},
		"registry": otelproto.NewServerHandler(otelproto.WithRegistry(stats.NewRegistry())),
	} {
		b.Run(name, func(b *testing.B) {
			local, remote := &net.TCPAddr{Port: 1}, &net.TCPAddr{Port: 2}
			conn := h.TagConn(context.Background(), &grpcstats.ConnTagInfo{LocalAddr: local, RemoteAddr: remote})
			in := &grpcstats.InPayload{Payload: &testproto.Command{}, Length: 100, WireLength: 105}
			out := &grpcstats.OutPayload{Payload: &testproto.Reply{}, Length: 100, WireLength: 105}
			header, start, end := &grpcstats.InHeader{}, &grpcstats.Begin{}, &grpcstats.End{}
			tag := &grpcstats.RPCTagInfo{FullMethodName: testproto.Test_Unary_FullMethodName}

			b.ReportAllocs()

			for b.Loop() {
				ctx := h.TagRPC(conn, tag)
				h.HandleRPC(ctx, header)
				h.HandleRPC(ctx, start)
				h.HandleRPC(ctx, in)
				h.HandleRPC(ctx, out)
				h.HandleRPC(ctx, end)
			}
		})
	}
}

type noHandler struct{}

func (noHandler) TagRPC(ctx context.Context, _ *grpcstats.RPCTagInfo) context.Context   { return ctx }
func (noHandler) HandleRPC(context.Context, grpcstats.RPCStats)                         {}
func (noHandler) TagConn(ctx context.Context, _ *grpcstats.ConnTagInfo) context.Context { return ctx }
func (noHandler) HandleConn(context.Context, grpcstats.ConnStats)                       {}

// A saturated one-way stream of 100-byte messages on loopback, with a registry on both ends, against one with a handler that
// does nothing.
func BenchmarkStreamRatio(b *testing.B) {
	stream := func(client, server grpcstats.Handler) func(n int) {
		p := grpctest.New(b, grpctest.Options{
			Server: []grpc.ServerOption{grpc.StatsHandler(server)}, Dial: []grpc.DialOption{grpc.WithStatsHandler(client)},
		})

		s, err := p.Client.ClientStream(context.Background()) // the benchmark's own context ends before the cleanup
		if err != nil {
			b.Fatal(err)
		}

		b.Cleanup(func() {
			if _, err := s.CloseAndRecv(); err != nil {
				b.Error(err)
			}

			p.Close()
		})

		m := &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: make([]byte, 94)}}}

		return func(n int) {
			for range n {
				if err := s.Send(m); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	r := otelproto.WithRegistry(stats.NewRegistry())

	// Many at a time, since what one has in flight is still being received while the other sends.
	pairedBy(b, 50_000, stream(otelproto.NewClientHandler(r), otelproto.NewServerHandler(r)), stream(noHandler{}, noHandler{}))
}
