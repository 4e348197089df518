package channel_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	hpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/channel"
)

func Example() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer()
	hpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(ln) }()
	defer server.Stop()

	cache, err := channel.NewCache(
		channel.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials())),
		channel.WithMaxTargets(1000),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cache.Close() }()

	// Cheap enough to ask for every time; the connection is the same.
	client := hpb.NewHealthClient(cache.Conn("passthrough:///" + ln.Addr().String()))
	res, err := client.Check(context.Background(), &hpb.HealthCheckRequest{})
	fmt.Println(res.GetStatus(), err)
	// Output: SERVING <nil>
}

// A load balancer that speaks gRPC answers "no healthy upstream" as the
// application would. If it says so by name, only that is held against the
// connection.
func ExampleWithClassifier() {
	c, err := channel.New("dns:///greeter.example.com:443",
		channel.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials())),
		channel.WithClassifier(func(f channel.Failure) channel.Class {
			if status.Code(f.Err) == codes.Unavailable && len(f.Trailer.Get("server")) > 0 && f.Trailer.Get("server")[0] == "envoy" {
				return channel.Suspect
			}
			return channel.Classify(f)
		}),
		channel.WithUnavailableThreshold(5),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	fmt.Println(c.State().Connectivity)
	// Output: IDLE
}

func ExampleNew() {
	c, err := channel.New("dns:///greeter.example.com:443",
		channel.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials())),
		channel.WithBackoff(channel.Backoff{Base: 500 * time.Millisecond, Max: 5 * time.Second}),
		channel.WithRetry(channel.RetryPolicy{Idempotent: []string{"greeter.Greeter/Look"}}),
		channel.WithConnections(1, 4),
		channel.WithLogger(slog.Default()),
	)
	fmt.Println(err)
	_ = c.Close()
	// Output: <nil>
}
