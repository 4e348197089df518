package stats

import (
	"cmp"
	"slices"
	"time"
)

// Snapshot is what a registry has counted at a moment, or between two moments ([Snapshot.Sub]).
// Its rows are in the order in which their keys were first seen.
type Snapshot struct {
	// Start is when counting began, Time when the snapshot was taken.
	Start, Time time.Time
	// Conns are the live connections, by ID.
	Conns []ConnSnapshot
	// Closed is what closed connections counted, Total that and the live ones together. They have one row a key and side.
	Closed, Total []Row
	// ClosedSockets has the bytes of the closed connections' sockets, Sockets those of all.
	ClosedSockets, Sockets Sockets
}

// ConnSnapshot is one live connection.
type ConnSnapshot struct {
	// ID is unique in the registry; 0 stands for all connections beyond the limit.
	ID uint64
	// Info tells whose connection it is.
	Info ConnInfo
	// Opened is when the connection was opened, in a window too.
	Opened time.Time
	// SocketRead and SocketWritten are the bytes of the socket, 0 where they aren't counted.
	SocketRead, SocketWritten uint64
	// HasSocket is true where the bytes of the socket are counted.
	HasSocket bool
	// Rows has one row a key. A client's connection that calls several servers by name has one a key and server.
	Rows []Row
}

// Overhead gives the bytes of the socket less the wire bytes of the messages: headers, frames, TLS. It is 0 where the socket isn't
// counted. While messages are under way it is too small for those that were sent and not yet written, too large for those
// that were read and not yet received. It can't be less than 0.
func (c ConnSnapshot) Overhead() (read, written uint64) { return c.Sockets().Overhead() }

// Sockets gives the bytes of the socket and of the messages on it; nothing where the socket isn't counted.
func (c ConnSnapshot) Sockets() Sockets {
	var s Sockets
	addConn(&s, &c)

	return s
}

// Sockets is what was counted of sockets, in bytes.
type Sockets struct {
	// Read and Written are the bytes of the sockets.
	Read, Written uint64
	// MessagesRead and MessagesWritten are the wire bytes of the messages on connections whose sockets are counted.
	MessagesRead, MessagesWritten uint64
}

// Overhead gives the bytes of the sockets less the wire bytes of the messages on them. What is said of [ConnSnapshot.Overhead]
// holds for it too.
func (s Sockets) Overhead() (read, written uint64) {
	return s.Read - min(s.Read, s.MessagesRead), s.Written - min(s.Written, s.MessagesWritten)
}

func addMessages(s *Sockets, r *Row) {
	if r.Key.Direction == Receive {
		s.MessagesRead += r.Wire.Sum
	} else {
		s.MessagesWritten += r.Wire.Sum
	}
}

func addConn(s *Sockets, c *ConnSnapshot) {
	if !c.HasSocket {
		return
	}

	s.Read += c.SocketRead
	s.Written += c.SocketWritten

	for i := range c.Rows {
		addMessages(s, &c.Rows[i])
	}
}

func (s Sockets) sub(earlier Sockets) Sockets {
	return Sockets{
		Read: s.Read - min(s.Read, earlier.Read), Written: s.Written - min(s.Written, earlier.Written),
		MessagesRead:    s.MessagesRead - min(s.MessagesRead, earlier.MessagesRead),
		MessagesWritten: s.MessagesWritten - min(s.MessagesWritten, earlier.MessagesWritten),
	}
}

// Row is what was counted of one key.
type Row struct {
	// Client is true for a message of a client's connection, false for a server's.
	Client bool
	// Server is what the client calls the server: the Authority of the [Registry.Open] that it was recorded on. Empty
	// on a server, and in Closed and Total of a [Snapshot], which add up all servers.
	Server string
	// Key names the row.
	Key Key
	// Messages is the number of messages.
	Messages uint64
	// Wire has the messages' sizes on the wire, Size their uncompressed sizes, in bytes.
	Wire, Size Histogram
	// Exemplar is the largest message of a sampled span; nil where there is none or without [WithExemplars].
	Exemplar *Exemplar
}

// Ratio is the compression ratio: uncompressed bytes by bytes on the wire; 0 where nothing was counted.
// It is below 1 for messages that aren't compressed, because the wire adds 5 bytes to each.
func (r Row) Ratio() float64 {
	if r.Wire.Sum == 0 {
		return 0
	}

	return float64(r.Size.Sum) / float64(r.Wire.Sum)
}

// Snapshot reads all counters. Recording goes on while it reads, so of a message that is recorded meanwhile its count may be
// in the snapshot and its bytes in the next; nothing is ever missing from both. Its cost grows with the number of series.
func (r *Registry) Snapshot() Snapshot {
	r.totals.Lock()
	over := r.settleTotalsLocked()
	s := r.snapshotTotalsLocked()
	r.totals.Unlock()

	if over {
		r.reportWaitingLimit()
	}

	r.settle() // what was closed while the totals were held

	return s
}

func (r *Registry) snapshotTotalsLocked() Snapshot {
	r.mu.Lock()
	live, _ := r.liveLocked()
	// A connection that closes from here on waits for the totals, so what is read of it below is all that it has.
	rows := slices.Clone(r.inOrder)
	closing := slices.Clone(r.closing)
	keys := len(r.keys)
	r.mu.Unlock()

	s := Snapshot{Start: r.start, Time: time.Now(), ClosedSockets: r.closedSockets}
	closed, total := newSums(r, keys), newSums(r, keys)

	for _, row := range rows {
		if row.closed != nil {
			closed.add(row.keyNumber, row.closed)
		}
	}

	for _, c := range snapshots(closing, closed) {
		addConn(&s.ClosedSockets, &c)
	}

	for i := range closed.rows {
		if closed.used[i] {
			closed.rows[i].Server = ""
			total.add(i, &closed.rows[i])
		}
	}

	s.Conns = snapshots(live, total)
	s.Sockets = s.ClosedSockets

	for i := range s.Conns {
		addConn(&s.Sockets, &s.Conns[i])
	}

	for i := range total.rows {
		total.rows[i].Server = ""
	}

	s.Closed, s.Total = closed.result(), total.result()

	return s
}

// snapshots reads connections, in the order of their IDs. What they have counted is added to by key, unless that is nil.
func snapshots(conns []*connection, byKey *sums) []ConnSnapshot {
	slices.SortFunc(conns, func(a, b *connection) int { return cmp.Compare(a.id, b.id) })

	all := make([]ConnSnapshot, 0, len(conns))

	var (
		rows   slab
		buffer []*Series
	)

	for _, c := range conns {
		all = append(all, c.snapshot(&rows, &buffer, byKey))
	}

	return all
}
