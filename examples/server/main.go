// Command server is the smallest complete gRPC server that measures its messages: gRPC's health service, on 127.0.0.1:50051 or the
// address given. Sizes go where the environment says, by OTLP to a collector on this host unless it says otherwise:
//
//	OTEL_METRICS_EXPORTER=console go run -C examples ./server
package main

import (
	"context"
	"errors"
	"log"
	"net"
	"os"
	"os/signal"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/otelproto/otelproto-go/otelproto"
)

func main() {
	address := "127.0.0.1:50051"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err = serve(ctx, listener)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// serve answers until ctx ends, and exports what it has measured.
func serve(ctx context.Context, listener net.Listener) error {
	reader, err := autoexport.NewMetricReader(ctx)
	if err != nil {
		return err
	}
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	otel.SetMeterProvider(provider)

	server := grpc.NewServer(
		grpc.StatsHandler(otelgrpc.NewServerHandler()),  // how long calls take, and traces
		grpc.StatsHandler(otelproto.NewServerHandler()), // how large messages are
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	context.AfterFunc(ctx, server.GracefulStop)
	return errors.Join(server.Serve(listener), provider.Shutdown(context.WithoutCancel(ctx)))
}
