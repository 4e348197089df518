package stats

import "time"

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
	gone := earlier.Closed
	for _, c := range before {
		gone = append(gone[:len(gone):len(gone)], c.Rows...)
	}

	w.Closed = subRows(s.Closed, gone)
	w.Total = subRows(s.Total, earlier.Total)

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
	number uint64
	client bool
	opened int64
}

func (c ConnSnapshot) id() connID { return connID{c.ID, c.Info.Client, c.Opened.UnixNano()} }

// subRows takes the earlier rows from the later ones and leaves out what has nothing left.
func subRows(later, earlier []Row) []Row {
	before := make(map[rowID][]Row, len(earlier))
	for _, r := range earlier {
		id := rowID{r.Client, r.Key}
		before[id] = append(before[id], r)
	}

	rows := make([]Row, 0, len(later))

	for _, r := range later {
		for _, b := range before[rowID{r.Client, r.Key}] {
			r.Messages -= min(r.Messages, b.Messages)
			r.Wire, r.Size = r.Wire.sub(b.Wire), r.Size.sub(b.Size)
		}

		if r.Messages > 0 || r.Wire.Sum > 0 || r.Size.Sum > 0 {
			rows = append(rows, r)
		}
	}

	return rows
}
