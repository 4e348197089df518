package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheServerExportsWhatItMeasured(t *testing.T) {
	// A collector, in whose requests the names stand in clear.
	var mu sync.Mutex
	var exported bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&exported, r.Body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener) }()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{
		"otelproto.server.message.wire_size", "otelproto.server.message.size",
		"grpc.health.v1.HealthCheckRequest", "grpc.health.v1.HealthCheckResponse",
		"rpc.server.call.duration", // otelgrpc's, from the handler beside
	} {
		if !bytes.Contains(exported.Bytes(), []byte(want)) {
			t.Errorf("%s wasn't exported", want)
		}
	}
}

func TestAnExporterThatThereIsntIsAnError(t *testing.T) {
	t.Setenv("OTEL_METRICS_EXPORTER", "pigeon")
	if err := serve(t.Context(), nil); err == nil {
		t.Error("no error")
	}
}
