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
	closed atomic.Bool
}

// Series gives the series of k on this connection, creating it the first time. It may take a short lock: keep the result.
// Beyond the registry's limit of keys it gives the series of [Other]. Strings longer than 1,024 bytes are cut, invalid
// UTF-8 is replaced. On a closed connection it works too: what is recorded counts in the totals of closed connections.
func (c *Conn) Series(k Key) *Series {
	return c.c.seriesOf(c.c.registry.rowOf(c.c.info.Client, k))
}

// ID is the connection's number in snapshots, unique in its registry; 0 for all connections beyond the limit together.
func (c *Conn) ID() uint64 { return c.c.id }

// Close ends the connection: what it has counted moves to the totals of closed connections. It doesn't block and may be
// called more than once.
func (c *Conn) Close() {
	if c.closed.CompareAndSwap(false, true) {
		c.c.registry.close(c.c)
	}
}

// connection is what one or more Conns stand for.
type connection struct {
	registry *Registry
	id       uint64
	info     ConnInfo
	opened   time.Time
	// opens counts the Conns that are not yet closed. Guarded by Registry.mu.
	opens int

	// mu guards the fields below. Nothing else is locked and nothing waits while it is held.
	mu sync.Mutex
	// series is sorted by the rows' numbers. A map would cost three times as much memory per series.
	series []*Series
	// folded is set when the series have moved to the totals; a series created later is born retired.
	folded bool
}

func (c *connection) seriesOf(r *row) *Series {
	c.mu.Lock()
	defer c.mu.Unlock()

	i, found := slices.BinarySearchFunc(c.series, r.number, func(s *Series, number int) int { return s.row.number - number })
	if found {
		return c.series[i]
	}

	s := newSeries(r)
	s.retired.Store(c.folded)
	c.series = slices.Insert(c.series, i, s)

	return s
}

// snapshot reads the connection's series.
func (c *connection) snapshot() ConnSnapshot {
	return ConnSnapshot{ID: c.id, Info: c.info, Opened: c.opened, Rows: c.rows()}
}

func (c *connection) rows() []Row {
	c.mu.Lock()
	series := slices.Clone(c.series)
	c.mu.Unlock()

	rows := newRows(c.registry.layout, len(series))
	for i, s := range series {
		rows[i].Client, rows[i].Key = s.row.client, s.row.key
		s.addTo(&rows[i], false)
	}

	return rows
}

// fold moves what the connection has counted to the totals of closed connections. The caller holds Registry.fold.
func (c *connection) fold() {
	c.mu.Lock()
	c.folded = true
	series := c.series
	c.series = nil
	c.mu.Unlock()

	for _, s := range series {
		s.retired.Store(true)
		s.addTo(s.row.closedRow(), true)
	}
}
