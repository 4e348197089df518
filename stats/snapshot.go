package stats

import (
	"cmp"
	"maps"
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
	// Rows has one row a key.
	Rows []Row
}

// Row is what was counted of one key.
type Row struct {
	// Client is true for a message of a client's connection, false for a server's.
	Client bool
	// Key names the row.
	Key Key
	// Messages is the number of messages.
	Messages uint64
	// Wire has the messages' sizes on the wire, Size their uncompressed sizes, in bytes.
	Wire, Size Histogram
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
	defer r.settle() // what was closed while the totals were held
	r.totals.Lock()
	defer r.totals.Unlock()

	r.settleTotalsLocked()

	r.mu.Lock()
	live := slices.Collect(maps.Values(r.live))
	for _, c := range r.beyond {
		if c != nil {
			live = append(live, c)
		}
	}
	// A connection that closes from here on waits for the totals, so what is read of it below is all that it has.
	rows := slices.Clone(r.inOrder)
	closing := slices.Clone(r.closing)
	r.mu.Unlock()

	s := Snapshot{Start: r.start, Time: time.Now(), Conns: make([]ConnSnapshot, 0, len(live))}
	slices.SortFunc(live, func(a, b *connection) int { return cmp.Compare(a.id, b.id) })

	closed := newTally(r.layout)
	for _, row := range rows {
		if row.closed != nil {
			closed.add(*row.closed)
		}
	}

	for _, c := range closing {
		for _, row := range c.rows() {
			closed.add(row)
		}
	}

	total := newTally(r.layout)
	for _, row := range closed.rows {
		total.add(row)
	}

	for _, c := range live {
		one := c.snapshot()
		for _, row := range one.Rows {
			total.add(row)
		}

		s.Conns = append(s.Conns, one)
	}

	s.Closed, s.Total = closed.rows, total.rows

	return s
}

// newRows makes n rows with empty histograms in one block.
func newRows(l *layout, n int) []Row {
	rows := make([]Row, n)
	counts := make([]uint64, n*2*l.buckets())

	for i := range rows {
		rows[i].Wire = Histogram{Bounds: l.bounds, Counts: counts[:l.buckets():l.buckets()]}
		counts = counts[l.buckets():]
		rows[i].Size = Histogram{Bounds: l.bounds, Counts: counts[:l.buckets():l.buckets()]}
		counts = counts[l.buckets():]
	}

	return rows
}

// tally adds up rows by key.
type tally struct {
	layout *layout
	index  map[rowID]int
	rows   []Row
}

func newTally(l *layout) *tally { return &tally{layout: l, index: make(map[rowID]int)} }

func (t *tally) add(r Row) {
	id := rowID{r.Client, r.Key}

	i, ok := t.index[id]
	if !ok {
		i = len(t.rows)
		t.index[id] = i
		t.rows = append(t.rows, newRows(t.layout, 1)[0])
		t.rows[i].Client, t.rows[i].Key = r.Client, r.Key
	}

	t.rows[i].Messages += r.Messages
	t.rows[i].Wire.add(r.Wire)
	t.rows[i].Size.add(r.Size)
}
