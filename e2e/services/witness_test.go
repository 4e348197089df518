package services_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// names gives the protobuf type and the variant of a payload, and its uncompressed size as the payload's own generator computes
// it, or -1. Each service writes its own, with the names as they stand in its .proto file, so that nothing of the handlers' is used.
type names func(payload any) (message, variant string, size int)

// of is the names of one kind of message.
func of[M proto.Message](message string, variant func(M) string) names {
	return func(payload any) (string, string, int) {
		m, ok := payload.(M)
		if !ok {
			return "", "", -1
		}

		if variant == nil {
			return message, "", proto.Size(m)
		}

		return message, variant(m), proto.Size(m)
	}
}

// oneOf gives the names of the first kind that matches.
func oneOf(kinds ...names) names {
	return func(payload any) (string, string, int) {
		for _, k := range kinds {
			if message, variant, size := k(payload); message != "" {
				return message, variant, size
			}
		}

		return fmt.Sprintf("no name for %T", payload), "", -1
	}
}

// counts is what both a witness and a registry know of a key.
type counts struct {
	Messages, Wire, Size uint64
}

// witness is a stats handler that writes down grpc's own numbers in the plainest way, and compares each length with that of the
// message itself.
type witness struct {
	names names
	// parts, if there is one, gives the variant and the encoded size of each command that a message carries; none for others.
	parts func(payload any) []part
	// plain says that nothing is compressed.
	plain bool

	mu     sync.Mutex
	rows   map[stats.Key]counts
	faults []string
}

// part is a command in a message that carries many.
type part struct {
	variant string
	size    int
}

type witnessKey struct{ w *witness }

func (w *witness) TagRPC(ctx context.Context, info *grpcstats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, witnessKey{w}, strings.TrimPrefix(info.FullMethodName, "/"))
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

func (w *witness) add(ctx context.Context, d stats.Direction, payload any, wire, length int) {
	message, variant, size := w.names(payload)
	k := stats.Key{Method: ctx.Value(witnessKey{w}).(string), Direction: d, Type: message, Variant: variant}

	w.mu.Lock()
	defer w.mu.Unlock()

	if size >= 0 && size != length {
		w.faults = append(w.faults, fmt.Sprintf("%+v: grpc says %d bytes, the message itself %d", k, length, size))
	}

	if w.plain && wire != length+5 {
		w.faults = append(w.faults, fmt.Sprintf("%+v: %d bytes on the wire of a plain message of %d", k, wire, length))
	}

	if w.rows == nil {
		w.rows = make(map[stats.Key]counts)
	}

	parts := []part{{variant, 1}}

	if w.parts != nil {
		if p := w.parts(payload); len(p) > 0 {
			parts = p
		}
	}

	total := 0
	for _, p := range parts {
		total += p.size
	}

	if total == 0 { // each has the same share
		for i := range parts {
			parts[i].size = 1
		}

		total = len(parts)
	}

	// Each part ends where its size and those before it reach, rounded down, so that nothing is lost.
	for i, before := 0, 0; i < len(parts); i++ {
		upTo := before + parts[i].size
		k.Variant = parts[i].variant

		c := w.rows[k]
		c.Messages++
		c.Wire += uint64(wire*upTo/total - wire*before/total)
		c.Size += uint64(length*upTo/total - length*before/total)
		w.rows[k] = c
		before = upTo
	}
}

func (w *witness) seen() (map[stats.Key]counts, []string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return maps.Clone(w.rows), slices.Clone(w.faults)
}

// sides is the two ends of a service, each with a handler, a registry and a witness of its own.
type sides struct {
	name           string
	client, server side
	dial           []grpc.DialOption
	serve          []grpc.ServerOption
}

type side struct {
	isClient bool
	registry *stats.Registry
	witness  *witness
}

// newSides prepares both ends. compressed says that some messages are.
func newSides(name string, n names, compressed bool, opts ...otelproto.Option) *sides {
	s := &sides{
		name:   name,
		client: side{true, stats.NewRegistry(), &witness{names: n, plain: !compressed}},
		server: side{false, stats.NewRegistry(), &witness{names: n, plain: !compressed}},
	}

	with := func(r *stats.Registry) []otelproto.Option {
		return append(slices.Clone(opts), otelproto.WithRegistry(r))
	}
	s.dial = append(otelproto.DialOptions(with(s.client.registry)...), grpc.WithStatsHandler(s.client.witness))
	s.serve = []grpc.ServerOption{
		grpc.StatsHandler(otelproto.NewServerHandler(with(s.server.registry)...)), grpc.StatsHandler(s.server.witness),
	}

	return s
}

// connect gives a connection with the client's handlers, which ends with the test.
func (s *sides) connect(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()

	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))

	conn, err := grpc.NewClient(addr, append(opts, s.dial...)...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })

	return conn
}

// start serves what register registers, until the test ends, and gives the address.
func (s *sides) start(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	server := grpc.NewServer(s.serve...)
	register(server)

	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()

	t.Cleanup(func() {
		server.Stop()

		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	return lis.Addr().String()
}

// rows gives what the handler recorded, by key.
func (s side) rows() map[stats.Key]counts {
	rows := make(map[stats.Key]counts)
	for _, r := range s.registry.Snapshot().Total {
		if r.Client == s.isClient {
			rows[r.Key] = counts{r.Messages, r.Wire.Sum, r.Size.Sum}
		}
	}

	return rows
}

// eventually polls until diff is empty, since an end counts after it has sent.
func eventually(t *testing.T, what string, diff func() string) {
	t.Helper()

	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()

	for {
		d := diff()
		if d == "" {
			return
		}

		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: %s", what, d)
		}
	}
}

// check compares each end with its witness, and if both has a value the ends with each other: what one sent the other received.
func (s *sides) check(t *testing.T, both agreement) {
	t.Helper()

	for what, end := range map[string]side{"client": s.client, "server": s.server} {
		eventually(t, s.name+": "+what+" and witness (-witness +handler)", func() string {
			rows, faults := end.witness.seen()
			if len(faults) > 0 {
				return strings.Join(faults, "\n")
			}

			return cmp.Diff(rows, end.rows())
		})
	}

	rows := s.client.rows()
	if len(rows) == 0 {
		t.Fatal(s.name, ": nothing was recorded")
	}

	if both != nil {
		eventually(t, s.name+": client and server (-client +server)", func() string {
			received := make(map[stats.Key]counts)
			for k, c := range s.server.rows() {
				k.Direction = stats.Receive - k.Direction
				received[both(k)] = c
			}

			return cmp.Diff(rows, received)
		})
	}

	var sum counts

	kinds := make(map[string]bool)
	for k, c := range rows {
		kinds[strings.TrimSuffix(k.Type+"/"+k.Variant, "/")] = true
		sum.Messages += c.Messages
		sum.Wire += c.Wire
		sum.Size += c.Size
	}

	t.Logf("| %-28s | %6d messages | %3d types and variants | %9d bytes on the wire | %9d uncompressed |",
		s.name, sum.Messages, len(kinds), sum.Wire, sum.Size)
}

// agreement gives the key that a client has for what a server calls k.
type agreement func(k stats.Key) stats.Key

// same is for ends that name everything alike.
func same(k stats.Key) stats.Key { return k }

// freeAddr gives an address of 127.0.0.1 that is free now, for servers that can't be given a listener.
func freeAddr(t *testing.T) string {
	t.Helper()

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()

	return lis.Addr().String()
}
