package main

import (
	"context"
	"testing"

	"google.golang.org/api/option"
	gtransport "google.golang.org/api/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelproto/otelproto-go/channel"
	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
)

func plaintext() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

// A connector gives what stubs call through.
type connector struct {
	name    string
	connect func(b *testing.B, target string) grpc.ClientConnInterface
}

func connectors() []connector {
	return []connector{
		{"ours", func(b *testing.B, target string) grpc.ClientConnInterface { return newConn(b, target) }},
		{"ours-upto4", func(b *testing.B, target string) grpc.ClientConnInterface {
			return newConn(b, target, channel.WithConnections(1, 4))
		}},
		{"clientconn", newClientConn},
		{"google-pool4", newGooglePool},
		{"per-call", func(_ *testing.B, target string) grpc.ClientConnInterface { return perCall{target} }},
	}
}

func newConn(b *testing.B, target string, opts ...channel.Option) grpc.ClientConnInterface {
	b.Helper()
	c, err := channel.New(target, append(opts, channel.WithDialOptions(plaintext()))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

func newClientConn(b *testing.B, target string) grpc.ClientConnInterface {
	b.Helper()
	cc, err := grpc.NewClient(target, plaintext())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cc.Close() })
	return cc
}

// newGooglePool is the pool of Google's API clients: a fixed number of connections, taken in turn.
func newGooglePool(b *testing.B, target string) grpc.ClientConnInterface {
	b.Helper()
	pool, err := gtransport.DialPool(b.Context(), option.WithEndpoint(target), option.WithGRPCConnectionPool(4),
		option.WithoutAuthentication(), option.WithTelemetryDisabled(), option.WithGRPCDialOption(plaintext()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = pool.Close() })
	return pool
}

// perCall is a connection for each call.
type perCall struct{ target string }

func (p perCall) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	cc, err := grpc.NewClient(p.target, plaintext())
	if err != nil {
		return err
	}
	defer func() { _ = cc.Close() }()
	return cc.Invoke(ctx, method, args, reply, opts...)
}

// NewStream closes the connection when the stream's context ends.
func (p perCall) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	cc, err := grpc.NewClient(p.target, plaintext())
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = cc.Close() })
	return cc.NewStream(ctx, desc, method, opts...)
}

func eachConnector(b *testing.B, f func(b *testing.B, client testproto.TestClient)) {
	b.Helper()
	for _, c := range connectors() {
		b.Run("by="+c.name, func(b *testing.B) {
			server := grpctest.New(b, grpctest.Options{})
			f(b, testproto.NewTestClient(c.connect(b, "passthrough:///"+server.Addr)))
		})
	}
}

// A unary call over loopback, one at a time: bound by the kernel and the scheduler.
func BenchmarkChannelUnary(b *testing.B) {
	eachConnector(b, func(b *testing.B, client testproto.TestClient) {
		ctx, m := b.Context(), command()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := client.Unary(ctx, m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The same, 32 at a time for each processor.
func BenchmarkChannelParallel(b *testing.B) {
	eachConnector(b, func(b *testing.B, client testproto.TestClient) {
		b.SetParallelism(32)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for m := command(); pb.Next(); {
				if _, err := client.Unary(context.Background(), m); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

// Opening a stream, one message each way, and its end.
func BenchmarkChannelStream(b *testing.B) {
	eachConnector(b, func(b *testing.B, client testproto.TestClient) {
		m := command()
		b.ReportAllocs()
		for b.Loop() {
			if err := exchange(b.Context(), client, m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func exchange(ctx context.Context, client testproto.TestClient, m *testproto.Command) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := client.Bidi(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(m); err != nil {
		return err
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	return s.CloseSend()
}
