package main

import (
	"context"
	"net"
	"testing"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/grpc/stats/opentelemetry"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

func provider() *sdkmetric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

// nothing is a handler that does nothing, which grpc-go makes the events for all the same.
type nothing struct{}

func (nothing) TagRPC(ctx context.Context, _ *grpcstats.RPCTagInfo) context.Context   { return ctx }
func (nothing) HandleRPC(context.Context, grpcstats.RPCStats)                         {}
func (nothing) TagConn(ctx context.Context, _ *grpcstats.ConnTagInfo) context.Context { return ctx }
func (nothing) HandleConn(context.Context, grpcstats.ConnStats)                       {}

// sizes is the handler that one would write at first: two records for each message, with the attributes made there and then.
type sizes struct {
	nothing

	wire, size metric.Int64Histogram
}

func newSizes() grpcstats.Handler {
	meter := provider().Meter("bench")
	wire, _ := meter.Int64Histogram("wire", metric.WithExplicitBucketBoundaries(otelproto.DefaultBuckets()...))
	size, _ := meter.Int64Histogram("size", metric.WithExplicitBucketBoundaries(otelproto.DefaultBuckets()...))
	return sizes{wire: wire, size: size}
}

type method struct{}

func (sizes) TagRPC(ctx context.Context, info *grpcstats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, method{}, info.FullMethodName)
}

func (h sizes) HandleRPC(ctx context.Context, e grpcstats.RPCStats) {
	switch e := e.(type) {
	case *grpcstats.InPayload:
		h.record(ctx, "receive", e.Payload, e.WireLength, e.Length)
	case *grpcstats.OutPayload:
		h.record(ctx, "transmit", e.Payload, e.WireLength, e.Length)
	}
}

func (h sizes) record(ctx context.Context, direction string, payload any, wire, size int) {
	name, _ := ctx.Value(method{}).(string)
	m, ok := payload.(proto.Message)
	if !ok {
		return
	}
	attrs := metric.WithAttributes(
		attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", name),
		attribute.String("network.io.direction", direction), attribute.String("otelproto.message.type", string(proto.MessageName(m))),
	)
	h.wire.Record(ctx, int64(wire), attrs)
	h.size.Record(ctx, int64(size), attrs)
}

// handlers are the peers that are a stats handler, so that its events can be handed to it alone.
func handlers() []struct {
	name string
	new  func() grpcstats.Handler
} {
	return []struct {
		name string
		new  func() grpcstats.Handler
	}{
		{"ours", func() grpcstats.Handler {
			return otelproto.NewServerHandler(otelproto.WithRegistry(stats.NewRegistry()))
		}},
		{"ours-instruments", func() grpcstats.Handler { return otelproto.NewServerHandler(otelproto.WithMeterProvider(provider())) }},
		{"nothing", func() grpcstats.Handler { return nothing{} }},
		{"otelgrpc", func() grpcstats.Handler {
			return otelgrpc.NewServerHandler(
				otelgrpc.WithMeterProvider(provider()), otelgrpc.WithTracerProvider(tracenoop.NewTracerProvider()))
		}},
		{"two-records", newSizes},
	}
}

// One payload event of a running RPC, handed to the handler as grpc-go does. Only ours and two-records record a size then.
func BenchmarkOtelprotoMessage(b *testing.B) {
	put := &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: make([]byte, 80)}}}
	get := &testproto.Command{Kind: &testproto.Command_Get{Get: &testproto.Get{Key: "k"}}}
	plain := &testproto.Plain{Data: make([]byte, 90)}
	for _, p := range []struct {
		name     string
		messages [2]proto.Message
	}{
		{"plain", [2]proto.Message{plain, plain}},
		{"envelope", [2]proto.Message{put, put}},
		{"alternating", [2]proto.Message{put, get}},
	} {
		b.Run("payload="+p.name, func(b *testing.B) {
			for _, h := range handlers() {
				b.Run("by="+h.name, func(b *testing.B) {
					handler := h.new()
					local, remote := &net.TCPAddr{Port: 1}, &net.TCPAddr{Port: 2}
					ctx := handler.TagConn(context.Background(), &grpcstats.ConnTagInfo{LocalAddr: local, RemoteAddr: remote})
					ctx = handler.TagRPC(ctx, &grpcstats.RPCTagInfo{FullMethodName: testproto.Test_Bidi_FullMethodName})
					handler.HandleRPC(ctx, &grpcstats.InHeader{FullMethod: testproto.Test_Bidi_FullMethodName})
					handler.HandleRPC(ctx, &grpcstats.Begin{IsClientStream: true, IsServerStream: true})
					var events [2]*grpcstats.InPayload
					for i, m := range p.messages {
						events[i] = &grpcstats.InPayload{Payload: m, Length: 100, CompressedLength: 100, WireLength: 105}
					}
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						handler.HandleRPC(ctx, events[i&1])
					}
				})
			}
		})
	}
}

// The events of a whole unary RPC on a server.
func BenchmarkOtelprotoEvents(b *testing.B) {
	for _, h := range handlers() {
		b.Run("by="+h.name, func(b *testing.B) {
			handler := h.new()
			local, remote := &net.TCPAddr{Port: 1}, &net.TCPAddr{Port: 2}
			conn := handler.TagConn(context.Background(), &grpcstats.ConnTagInfo{LocalAddr: local, RemoteAddr: remote})
			tag := &grpcstats.RPCTagInfo{FullMethodName: testproto.Test_Unary_FullMethodName}
			events := []grpcstats.RPCStats{
				&grpcstats.InHeader{FullMethod: testproto.Test_Unary_FullMethodName, LocalAddr: local, RemoteAddr: remote},
				&grpcstats.Begin{},
				&grpcstats.InPayload{Payload: &testproto.Command{}, Length: 100, WireLength: 105},
				&grpcstats.OutPayload{Payload: &testproto.Reply{}, Length: 100, WireLength: 105},
				&grpcstats.End{},
			}
			b.ReportAllocs()
			for b.Loop() {
				ctx := handler.TagRPC(conn, tag)
				for _, e := range events {
					handler.HandleRPC(ctx, e)
				}
			}
		})
	}
}

// A plugin is what is given to both ends of a connection.
type plugin struct {
	name   string
	dial   []grpc.DialOption
	server []grpc.ServerOption
}

func handlerPlugin(name string, client, server grpcstats.Handler) plugin {
	return plugin{name, []grpc.DialOption{grpc.WithStatsHandler(client)}, []grpc.ServerOption{grpc.StatsHandler(server)}}
}

// plugins are set up as their documentation begins with, with metrics into an SDK and without traces.
func plugins() []plugin {
	registry, ours := otelproto.WithRegistry(stats.NewRegistry()), otelproto.WithMeterProvider(provider())
	theirs := []otelgrpc.Option{otelgrpc.WithMeterProvider(provider()), otelgrpc.WithTracerProvider(tracenoop.NewTracerProvider())}
	core := opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{MeterProvider: provider()}}
	prom, promServer := grpcprom.NewClientMetrics(), grpcprom.NewServerMetrics()
	return []plugin{
		{"ours", otelproto.DialOptions(registry), []grpc.ServerOption{grpc.StatsHandler(otelproto.NewServerHandler(registry))}},
		{"ours-instruments", otelproto.DialOptions(ours), []grpc.ServerOption{grpc.StatsHandler(otelproto.NewServerHandler(ours))}},
		{name: "none"},
		handlerPlugin("nothing", nothing{}, nothing{}),
		handlerPlugin("otelgrpc", otelgrpc.NewClientHandler(theirs...), otelgrpc.NewServerHandler(theirs...)),
		{"grpc-otel", []grpc.DialOption{opentelemetry.DialOption(core)}, []grpc.ServerOption{opentelemetry.ServerOption(core)}},
		{
			"prometheus",
			[]grpc.DialOption{
				grpc.WithUnaryInterceptor(prom.UnaryClientInterceptor()), grpc.WithStreamInterceptor(prom.StreamClientInterceptor()),
			},
			[]grpc.ServerOption{
				grpc.UnaryInterceptor(promServer.UnaryServerInterceptor()), grpc.StreamInterceptor(promServer.StreamServerInterceptor()),
			},
		},
	}
}

// pair connects both ends in memory: no kernel, so that a plugin's share is as large as it gets.
func (p plugin) pair(b *testing.B) *grpctest.Pair {
	b.Helper()
	lis := bufconn.Listen(1 << 20)
	dial := append([]grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
	}, p.dial...)
	return grpctest.New(b, grpctest.Options{Server: p.server, Dial: dial, Listener: lis, Target: "passthrough:///bufconn"})
}

// A unary call of 100 bytes each way.
func BenchmarkOtelprotoUnary(b *testing.B) {
	for _, p := range plugins() {
		b.Run("by="+p.name, func(b *testing.B) {
			pair := p.pair(b)
			ctx, m := b.Context(), command()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := pair.Client.Unary(ctx, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// One message of 100 bytes on a stream that is never waited for: the sender is as fast as flow control lets it be.
func BenchmarkOtelprotoStream(b *testing.B) {
	for _, p := range plugins() {
		b.Run("by="+p.name, func(b *testing.B) {
			pair := p.pair(b)
			s, err := pair.Client.ClientStream(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			m := command()
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Send(m); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := s.CloseAndRecv(); err != nil {
				b.Error(err)
			}
		})
	}
}

func command() *testproto.Command {
	return &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: make([]byte, 94)}}}
}
