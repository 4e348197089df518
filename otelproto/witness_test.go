package otelproto_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/stats"
)

// witness is a stats handler that writes down grpc's own numbers in the plainest way, for comparison.
type witness struct {
	mu   sync.Mutex
	rows map[stats.Key]counts
}

// counts is what both a witness and a snapshot know of a key.
type counts struct {
	Messages, Wire, Size uint64
}

type witnessKey struct{}

func (w *witness) TagRPC(ctx context.Context, info *grpcstats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, witnessKey{}, strings.TrimPrefix(info.FullMethodName, "/"))
}

func (w *witness) TagConn(ctx context.Context, _ *grpcstats.ConnTagInfo) context.Context { return ctx }
func (w *witness) HandleConn(context.Context, grpcstats.ConnStats)                       {}

func (w *witness) HandleRPC(ctx context.Context, rs grpcstats.RPCStats) {
	switch rs := rs.(type) {
	case *grpcstats.InPayload:
		w.add(ctx, stats.Receive, rs.Payload, rs.WireLength, rs.Length)
	case *grpcstats.OutPayload:
		w.add(ctx, stats.Transmit, rs.Payload, rs.WireLength, rs.Length)
	}
}

func (w *witness) add(ctx context.Context, d stats.Direction, payload any, wire, size int) {
	m := payload.(proto.Message).ProtoReflect()
	k := stats.Key{Method: ctx.Value(witnessKey{}).(string), Direction: d, Type: string(m.Descriptor().FullName())}

	if k.Type == "otelproto.test.Command" || k.Type == "otelproto.test.Reply" || k.Type == "otelproto.test.Batch" {
		if f := m.WhichOneof(m.Descriptor().Oneofs().Get(0)); f != nil {
			k.Variant = string(f.Name())
		}
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if w.rows == nil {
		w.rows = make(map[stats.Key]counts)
	}

	c := w.rows[k]
	c.Messages++
	c.Wire += uint64(wire)
	c.Size += uint64(size)
	w.rows[k] = c
}

// rowsOf gives what the rows of one side counted, by key.
func rowsOf(rows []stats.Row, client bool) map[stats.Key]counts {
	m := make(map[stats.Key]counts)

	for _, r := range rows {
		if r.Client == client {
			m[r.Key] = counts{r.Messages, r.Wire.Sum, r.Size.Sum}
		}
	}

	return m
}

// mirrored turns what one side sent into what the other received.
func mirrored(rows map[stats.Key]counts) map[stats.Key]counts {
	m := make(map[stats.Key]counts)

	for k, c := range rows {
		k.Direction = stats.Receive - k.Direction
		m[k] = c
	}

	return m
}

func diff(t *testing.T, what string, got, want any) {
	t.Helper()

	if d := cmp.Diff(want, got, cmpopts.EquateComparable(attribute.KeyValue{})); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// workload makes calls of every shape, with every case of the envelopes, none, and messages from 0 bytes to 1 MiB.
func workload(t *testing.T, client testproto.TestClient, opts ...grpc.CallOption) {
	t.Helper()

	ctx := t.Context()
	put := func(n int) *testproto.Command {
		return &testproto.Command{Id: "...", Kind: &testproto.Command_Put{Put: &testproto.Put{Value: make([]byte, n)}}}
	}
	commands := []*testproto.Command{
		{},
		{Kind: &testproto.Command_Get{Get: &testproto.Get{Key: "key"}}},
		{Kind: &testproto.Command_Peek{Peek: &testproto.Get{Key: strings.Repeat("k", 300)}}},
		{Kind: &testproto.Command_Note{Note: "note"}},
		{Kind: &testproto.Command_Batch{Batch: &testproto.Batch{Commands: []*testproto.Command{put(10)}}}},
		{Kind: (*testproto.Command_Put)(nil)},
		put(0), put(1), put(16), put(1 << 10), put(1 << 20),
	}

	for _, c := range commands {
		if _, err := client.Unary(ctx, c, opts...); err != nil {
			t.Fatal(err)
		}
	}

	up, err := client.ClientStream(ctx, opts...)
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range commands {
		if err := up.Send(c); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := up.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}

	down, err := client.ServerStream(ctx, put(100), opts...)
	if err != nil {
		t.Fatal(err)
	}

	for {
		if _, err := down.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}

	both, err := client.Bidi(ctx, opts...)
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range commands {
		if err := both.Send(c); err != nil {
			t.Fatal(err)
		}

		if _, err := both.Recv(); err != nil {
			t.Fatal(err)
		}
	}

	if err := both.CloseSend(); err != nil {
		t.Fatal(err)
	}

	if _, err := both.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// useGzip compresses what the client sends; grpc-go's servers then compress what they answer.
func useGzip() grpc.CallOption { return grpc.UseCompressor(gzip.Name) }

// reports collects what goes to the global error handler during a test.
type reports struct {
	mu     sync.Mutex
	errors []string
}

func catchReports(t *testing.T) *reports {
	t.Helper()

	r := &reports{}

	before := otel.GetErrorHandler()
	otel.SetErrorHandler(r)
	t.Cleanup(func() { otel.SetErrorHandler(before) })

	return r
}

func (r *reports) Handle(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.errors = append(r.errors, err.Error())
}

func (r *reports) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	return append([]string{}, r.errors...)
}
