package statsmetric

import (
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelproto/otelproto-go/internal/semattr"
	"github.com/otelproto/otelproto-go/stats"
)

// perConn exports each connection apart.
type perConn struct {
	conns map[uint64]*conn
	// taken has the attributes of the connections that are exported.
	taken map[attribute.Distinct]bool
	// beyond is what is exported under ID 0, closedBeyond what of it has closed.
	beyond, closedBeyond unknown
	beyondExported       socketPoints
	beyondBefore         map[rowID]stats.Row
}

// conn is a connection that was exported and has not ended.
type conn struct {
	attrs   []attribute.KeyValue
	set     attribute.Distinct
	sockets socketPoints
	// before has the rows of the export before that were not empty, for deltas. The next export has them in the same order.
	before []stats.Row
}

func newPerConn() *perConn {
	return &perConn{
		conns:        make(map[uint64]*conn),
		taken:        make(map[attribute.Distinct]bool),
		closedBeyond: newUnknown(),
		beyondBefore: make(map[rowID]stats.Row),
	}
}

func (p *perConn) produce(b *points, r *stats.Reading) {
	p.beyond = newUnknown()

	if !b.delta {
		for i := range r.Conns {
			b.expect(r.Conns[i].Rows)
		}

		for i := range r.Closed {
			b.expect(r.Closed[i].Rows)
		}
	}

	for i := range r.Conns {
		c := &r.Conns[i]
		if c.ID == 0 {
			p.beyond.add(c)

			continue
		}

		known := p.conns[c.ID]
		p.conn(b, c, known, startOf(b, known, c.Opened), false)
	}

	// After the live ones, so that one of these can't take the attributes of one that ends here.
	for i := range r.Closed {
		c := &r.Closed[i]
		if c.ID == 0 {
			p.closedBeyond.add(&c.ConnSnapshot)

			continue
		}

		known := p.conns[c.ID]
		start := startOf(b, known, c.Opened)

		if c.Late && known == nil {
			start = later(r.Last, c.Opened)
		}

		p.conn(b, &c.ConnSnapshot, known, start, true)
	}

	for i := range r.Closed {
		if c := p.conns[r.Closed[i].ID]; c != nil {
			delete(p.taken, c.set)
			delete(p.conns, r.Closed[i].ID)
		}
	}

	p.produceBeyond(b)
}

// startOf is when the points of a connection start, that was exported before or not.
func startOf(b *points, known *conn, opened time.Time) time.Time {
	if b.delta && known != nil {
		return b.last
	}

	return opened
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

// conn adds the points of a connection. known is nil the first time. shared says that other readers have the same rows: the SDK
// reuses the memory of what it got.
func (p *perConn) conn(b *points, c *stats.ConnSnapshot, known *conn, start time.Time, shared bool) {
	if known == nil {
		known = p.newConn(c)
		p.conns[c.ID] = known
	}

	before := known.before
	if b.delta {
		known.before = make([]stats.Row, 0, len(c.Rows))
	}

	for i := range c.Rows {
		row := c.Rows[i]
		if empty(&row) {
			continue
		}

		if b.delta {
			known.before = append(known.before, row)

			var b stats.Row
			if len(before) > 0 && idOf(&before[0]) == idOf(&row) {
				b, before = before[0], before[1:]
			}

			if row = less(row, b); empty(&row) {
				continue
			}
		} else if shared {
			row = less(row, stats.Row{})
		}

		b.row(&row, start, known.attrs...)
	}

	if c.HasSocket {
		b.sockets(c.Sockets(), &known.sockets, start, known.attrs...)
	}
}

// newConn chooses attributes that no other connection has.
func (p *perConn) newConn(c *stats.ConnSnapshot) *conn {
	attrs := semattr.PeerAddress(c.Info.Remote)
	port := semattr.PeerPort(c.Info.Remote)
	attrs = append(attrs, port...)
	set := attribute.NewSet(slices.Clone(attrs)...)

	if c.Info.Client {
		local := semattr.LocalPort(c.Info.Local)
		attrs = append(attrs, local...)
		port = local
		set = attribute.NewSet(slices.Clone(attrs)...)
	}

	if len(port) == 0 || p.taken[set.Equivalent()] {
		attrs = append(attrs, semattr.ConnectionID(c.ID))
		set = attribute.NewSet(slices.Clone(attrs)...)
	}

	p.taken[set.Equivalent()] = true

	sortAttributes(attrs)

	return &conn{attrs: attrs, set: set.Equivalent()}
}

// produceBeyond exports what is not told apart, as one connection that never ends.
func (p *perConn) produceBeyond(b *points) {
	p.beyond.addAll(&p.closedBeyond)

	start := b.start
	if b.delta {
		start = b.last
	}

	id := semattr.ConnectionID(0)

	for _, row := range p.beyond.rows {
		now := *row

		if b.delta {
			now = less(*row, p.beyondBefore[idOf(row)])
			p.beyondBefore[idOf(row)] = *row
		}

		if !empty(&now) {
			b.row(&now, start, id)
		}
	}

	for _, row := range p.closedBeyond.rows {
		row.Exemplar = nil // once is enough
	}

	b.sockets(p.beyond.sockets, &p.beyondExported, start, id)
}

// unknown adds up connections that are not told apart.
type unknown struct {
	index   map[rowID]int
	rows    []*stats.Row
	sockets stats.Sockets
}

func newUnknown() unknown { return unknown{index: make(map[rowID]int)} }

func (u *unknown) add(c *stats.ConnSnapshot) {
	u.addSockets(c.Sockets())

	for i := range c.Rows {
		u.addRow(&c.Rows[i])
	}
}

func (u *unknown) addAll(other *unknown) {
	u.addSockets(other.sockets)

	for _, row := range other.rows {
		u.addRow(row)
	}
}

func (u *unknown) addSockets(s stats.Sockets) {
	u.sockets.Read += s.Read
	u.sockets.Written += s.Written
	u.sockets.MessagesRead += s.MessagesRead
	u.sockets.MessagesWritten += s.MessagesWritten
}

func (u *unknown) addRow(r *stats.Row) {
	at, ok := u.index[idOf(r)]
	if !ok {
		at = len(u.rows)
		u.index[idOf(r)] = at
		sum := *r
		sum.Wire.Counts, sum.Size.Counts = slices.Clone(r.Wire.Counts), slices.Clone(r.Size.Counts)
		u.rows = append(u.rows, &sum)

		return
	}

	sum := u.rows[at]
	if e := r.Exemplar; e != nil && (sum.Exemplar == nil || e.Size > sum.Exemplar.Size) {
		sum.Exemplar = e
	}

	sum.Messages += r.Messages
	sum.Wire.Sum += r.Wire.Sum
	sum.Size.Sum += r.Size.Sum

	for i := range sum.Wire.Counts {
		sum.Wire.Counts[i] += r.Wire.Counts[i]
		sum.Size.Counts[i] += r.Size.Counts[i]
	}
}
