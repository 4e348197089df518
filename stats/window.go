package stats

import (
	"slices"
	"time"
)

// Sub gives what was counted between an earlier snapshot of the same registry and this one: Start is the earlier Time.
// Conns has the connections that are live now, without rows in which nothing was counted. Closed has what connections
// that are closed now counted within the window, Total all of the window.
func (s Snapshot) Sub(earlier Snapshot) Snapshot {
	before := make(map[connID]ConnSnapshot, len(earlier.Conns))
	for _, c := range earlier.Conns {
		before[c.id()] = c
	}

	w := Snapshot{Start: earlier.Time, Time: s.Time, Conns: make([]ConnSnapshot, 0, len(s.Conns))}

	for _, c := range s.Conns {
		b := before[c.id()]
		delete(before, c.id())

		c.SocketRead -= min(c.SocketRead, b.SocketRead)
		c.SocketWritten -= min(c.SocketWritten, b.SocketWritten)
		c.Rows = subRows(c.Rows, b.Rows)
		w.Conns = append(w.Conns, c)
	}

	// What was live before and is no longer, has its earlier counts in Closed now.
	gone, goneSockets := slices.Clone(earlier.Closed), earlier.ClosedSockets

	for _, c := range before {
		addConn(&goneSockets, &c)

		for _, r := range c.Rows {
			r.Server = "" // as in Closed
			gone = append(gone, r)
		}
	}

	w.Closed = subRows(s.Closed, gone)
	w.Total = subRows(s.Total, earlier.Total)
	w.ClosedSockets = s.ClosedSockets.sub(goneSockets)
	w.Sockets = s.Sockets.sub(earlier.Sockets)

	for _, rows := range [][]Row{w.Closed, w.Total} {
		sinceRows(rows, w.Start)
	}

	for i := range w.Conns {
		sinceRows(w.Conns[i].Rows, w.Start)
	}

	return w
}

// Duration is the length of the window, or since counting began.
func (s Snapshot) Duration() time.Duration { return s.Time.Sub(s.Start) }

// PerSecond is n a second over the snapshot's duration; 0 where it has none.
func (s Snapshot) PerSecond(n uint64) float64 {
	d := s.Duration().Seconds()
	if d <= 0 {
		return 0
	}

	return float64(n) / d
}

// Share is the share, 0 to 1, of all wire bytes of the snapshot, in both directions, that r has.
func (s Snapshot) Share(r Row) float64 {
	var all uint64
	for _, row := range s.Total {
		all += row.Wire.Sum
	}

	if all == 0 {
		return 0
	}

	return float64(r.Wire.Sum) / float64(all)
}

// connID names a connection of a registry. Those beyond the limit of connections have no number, but come and go too.
type connID struct {
	number         uint64
	client, socket bool
	opened         int64
}

func (c ConnSnapshot) id() connID {
	if c.ID != 0 {
		return connID{number: c.ID}
	}

	return connID{client: c.Info.Client, socket: c.HasSocket, opened: c.Opened.UnixNano()}
}

// subRows takes the earlier rows, of which several may have the same key, from the later ones, and leaves out what has
// nothing left. The later rows are not changed.
func subRows(later, earlier []Row) []Row {
	index := make(map[rowID]int, len(later))
	rows := make([]Row, len(later))

	for i, r := range later {
		r.Wire, r.Size = r.Wire.clone(), r.Size.clone()
		rows[i], index[r.id()] = r, i
	}

	for i := range earlier {
		b := &earlier[i]

		if at, ok := index[b.id()]; ok {
			r := &rows[at]
			r.Messages -= min(r.Messages, b.Messages)
			subHistogram(&r.Wire, b.Wire)
			subHistogram(&r.Size, b.Size)
		}
	}

	return slices.DeleteFunc(rows, func(r Row) bool { return isEmpty(&r) })
}
