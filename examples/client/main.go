// Command client is the smallest complete gRPC client that measures its messages: it asks the health service on 127.0.0.1:50051,
// or the target given, how it is, and prints what went over the wire:
//
//	go run -C examples ./client
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

func main() {
	target := "127.0.0.1:50051"
	if len(os.Args) > 1 {
		target = os.Args[1]
	}
	if err := check(context.Background(), target, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// check asks three times and prints how many bytes that took.
func check(ctx context.Context, target string, out io.Writer) error {
	registry := stats.NewRegistry()
	opts := append(otelproto.DialOptions(otelproto.WithRegistry(registry)), // how large messages are
		grpc.WithStatsHandler(otelgrpc.NewClientHandler()), // how long calls take, and traces
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return err
	}
	defer conn.Close()

	client := healthpb.NewHealthClient(conn)
	for range 3 {
		if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			return err
		}
	}
	for _, row := range registry.Snapshot().Total {
		fmt.Fprintf(out, "%-8v  %-34s  %d messages, %d bytes, %d on the wire\n",
			row.Key.Direction, row.Key.Type, row.Messages, row.Size.Sum, row.Wire.Sum)
	}
	return nil
}
