package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelproto/otelproto-go/stats"
)

// traffic is a registry with the connections of a made-up process: a controller with compute replicas as its clients, and a
// store that it is a client of.
type traffic struct {
	registry *stats.Registry
	rng      *rand.Rand
	replicas []*link
	store    *link
}

// link is a connection and its counted socket.
type link struct {
	*stats.Conn

	socket net.Conn
}

// open adds a connection whose socket is counted.
func (t *traffic) open(info stats.ConnInfo) *link {
	socket := t.registry.Wrap(wire{local: info.Local, remote: info.Remote}, info.Client)
	info.Local, info.Remote = socket.LocalAddr(), socket.RemoteAddr()

	return &link{Conn: t.registry.Open(info), socket: socket}
}

func (l *link) close() {
	l.Close()
	l.socket.Close()
}

// wire is a socket to nowhere.
type wire struct {
	net.Conn

	local, remote net.Addr
}

func (wire) Write(p []byte) (int, error) { return len(p), nil }
func (wire) Read(p []byte) (int, error)  { return len(p), nil }
func (wire) Close() error                { return nil }
func (w wire) LocalAddr() net.Addr       { return w.local }
func (w wire) RemoteAddr() net.Addr      { return w.remote }

func newTraffic(tb testing.TB, replicas int) *traffic {
	tb.Helper()

	t := &traffic{registry: stats.NewRegistry(stats.WithExemplars()), rng: rand.New(rand.NewPCG(1, 2))}

	for i := range replicas {
		t.replicas = append(t.replicas, t.open(stats.ConnInfo{
			Local:  &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 7000},
			Remote: &net.TCPAddr{IP: net.IPv4(10, 0, byte(1+i/200), byte(10+i%200)), Port: 40000 + i},
		}))
	}

	t.store = t.open(stats.ConnInfo{
		Client: true, Authority: "store.internal:8443",
		Local:  &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 51844},
		Remote: &net.TCPAddr{IP: net.IPv4(10, 0, 9, 4), Port: 8443},
	})

	gone := t.open(stats.ConnInfo{Remote: &net.TCPAddr{IP: net.IPv4(10, 0, 1, 99), Port: 41999}})
	t.send(gone, stats.Transmit, "compute.Command", "create_dataflow", 12, 3000, 1)
	t.send(gone, stats.Receive, "compute.Response", "frontiers", 900, 80, 1)
	gone.close()

	return t
}

// step adds what flows in some tenths of a second.
func (t *traffic) step() {
	for i, c := range t.replicas {
		busy := 1
		if i == 0 {
			busy = 12
		}

		t.send(c, stats.Transmit, "compute.Command", "update_input", 6*busy, 18_000, 1)
		t.send(c, stats.Transmit, "compute.Command", "peek", 2, 220, 1)
		t.send(c, stats.Transmit, "compute.Command", "allow_compaction", 8, 48, 1)
		t.send(c, stats.Receive, "compute.Response", "peek_response", 2, 31_000, 1)
		t.send(c, stats.Receive, "compute.Response", "frontiers", 20, 90, 1)
	}

	t.send(t.store, stats.Transmit, "store.AppendRequest", "", 6, 64_000, 4)
	t.send(t.store, stats.Receive, "store.AppendResponse", "", 6, 12, 1)
}

// prefix is what gRPC puts before each message.
const prefix = 5

// send records n messages of about size bytes, compressed by the ratio.
func (t *traffic) send(c *link, d stats.Direction, typ, variant string, n, size int, ratio float64) {
	method := "compute.Compute/CommandResponseStream"
	if variant == "" {
		method = "store.Store/Append"
	}

	s := c.Series(stats.Key{Method: method, Direction: d, Type: typ, Variant: variant})

	carry := c.socket.Read
	if d == stats.Transmit {
		carry = c.socket.Write
	}

	span := trace.SpanContextConfig{TraceFlags: trace.FlagsSampled}
	binary.BigEndian.PutUint64(span.TraceID[:], t.rng.Uint64())
	binary.BigEndian.PutUint64(span.TraceID[8:], t.rng.Uint64())
	binary.BigEndian.PutUint64(span.SpanID[:], t.rng.Uint64())
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(span))

	for range n {
		one := int(float64(size) * t.rng.ExpFloat64())
		wire := one + prefix

		if ratio != 1 {
			wire = int(float64(one)/ratio) + prefix
		}

		s.Record(ctx, wire, one)
		carry(make([]byte, wire+9+wire/200)) // a frame's head, and TLS
	}
}

// flow lets the traffic run until the test ends.
func (t *traffic) flow(tb testing.TB) {
	tb.Helper()

	var done sync.WaitGroup

	stop := make(chan struct{})

	done.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()

		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				t.step()
			}
		}
	})

	tb.Cleanup(func() {
		close(stop)
		done.Wait()
	})
}

// targets is a section as another package would offer it.
type targets struct{}

func (targets) DebugSection() (string, []string, [][]any) {
	return "Channels", []string{"Target", "State", "Outstanding", "Since"}, [][]any{
		{"store.internal:8443", "ready", 3, 42 * time.Minute},
		{"billing.internal:443", errors.New("backing off"), 0, 12 * time.Second},
	}
}
