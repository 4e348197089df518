package otelproto_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

const retryConfig = `{"methodConfig": [{"name": [{"service": "otelproto.test.Test"}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// flaky fails the first calls.
type flaky struct {
	grpctest.Echo

	failures atomic.Int32
}

func (f *flaky) Unary(ctx context.Context, c *testproto.Command) (*testproto.Reply, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, status.Error(codes.Unavailable, "not yet")
	}

	return f.Echo.Unary(ctx, c)
}

func (f *flaky) ClientStream(s grpc.ClientStreamingServer[testproto.Command, testproto.Reply]) error {
	if f.failures.Add(-1) >= 0 {
		for range 3 { // the whole input, so that a retry replays all of it
			if _, err := s.Recv(); err != nil {
				return err
			}
		}

		return status.Error(codes.Unavailable, "not yet")
	}

	return f.Echo.ClientStream(s)
}

func TestPolicyRetriesAreCountedAndMarked(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, c testproto.TestClient){
		"unary": func(t *testing.T, c testproto.TestClient) {
			if _, err := c.Unary(t.Context(), command()); err != nil {
				t.Fatal(err)
			}
		},
		"stream": func(t *testing.T, c testproto.TestClient) {
			s, err := c.ClientStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			for range 3 {
				if err := s.Send(command()); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}

			if _, err := s.CloseAndRecv(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(failures int32, dial func(...otelproto.Option) []grpc.DialOption) (client, server map[stats.Key]counts) {
				reg := stats.NewRegistry()
				service := &flaky{}
				service.failures.Store(failures)

				p := grpctest.New(t, grpctest.Options{
					Service: service,
					Server:  []grpc.ServerOption{grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(reg)))},
					Dial:    append(dial(otelproto.WithRegistry(reg)), grpc.WithDefaultServiceConfig(retryConfig)),
				})
				call(t, p.Client)
				p.Close()

				total := reg.Snapshot().Total

				return rowsOf(total, true), rowsOf(total, false)
			}
			sent := func(rows map[stats.Key]counts, d stats.Direction, retry bool) counts {
				for k, c := range rows {
					if k.Direction == d && k.Type == "otelproto.test.Command" && k.Retry == retry {
						return c
					}
				}

				return counts{}
			}

			client, server := run(0, otelproto.DialOptions)
			one := sent(client, stats.Transmit, false)
			diff(t, "one attempt, marked", sent(client, stats.Transmit, true), counts{})
			diff(t, "one attempt, server", sent(server, stats.Receive, false), one)

			twice := counts{2 * one.Messages, 2 * one.Wire, 2 * one.Size}

			client, server = run(2, otelproto.DialOptions)
			diff(t, "first attempt, client", sent(client, stats.Transmit, false), one)
			diff(t, "first attempt, server", sent(server, stats.Receive, false), one)
			diff(t, "two retries, client", sent(client, stats.Transmit, true), twice)
			diff(t, "two retries, server", sent(server, stats.Receive, true), twice)

			// With the handler alone nothing tells the client's retries apart, but they count.
			client, server = run(2, func(opts ...otelproto.Option) []grpc.DialOption {
				return []grpc.DialOption{grpc.WithStatsHandler(otelproto.NewClientHandler(opts...))}
			})
			diff(t, "handler alone, client", sent(client, stats.Transmit, false), counts{3 * one.Messages, 3 * one.Wire, 3 * one.Size})
			diff(t, "handler alone, server", sent(server, stats.Receive, true), twice)
		})
	}
}

func command() *testproto.Command {
	return &testproto.Command{Id: "id", Kind: &testproto.Command_Put{Put: &testproto.Put{Key: "key", Value: make([]byte, 1000)}}}
}

// A GOAWAY that refuses streams makes grpc-go repeat them by itself, with the handler alone too.
func TestTransparentRetriesAreMarked(t *testing.T) {
	reg := stats.NewRegistry()
	begins := &beginCounter{}

	// The first connection refuses the first stream after it has been written, as a server does that is shutting down.
	lis := newRefuser(t)
	p := grpctest.New(t, grpctest.Options{
		Listener: lis,
		Dial: []grpc.DialOption{
			grpc.WithStatsHandler(otelproto.NewClientHandler(otelproto.WithRegistry(reg))), grpc.WithStatsHandler(begins),
		},
	})

	s, err := p.Client.Bidi(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := s.Send(command()); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}

	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}

	p.Close()

	if begins.transparent.Load() == 0 {
		t.Fatal("grpc-go made no transparent retry")
	}

	var retried, received uint64

	for _, r := range reg.Snapshot().Total {
		if r.Key.Retry && r.Key.Direction == stats.Transmit {
			retried += r.Messages
		}

		if r.Key.Retry && r.Key.Direction == stats.Receive {
			received += r.Messages
		}
	}

	diff(t, "messages of the retry", retried, uint64(2))
	diff(t, "answers to it", received, uint64(2))
}

type beginCounter struct {
	noHandler

	transparent atomic.Int32
}

func (c *beginCounter) HandleRPC(_ context.Context, rs grpcstats.RPCStats) {
	if b, ok := rs.(*grpcstats.Begin); ok && b.IsTransparentRetryAttempt {
		c.transparent.Add(1)
	}
}

// refuser is a listener whose first connection answers the first stream with RST_STREAM(REFUSED_STREAM).
type refuser struct {
	net.Listener

	accepted atomic.Int32
}

func newRefuser(t *testing.T) *refuser {
	t.Helper()

	var lc net.ListenConfig

	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	return &refuser{Listener: lis}
}

func (r *refuser) Accept() (net.Conn, error) {
	for {
		c, err := r.Listener.Accept()
		if err != nil || r.accepted.Add(1) > 1 {
			return c, err
		}

		go refuse(c)
	}
}
