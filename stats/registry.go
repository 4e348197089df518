package stats

import (
	"fmt"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
)

// Registry counts messages by connection and key, and the bytes of sockets. Make it with [NewRegistry]; its methods are safe
// for concurrent use.
type Registry struct {
	layout  *layout
	limits  limits
	start   time.Time
	reports [reports]atomic.Bool

	// collected is when a reader last read, after start: an exemplar from before that may be replaced by any.
	collected atomic.Int64

	// totals is held while connections are moved to the totals of closed connections and while a snapshot or a reader reads,
	// so that each connection is seen either live or in the totals. Recording, Open, Series and Close never wait for it.
	// It is taken before mu. It guards closedSockets, the readers and what waits for them, scratch, and row.closed.
	totals        sync.Mutex
	closedSockets Sockets
	readers       []*Reader
	waiting       waiting
	scratch       Row

	// mu guards the fields below. It is held for a few lookups at a time: nothing is read, moved or reported under it.
	mu     sync.Mutex
	lastID uint64
	// live has the connections with a number, in no order.
	live []*connection
	// bySocket finds the connection of an open socket by its addresses.
	bySocket map[net.Addr]*connection
	rows     map[rowID]*row
	// inOrder has the rows by number, keys the number of each different key.
	inOrder []*row
	keys    map[keyID]int
	// closing are connections whose counts are to be moved to the totals; late and lateSockets are what was written since.
	closing     []*connection
	late        []*Series
	lateSockets []*connection
	// beyond stand for all connections over the limit, by side and by whether they have a socket; nil while there are none.
	beyond [4]*connection
}

// limits are what [Option]s set.
type limits struct{ conns, series, waiting int }

// What is reported, each once.
const (
	reportConns = iota
	reportSeries
	reportServers
	reportWaiting
	reports
)

// NewRegistry makes a registry. An option with a wrong value is reported to [otel.Handle] and left out.
func NewRegistry(opts ...Option) *Registry {
	c := newConfig(opts)
	l := newLayout(c.buckets)
	l.exemplars = c.exemplars

	r := &Registry{
		layout:   l,
		limits:   c.limits,
		start:    time.Now(),
		scratch:  newRows(l, 1)[0],
		bySocket: make(map[net.Addr]*connection),
		rows:     make(map[rowID]*row),
		keys:     make(map[keyID]int),
	}
	r.collected.Store(-1) // what is recorded in the same moment is fresh

	return r
}

// Open adds a live connection. Each call adds one, whatever the addresses, with one exception: where Local or Remote is an address of an
// open socket of [Registry.Listener], [Registry.DialContext] or [Registry.Wrap], it gives that socket's connection, which then lives until
// the socket and all Conns are closed. It is named by the first Open.
//
// Beyond the limit of connections ([WithConnLimit]) all share one that has neither number nor addresses.
func (r *Registry) Open(info ConnInfo) *Conn {
	r.mu.Lock()

	c := r.bySocket[socketKey(info.Local)]
	if c == nil {
		c = r.bySocket[socketKey(info.Remote)]
	}

	joined, over := c != nil, false
	if !joined {
		c, over = r.addLocked(info, false)
		c.conns++
	}

	c.opens++
	r.mu.Unlock()

	if over {
		r.reportConnLimit()
	}

	conn := &Conn{c: c, client: info.Client, counted: !joined}
	if info.Client {
		conn.server = cleanName(info.Authority)
	}

	if joined {
		c.name(info)
	}

	return conn
}

// openSocket adds a live connection for a socket. Both addresses are the socket's own.
func (r *Registry) openSocket(info ConnInfo) *Conn {
	r.mu.Lock()
	c, over := r.addLocked(info, true)
	c.conns++
	c.opens++

	for _, a := range []net.Addr{info.Local, info.Remote} {
		if key := socketKey(a); key != nil {
			r.bySocket[key] = c
		}
	}
	r.mu.Unlock()

	if over {
		r.reportConnLimit()
	}

	return &Conn{c: c, client: info.Client, counted: true}
}

// closeSocket ends what openSocket began.
func (r *Registry) closeSocket(c *Conn, local, remote net.Addr) {
	r.mu.Lock()
	delete(r.bySocket, socketKey(local))
	delete(r.bySocket, socketKey(remote))
	r.mu.Unlock()

	c.Close()
}

// reportf says once that a limit was reached. Nothing may be locked: the error handler is the user's, and may come back here.
func (r *Registry) reportf(what int, format string, args ...any) {
	if r.reports[what].CompareAndSwap(false, true) {
		otel.Handle(fmt.Errorf("stats: "+format, args...))
	}
}

// socketKey gives an address that can be looked up: only pointers tell two sockets apart. Others give nil, under which
// nothing is found.
func socketKey(a net.Addr) net.Addr {
	if a == nil || reflect.TypeOf(a).Kind() != reflect.Pointer {
		return nil
	}

	return a
}

func (r *Registry) addLocked(info ConnInfo, socket bool) (c *connection, over bool) {
	if len(r.live) < r.limits.conns {
		r.lastID++
		c = &connection{registry: r, id: r.lastID, info: info, hasSocket: socket, opened: time.Now(), index: len(r.live)}
		r.live = append(r.live, c)

		return c, false
	}

	i := 0
	if info.Client {
		i++
	}

	if socket {
		i += 2
	}

	if r.beyond[i] == nil {
		r.beyond[i] = &connection{
			registry: r, info: ConnInfo{Client: info.Client}, hasSocket: socket, opened: time.Now(), index: i,
		}
	}

	return r.beyond[i], true
}

func (r *Registry) reportConnLimit() {
	r.reportf(reportConns, "more than %d live connections: further ones are counted together (WithConnLimit)", r.limits.conns)
}

// close is called once for each Conn.
func (r *Registry) close(conn *Conn) {
	r.mu.Lock()

	c := conn.c
	c.opens--

	if conn.counted {
		c.conns--
	}

	if c.opens == 0 {
		r.removeLocked(c)
		r.closing = append(r.closing, c)
	}

	r.mu.Unlock()
	r.settle()
}

func (r *Registry) removeLocked(c *connection) {
	if c.id == 0 {
		r.beyond[c.index] = nil

		return
	}

	last := len(r.live) - 1
	r.live[c.index] = r.live[last]
	r.live[c.index].index = c.index
	r.live[last] = nil
	r.live = r.live[:last]
}

// liveLocked gives all live connections and how many they stand for.
func (r *Registry) liveLocked() (live []*connection, n int) {
	live, n = append(make([]*connection, 0, len(r.live)+len(r.beyond)), r.live...), len(r.live)

	for _, c := range r.beyond {
		if c != nil {
			live = append(live, c)
			n += c.conns
		}
	}

	return live, n
}
