package statsmetric_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

const (
	methodKey    = attribute.Key("rpc.method")
	directionKey = attribute.Key("network.io.direction")
	typeKey      = attribute.Key("otelproto.message.type")
	serverKey    = attribute.Key("server.address")
)

func newSeed(t *testing.T) *rand.Rand {
	t.Helper()

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	return rand.New(rand.NewPCG(seed, 0))
}

// silence takes reports of limits that a test reaches on purpose.
func silence(t *testing.T) {
	t.Helper()

	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	t.Cleanup(func() { otel.SetErrorHandler(before) })
}

func backends(t *testing.T, r *stats.Registry) []*backend {
	t.Helper()

	return []*backend{
		newBackend(t, "summed", statsmetric.NewProducer(r), false),
		newBackend(t, "summed delta", statsmetric.NewProducer(r, statsmetric.Delta()), true),
		newBackend(t, "per connection", statsmetric.NewProducer(r, statsmetric.PerConnection()), false),
		newBackend(t, "per connection again", statsmetric.NewProducer(r, statsmetric.PerConnection()), false),
		newBackend(t, "per connection delta", statsmetric.NewProducer(r, statsmetric.PerConnection(), statsmetric.Delta()), true),
	}
}

// book is plain arithmetic.
type book struct {
	// By side, method, direction, type and server.
	wire, size [2]map[string]value
	io         map[string]value
}

func newBook() *book {
	return &book{
		wire: [2]map[string]value{{}, {}}, size: [2]map[string]value{{}, {}}, io: map[string]value{},
	}
}

func (b *book) record(client bool, server string, k stats.Key, wire, size int) {
	side := 0
	if client {
		side = 1
	}

	name := fmt.Sprintf("|%s|%s|%s|%s", k.Method, k.Direction, k.Type, server)
	b.wire[side][name] = b.wire[side][name].plus(value{1, uint64(wire)})
	b.size[side][name] = b.size[side][name].plus(value{1, uint64(size)})
}

func (b *book) carried(d stats.Direction, n int) {
	b.io["|"+d.String()] = b.io["|"+d.String()].plus(value{0, uint64(n)})
}

func (b *book) check(t *testing.T, got *backend) {
	t.Helper()

	for side, name := range []string{"otelproto.server.message.", "otelproto.client.message."} {
		for metric, want := range map[string]map[string]value{"wire_size": b.wire[side], "size": b.size[side]} {
			all := got.total(name+metric, methodKey, directionKey, typeKey, serverKey)
			if diff := cmp.Diff(want, all, cmp.AllowUnexported(value{})); diff != "" {
				t.Fatalf("%s: %s%s: %s", got.name, name, metric, diff)
			}
		}
	}

	io := got.total("otelproto.connection.io", directionKey)
	for direction, want := range b.io {
		if io[direction] != want {
			t.Fatalf("%s: %d bytes of sockets, expected %d", got.name, io[direction], want)
		}
	}
}

type modelConn struct {
	conn   *stats.Conn
	socket net.Conn
	client bool
	server string
}

func open(rnd *rand.Rand, r *stats.Registry) *modelConn {
	c := &modelConn{client: rnd.IntN(2) == 0}
	if c.client {
		c.server = fmt.Sprint("s", rnd.IntN(2))
	}

	// Few addresses, so that equal ones meet; some without ports.
	info := stats.ConnInfo{Client: c.client, Authority: c.server, Local: tcp(1 + rnd.IntN(3)), Remote: tcp(100 + rnd.IntN(3))}
	if rnd.IntN(4) == 0 {
		info.Local, info.Remote = &net.UnixAddr{Net: "unix"}, &net.UnixAddr{Name: "/s", Net: "unix"}
	}

	if rnd.IntN(2) == 0 {
		c.socket = r.Wrap(fakeConn{local: info.Local, remote: info.Remote}, c.client)
		info.Local, info.Remote = c.socket.LocalAddr(), c.socket.RemoteAddr()
	}

	c.conn = r.Open(info)

	return c
}

func randomKey(rnd *rand.Rand) stats.Key {
	return stats.Key{
		Method: fmt.Sprint("m", rnd.IntN(3)), Direction: stats.Direction(rnd.IntN(2)), Type: fmt.Sprint("T", rnd.IntN(3)),
		Variant: []string{"", "v"}[rnd.IntN(2)],
	}
}

func (c *modelConn) act(t *testing.T, rnd *rand.Rand, b *book) {
	if c.socket != nil && rnd.IntN(2) == 0 {
		n := rnd.IntN(1 << 12)
		if rnd.IntN(2) == 0 {
			_, _ = c.socket.Read(make([]byte, n))
			b.carried(stats.Receive, n)
		} else {
			_, _ = c.socket.Write(make([]byte, n))
			b.carried(stats.Transmit, n)
		}

		return
	}

	k := randomKey(rnd)
	size := rnd.IntN(1 << rnd.IntN(20))
	wire := size + 5

	if rnd.IntN(4) == 0 {
		wire = rnd.IntN(size + 10)
	}

	c.conn.Series(k).Record(t.Context(), wire, size)
	b.record(c.client, c.server, k, wire, size)
}

func (c *modelConn) close() {
	c.conn.Close()

	if c.socket != nil {
		_ = c.socket.Close()
	}
}

// Random opens, records, closes, late records, snapshots and exports in all modes against plain arithmetic.
func TestProducersAgreeWithPlainArithmetic(t *testing.T) {
	silence(t)

	rnd := newSeed(t)

	for range 15 {
		r := stats.NewRegistry(
			stats.WithConnLimit(1+rnd.IntN(20)), stats.WithWaitingLimit(rnd.IntN(100)), stats.WithBuckets(0, 100, 10_000),
		)
		all := backends(t, r)
		want := newBook()

		var conns []*modelConn

		for range 500 {
			switch op := rnd.IntN(100); {
			case op < 8 || len(conns) == 0:
				conns = append(conns, open(rnd, r))
			case op < 85:
				conns[rnd.IntN(len(conns))].act(t, rnd, want)
			case op < 92:
				conns[rnd.IntN(len(conns))].close()
			case op < 94:
				r.Snapshot()
			default:
				b := all[rnd.IntN(len(all))]
				b.collect()
				want.check(t, b)
			}
		}

		for _, c := range conns {
			c.close()
		}

		for _, b := range all {
			b.collect()
			want.check(t, b)
			b.producer.Close()
		}
	}
}

// The same from real goroutines, checked when all is quiet.
func TestProducersLoseNothingUnderConcurrency(t *testing.T) {
	silence(t)

	rnd := newSeed(t)
	r := stats.NewRegistry(stats.WithConnLimit(10), stats.WithWaitingLimit(200))
	all := backends(t, r)
	want := newBook()

	var (
		workers, collectors sync.WaitGroup
		mu                  sync.Mutex
		done                atomic.Bool
	)

	for range 4 {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))

		workers.Go(func() {
			for range 40 {
				c, mine := open(rnd, r), newBook()

				for range 60 {
					c.act(t, rnd, mine)
				}

				c.close()
				c.act(t, rnd, mine)
				mu.Lock()
				want.add(mine)
				mu.Unlock()
			}
		})
	}

	for _, b := range all {
		collectors.Go(func() {
			for !done.Load() {
				b.collect()
				runtime.Gosched()
			}
		})
	}

	workers.Wait()
	done.Store(true)
	collectors.Wait()

	for _, b := range all {
		b.collect()
		want.check(t, b)
		b.producer.Close()
	}
}

func (b *book) add(other *book) {
	for side := range b.wire {
		for k, v := range other.wire[side] {
			b.wire[side][k] = b.wire[side][k].plus(v)
		}

		for k, v := range other.size[side] {
			b.size[side][k] = b.size[side][k].plus(v)
		}
	}

	for k, v := range other.io {
		b.io[k] = b.io[k].plus(v)
	}
}
