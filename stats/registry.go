package stats

import (
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
)

// Registry counts messages by connection and key. Make it with [NewRegistry]; its methods are safe for concurrent use.
type Registry struct {
	layout      *layout
	connLimit   int
	seriesLimit int
	start       time.Time

	// totals is held while connections are moved to the totals of closed connections and while a snapshot reads, so
	// that a snapshot sees each connection either live or in the totals. Recording, Open, Series and Close never wait
	// for it. It is taken before mu.
	totals sync.Mutex

	// mu guards the fields below. It is held for a few lookups at a time: nothing is read, moved or reported under it.
	mu     sync.Mutex
	lastID uint64
	live   map[uint64]*connection
	rows   map[rowID]*row
	// inOrder has the rows by number.
	inOrder []*row
	// closing are connections whose counts are to be moved to the totals, late are retired series that were written since.
	closing []*connection
	late    []*Series
	// beyond stand for all connections over the limit, a server's and a client's; nil while there are none.
	beyond [2]*connection
	// The first time that a limit is hit is reported, once each.
	connsReported, seriesReported bool
}

// rowID names a row of the totals.
type rowID struct {
	client bool
	key    Key
}

// row is what all series of one key, on whichever connection, have in common.
type row struct {
	registry *Registry
	number   int
	client   bool
	key      Key
	// closed is what closed connections have counted; nil while there are none. Guarded by Registry.totals.
	closed *Row
}

// NewRegistry makes a registry. An option with a wrong value is reported to [otel.Handle] and left out.
func NewRegistry(opts ...Option) *Registry {
	c := newConfig(opts)

	return &Registry{
		layout:      newLayout(c.buckets),
		connLimit:   c.connLimit,
		seriesLimit: c.seriesLimit,
		start:       time.Now(),
		live:        make(map[uint64]*connection),
		rows:        make(map[rowID]*row),
	}
}

// Open adds a live connection. Each call adds one, whatever the addresses; beyond the limit of connections
// ([WithConnLimit]) all share one that has neither number nor addresses.
func (r *Registry) Open(info ConnInfo) *Conn {
	r.mu.Lock()

	var (
		c      *connection
		report bool
	)

	if len(r.live) < r.connLimit {
		r.lastID++
		c = &connection{registry: r, id: r.lastID, info: info, opened: time.Now()}
		r.live[c.id] = c
	} else {
		report = !r.connsReported
		r.connsReported = true
		c = r.openBeyondLocked(info)
	}

	c.opens++
	r.mu.Unlock()

	if report {
		otel.Handle(fmt.Errorf("stats: more than %d live connections: further ones are counted together (WithConnLimit)", r.connLimit))
	}

	return &Conn{c: c}
}

func (r *Registry) openBeyondLocked(info ConnInfo) *connection {
	c := &r.beyond[side(info.Client)]
	if *c == nil {
		*c = &connection{registry: r, info: ConnInfo{Client: info.Client}, opened: time.Now()}
	}

	return *c
}

func side(client bool) int {
	if client {
		return 1
	}

	return 0
}

// rowOf gives the row of k, or the one that stands for it beyond the limit.
func (r *Registry) rowOf(client bool, k Key) *row {
	r.mu.Lock()

	found, ok := r.rows[rowID{client, k}]
	if ok {
		r.mu.Unlock()

		return found
	}

	var report bool

	k = k.clean()
	if found, ok = r.rows[rowID{client, k}]; !ok {
		if len(r.rows) >= r.seriesLimit {
			report = !r.seriesReported
			r.seriesReported = true
			k = k.beyond()
			found, ok = r.rows[rowID{client, k}]
		}

		if !ok {
			found = &row{registry: r, number: len(r.inOrder), client: client, key: k}
			r.rows[rowID{client, k}] = found
			r.inOrder = append(r.inOrder, found)
		}
	}

	r.mu.Unlock()

	if report {
		otel.Handle(fmt.Errorf("stats: more than %d series: further ones are counted as %s (WithSeriesLimit)", r.seriesLimit, Other))
	}

	return found
}

// close is called once for each Conn.
func (r *Registry) close(c *connection) {
	r.mu.Lock()

	c.opens--
	if c.opens == 0 {
		if c.id == 0 {
			r.beyond[side(c.info.Client)] = nil
		}

		delete(r.live, c.id)
		r.closing = append(r.closing, c)
	}

	r.mu.Unlock()
	r.settle()
}

// recordedLate is called when a message was recorded on a series that had already moved to the totals.
func (r *Registry) recordedLate(s *Series) {
	r.mu.Lock()
	r.late = append(r.late, s)
	r.mu.Unlock()
	r.settle()
}

// settle moves what is to be moved to the totals, unless somebody else holds them, who then does it on letting go.
func (r *Registry) settle() {
	for r.unsettled() && r.totals.TryLock() {
		r.settleTotalsLocked()
		r.totals.Unlock()
	}
}

func (r *Registry) unsettled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	return len(r.closing) > 0 || len(r.late) > 0
}

func (r *Registry) settleTotalsLocked() {
	r.mu.Lock()
	closing, late := r.closing, r.late
	r.closing, r.late = nil, nil
	r.mu.Unlock()

	for _, c := range closing {
		c.fold()
	}

	for _, s := range late {
		s.addTo(s.row.closedRow(), true)
	}
}

// closedRow gives the totals of closed connections of this row. The caller holds Registry.totals.
func (r *row) closedRow() *Row {
	if r.closed == nil {
		r.closed = &newRows(r.registry.layout, 1)[0]
		r.closed.Client, r.closed.Key = r.client, r.key
	}

	return r.closed
}
