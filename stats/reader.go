package stats

import (
	"slices"
	"time"
)

// Reader reads a registry at its own pace, as a producer of metrics does. Make it with [Registry.NewReader] or
// [Registry.NewConnReader]. Its methods are safe for concurrent use; two readings of one registry wait for each other.
type Reader struct {
	registry *Registry
	perConn  bool

	// The fields below are guarded by Registry.totals.

	// last is the time of the last reading.
	last   time.Time
	closed bool
	// next is the number of the first closed connection that this reader has not seen.
	next uint64
	// missed and kept are closed connections that waited beyond the limit: kept those that this reader has read live, which
	// have IDs up to lastID.
	missed missed
	kept   []waitingConn
	lastID uint64
}

// Reading is what a [Reader] reads. Its rows may be shared with other readings: don't change them.
type Reading struct {
	// Start is when counting began. Last is the time of the reader's reading before, Start if there was none.
	Start, Last, Time time.Time
	// Live is the number of live connections.
	Live int
	// Sockets has the bytes of all sockets, live and closed.
	Sockets Sockets
	// Sums has what live and closed connections have counted together since Start, one row a side, server and key.
	// Nil from a reader made by [Registry.NewConnReader].
	Sums []Row
	// Conns are the live connections by ID, and Closed those that closed since Last, with their final counts, and then never
	// again, each in one of the two. Nil from a reader made by [Registry.NewReader].
	Conns  []ConnSnapshot
	Closed []ClosedConn
}

// ClosedConn is a connection that has closed, with all that it has counted. ID 0 stands for connections that were not told
// apart: those beyond [WithConnLimit], and those that waited for this reader beyond [WithWaitingLimit].
type ClosedConn struct {
	ConnSnapshot

	// Closed is when it was closed.
	Closed time.Time
	// Late is true where the connection itself was in an earlier reading: Rows and socket bytes are then what was counted
	// after that, by an RPC that ended late.
	Late bool
}

// NewReader makes a reader of the sums over all connections. It needs no Close.
func (r *Registry) NewReader() *Reader { return &Reader{registry: r} }

// NewConnReader makes a reader of each connection. From now on each connection that closes is kept until every such reader
// has seen it, with the limit of [WithWaitingLimit]. Close the reader when it is no longer used.
// It waits for a snapshot or a reading that is under way.
func (r *Registry) NewConnReader() *Reader {
	r.totals.Lock()
	defer r.totals.Unlock()

	rd := &Reader{registry: r, perConn: true, next: r.waiting.next()}
	r.readers = append(r.readers, rd)

	return rd
}

// Close ends the reader: nothing is kept for it any more, and Read gives empty readings. It waits for a snapshot or a reading
// that is under way. It may be called more than once.
func (rd *Reader) Close() {
	r := rd.registry

	r.totals.Lock()
	defer r.totals.Unlock()

	rd.closed, rd.missed, rd.kept = true, missed{}, nil
	r.readers = slices.DeleteFunc(r.readers, func(other *Reader) bool { return other == rd })
	r.trimTotalsLocked()
}

// Read reads all counters. Its cost grows with the number of series, while recording, Open, Series and Close go on.
func (rd *Reader) Read() Reading {
	r := rd.registry

	r.totals.Lock()
	over := r.settleTotalsLocked()
	reading := rd.readTotalsLocked()
	r.totals.Unlock()

	if over {
		r.reportWaitingLimit()
	}

	r.settle() // what was closed while the totals were held

	return reading
}

func (rd *Reader) readTotalsLocked() Reading {
	r := rd.registry

	if rd.closed {
		return Reading{Start: r.start, Last: rd.last, Time: time.Now()}
	}

	r.mu.Lock()
	live, n := r.liveLocked()
	// What closes from here on waits for the totals. It stays among the live ones until the next reading.
	live = append(live, r.closing...)
	rows := slices.Clone(r.inOrder)
	rd.lastID = r.lastID
	now := time.Now() // with mu held, so that what isn't among the live ones is opened later
	r.mu.Unlock()

	reading := Reading{Start: r.start, Last: rd.last, Time: now, Live: n, Sockets: r.closedSockets}
	if rd.last.IsZero() {
		reading.Last = r.start
	}

	if rd.perConn {
		rd.readConnsTotalsLocked(&reading, live)
	} else {
		rd.readSumsTotalsLocked(&reading, live, rows)
	}

	rd.last = reading.Time
	r.collected.Store(int64(reading.Time.Sub(r.start)))

	return reading
}

func (rd *Reader) readConnsTotalsLocked(reading *Reading, live []*connection) {
	reading.Conns = snapshots(live, nil)

	for i := range reading.Conns {
		addConn(&reading.Sockets, &reading.Conns[i])
		sinceRows(reading.Conns[i].Rows, rd.last)
	}

	reading.Closed = rd.takeClosedTotalsLocked()
}

// takeClosedTotalsLocked gives each connection that closed since the last reading, once.
func (rd *Reader) takeClosedTotalsLocked() []ClosedConn {
	w := &rd.registry.waiting
	fresh := slices.Concat(rd.kept, w.ended[rd.next-w.first:])
	closed := make([]ClosedConn, 0, len(fresh))
	index := make(map[*connection]int, len(fresh))

	for _, m := range rd.missed {
		if m != nil {
			closed = append(closed, m.ClosedConn)
		}
	}

	for _, e := range fresh {
		if i, ok := index[e.connection]; ok {
			closed[i] = merge(rd.registry, closed[i], e.ClosedConn)
		} else {
			index[e.connection] = len(closed)
			closed = append(closed, e.ClosedConn)
		}
	}

	rd.missed, rd.kept, rd.next = missed{}, nil, w.next()
	rd.registry.trimTotalsLocked()

	return closed
}

func (rd *Reader) readSumsTotalsLocked(reading *Reading, live []*connection, rows []*row) {
	r := rd.registry
	sum := newSums(r, len(rows))

	for _, row := range rows {
		if row.closed != nil {
			sum.add(row.number, row.closed)
		}
	}

	var buffer []*Series

	for _, c := range live {
		c.mu.Lock()
		buffer = append(buffer[:0], c.series...)
		c.mu.Unlock()

		for _, s := range buffer {
			row := &r.scratch
			reset(row)
			s.row.name(row)
			s.addTo(row, false)
			sum.add(s.row.number, row)

			if c.hasSocket {
				addMessages(&reading.Sockets, row)
			}
		}

		reading.Sockets.Read += c.read.Load()
		reading.Sockets.Written += c.written.Load()
	}

	reading.Sums = sum.result()
	sinceRows(reading.Sums, rd.last)
}

// sinceRows leaves out the exemplars that an earlier reading had.
func sinceRows(rows []Row, last time.Time) {
	for i := range rows {
		rows[i].Exemplar = rows[i].Exemplar.since(last)
	}
}
