package channel

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	hpb "google.golang.org/grpc/health/grpc_health_v1"
)

func insecureCreds() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

func benchServer(b *testing.B) string {
	b.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer()
	hpb.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(lis) }()
	b.Cleanup(s.Stop)
	return "passthrough:///" + lis.Addr().String()
}

func BenchmarkQuick(b *testing.B) {
	target := benchServer(b)
	ctx := context.Background()
	cc, err := grpc.NewClient(target, insecureCreds())
	if err != nil {
		b.Fatal(err)
	}
	defer cc.Close()
	cache, err := NewCache(WithDialOptions(insecureCreds()))
	if err != nil {
		b.Fatal(err)
	}
	defer cache.Close()
	run := func(name string, c hpb.HealthClient) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Check(ctx, &hpb.HealthCheckRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("bare", hpb.NewHealthClient(cc))
	run("handle", hpb.NewHealthClient(cache.Conn(target)))
	b.Run("hit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			cache.Conn(target)
		}
	})
}
