package stats

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a live connection of a [Registry], from [Registry.Open] to [Conn.Close]. Its methods are safe for concurrent use.
type Conn struct {
	c      *connection
	client bool
	server string
	// counted says that this Conn is a connection in [Reading.Live], rather than one more use of a socket's connection.
	counted bool
	closed  atomic.Bool
}

// Series gives the series of k on this connection, creating it the first time. It may take a short lock: keep the result.
// Beyond the registry's limit of keys it gives the series of [Other]. Strings longer than 1,024 bytes are cut, invalid
// UTF-8 is replaced. On a closed connection it works too: what is recorded counts in the totals of closed connections.
func (c *Conn) Series(k Key) *Series {
	return c.c.seriesOf(c.c.registry.rowOf(rowID{keyID{c.client, k}, c.server}))
}

// ID is the connection's number in snapshots, unique in its registry; 0 for all connections beyond the limit together.
func (c *Conn) ID() uint64 { return c.c.id }

// Close ends the connection: what it has counted moves to the totals of closed connections. It doesn't block and may be
// called more than once.
func (c *Conn) Close() {
	if c.closed.CompareAndSwap(false, true) {
		c.c.registry.close(c)
	}
}

// connection is what one or more Conns stand for: those of one socket, or those beyond the limit.
type connection struct {
	registry *Registry
	id       uint64
	opened   time.Time

	// hasSocket says that read and written count the bytes of a socket.
	hasSocket     bool
	read, written atomic.Uint64
	// retired is set before the counts are moved to the totals of closed connections.
	retired atomic.Bool

	// opens counts the Conns that are not yet closed, conns how many connections they are. index is the place in
	// Registry.live or beyond. Guarded by Registry.mu.
	opens, conns, index int

	// mu guards the fields below. Nothing else is locked and nothing waits while it is held.
	mu sync.Mutex
	// info is given anew by the first Open of a socket's connection; named is set then.
	info  ConnInfo
	named bool
	// series is sorted by the rows' numbers. A map would cost three times as much memory per series.
	series []*Series
	// folded is set when the series have moved to the totals; a series created later is born retired.
	folded bool
}

// name takes over what an Open knows of a socket's connection. Its addresses stay.
func (c *connection) name(info ConnInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.named && c.id != 0 {
		c.named = true
		c.info.Client, c.info.Authority = info.Client, info.Authority
	}
}

func (c *connection) seriesOf(r *row) *Series {
	c.mu.Lock()
	defer c.mu.Unlock()

	i, found := slices.BinarySearchFunc(c.series, r.number, func(s *Series, number int) int { return s.row.number - number })
	if found {
		return c.series[i]
	}

	s := newSeries(r)
	if c.folded {
		s.retired.Store(c)
	}

	c.series = slices.Insert(c.series, i, s)

	return s
}

// count adds to the bytes of the socket.
func (c *connection) count(direction Direction, n int) {
	if n <= 0 {
		return
	}

	if direction == Receive {
		c.read.Add(uint64(n))
	} else {
		c.written.Add(uint64(n))
	}

	// As in Series.Record.
	if c.retired.Load() {
		c.registry.countedLate(c)
	}
}

// snapshot reads the connection's counts into rows from a slab and adds them to byKey, unless that is nil. buffer is used
// for the list of series.
func (c *connection) snapshot(from *slab, buffer *[]*Series, byKey *sums) ConnSnapshot {
	c.mu.Lock()
	s := ConnSnapshot{ID: c.id, Info: c.info, Opened: c.opened, HasSocket: c.hasSocket}
	*buffer = append((*buffer)[:0], c.series...)
	c.mu.Unlock()

	// The messages first, then the socket: of a message that was received, at least its bytes are there.
	s.Rows = from.rows(c.registry.layout, len(*buffer), slabRows)
	for i, series := range *buffer {
		series.row.name(&s.Rows[i])
		series.addTo(&s.Rows[i], false)

		if byKey != nil {
			byKey.add(series.row.keyNumber, &s.Rows[i])
		}
	}

	s.SocketRead, s.SocketWritten = c.read.Load(), c.written.Load()

	return s
}
