package statshttp

import (
	"cmp"
	"net"
	"slices"
	"time"

	"github.com/otelproto/otelproto-go/stats"
)

// reading is what one snapshot of the registry comes down to: the rows of all connections together, a line for each connection,
// and the rows of the few connections that somebody looks at. It isn't changed once it is made.
type reading struct {
	// totals has the rows of all connections together, and no connections.
	totals stats.Snapshot
	conns  []connLine
	// watched has the rows of single connections by their number.
	watched map[uint64][]stats.Row
	// cost is how long it took.
	cost time.Duration
}

// connLine is a connection and what it has counted since it was opened.
type connLine struct {
	connNames
	connSums

	client bool
	// counted is true where the socket's bytes are counted.
	counted bool
	opened  time.Time
}

// connNames tell what a connection is, cleaned.
type connNames struct{ local, remote, authority, peer string }

// connSums are what a reading that has become a baseline keeps of a connection.
type connSums struct {
	id uint64
	// stamp is when it was opened, which tells connections without a number of their own apart.
	stamp                     int64
	sent, received            uint64 // wire bytes
	sentCount, receivedCount  uint64 // messages
	socketWritten, socketRead uint64
}

// minus takes away what an earlier reading had; what is concurrent with both may not add up yet, and is nothing then.
func (s connSums) minus(earlier connSums) connSums {
	s.sent -= min(s.sent, earlier.sent)
	s.received -= min(s.received, earlier.received)
	s.sentCount -= min(s.sentCount, earlier.sentCount)
	s.receivedCount -= min(s.receivedCount, earlier.receivedCount)
	s.socketWritten -= min(s.socketWritten, earlier.socketWritten)
	s.socketRead -= min(s.socketRead, earlier.socketRead)

	return s
}

// newReading condenses s. Names are taken over from the previous reading, which may be nil: formatting
// the addresses of ten thousand connections takes longer than all the rest.
func newReading(s stats.Snapshot, watched []uint64, previous *reading) *reading {
	r := &reading{
		totals: stats.Snapshot{
			Start: s.Start, Time: s.Time, Closed: s.Closed, Total: s.Total, ClosedSockets: s.ClosedSockets, Sockets: s.Sockets,
		},
		conns:   make([]connLine, 0, len(s.Conns)),
		watched: make(map[uint64][]stats.Row, len(watched)),
	}

	var known []connLine
	if previous != nil {
		known = previous.conns
	}

	for _, c := range s.Conns { // by ID, as previous.conns
		for len(known) > 0 && known[0].id < c.ID {
			known = known[1:]
		}

		line := connLine{client: c.Info.Client, counted: c.HasSocket, opened: c.Opened, connSums: sumsOf(c)}
		if len(known) > 0 && known[0].id == c.ID && c.ID != 0 {
			line.connNames = known[0].connNames
		} else {
			line.connNames = namesOf(c)
		}

		r.conns = append(r.conns, line)

		if c.ID != 0 && slices.Contains(watched, c.ID) {
			r.watched[c.ID] = c.Rows
		}
	}

	return r
}

func sumsOf(c stats.ConnSnapshot) connSums {
	s := connSums{id: c.ID, stamp: c.Opened.UnixNano(), socketRead: c.SocketRead, socketWritten: c.SocketWritten}

	for _, r := range c.Rows {
		if r.Key.Direction == stats.Transmit {
			s.sent += r.Wire.Sum
			s.sentCount += r.Messages
		} else {
			s.received += r.Wire.Sum
			s.receivedCount += r.Messages
		}
	}

	return s
}

// Names for what has none.
const (
	noAddress  = "(no address)"
	beyondConn = "(beyond the limit of connections)"
)

func namesOf(c stats.ConnSnapshot) connNames {
	n := connNames{local: addrName(c.Info.Local), remote: addrName(c.Info.Remote), authority: clean(c.Info.Authority)}

	switch {
	case c.ID == 0:
		n.peer = beyondConn
	case n.authority != "":
		n.peer = n.authority
	default:
		n.peer = hostOf(n.remote)
	}

	return n
}

func addrName(a net.Addr) string {
	if a == nil {
		return noAddress
	}

	if s := clean(a.String()); s != "" {
		return s
	}

	return noAddress
}

// hostOf leaves out the port, which on a server differs with each connection of the same peer.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
		return host
	}

	return address
}

// conn gives the place of a connection among conns.
func (r *reading) conn(id uint64) (int, bool) {
	return slices.BinarySearchFunc(r.conns, id, func(l connLine, id uint64) int { return cmp.Compare(l.id, id) })
}

// baseline is an earlier reading, as much of it as is needed to take it away from a later one.
type baseline struct {
	totals  stats.Snapshot
	conns   []connSums
	watched map[uint64][]stats.Row
	// bytes is about what it holds in memory.
	bytes int
}

func (r *reading) baseline() *baseline {
	b := &baseline{totals: r.totals, conns: make([]connSums, len(r.conns)), watched: r.watched}
	b.totals.Closed = nil

	for i, c := range r.conns {
		b.conns[i] = c.connSums
	}

	const sumsBytes, rowBytes, countBytes = 64, 200, 8

	b.bytes = len(b.conns) * sumsBytes

	add := func(rows []stats.Row) {
		for _, row := range rows {
			b.bytes += rowBytes + countBytes*(len(row.Wire.Counts)+len(row.Size.Counts))
		}
	}

	add(b.totals.Total)

	for _, rows := range b.watched {
		add(rows)
	}

	return b
}

// time is when the baseline was read.
func (b *baseline) time() time.Time { return b.totals.Time }

// sums gives what the connection had counted, nothing if it wasn't there.
func (b *baseline) sums(c connSums) connSums {
	i, _ := slices.BinarySearchFunc(b.conns, c.id, func(s connSums, id uint64) int { return cmp.Compare(s.id, id) })

	for ; i < len(b.conns) && b.conns[i].id == c.id; i++ {
		if b.conns[i].stamp == c.stamp {
			return b.conns[i]
		}
	}

	return connSums{}
}
