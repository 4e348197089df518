package main

import (
	"bytes"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheClientPrintsWhatWentOverTheWire(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	defer server.Stop()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()

	var out bytes.Buffer
	if err := check(t.Context(), listener.Addr().String(), &out); err != nil {
		t.Fatal(err)
	}
	want := `transmit  grpc.health.v1.HealthCheckRequest   3 messages, 0 bytes, 15 on the wire
receive   grpc.health.v1.HealthCheckResponse  3 messages, 6 bytes, 21 on the wire
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestAServerThatIsNotThereIsAnError(t *testing.T) {
	if err := check(t.Context(), "127.0.0.1:1", io.Discard); err == nil {
		t.Error("no error")
	}
}
