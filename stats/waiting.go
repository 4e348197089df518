package stats

import "time"

// waiting has the closed connections that some reader has not yet seen, oldest first. Their counts are in the totals of closed
// connections already: what waits here is a copy. Guarded by Registry.totals.
type waiting struct {
	// first is the number of ended[0]; each closed connection gets the next number.
	first uint64
	ended []waitingConn
	// series is how many series they have together.
	series int
}

type waitingConn struct {
	ClosedConn

	connection *connection
}

// weight is what a closed connection counts towards the limit. One without series takes memory too.
func (w waitingConn) weight() int { return len(w.Rows) + 1 }

func (w *waiting) add(c *connection, ended ClosedConn) {
	e := waitingConn{ended, c}
	w.ended = append(w.ended, e)
	w.series += e.weight()
}

// next is the number of the connection that closes next.
func (w *waiting) next() uint64 { return w.first + uint64(len(w.ended)) }

// drop forgets the n oldest.
func (w *waiting) drop(n int) {
	for _, e := range w.ended[:n] {
		w.series -= e.weight()
	}

	w.first += uint64(n)
	clear(w.ended[:n])
	w.ended = w.ended[n:] // append moves the rest to a new array some time; moving it each time would cost far more

	if len(w.ended) == 0 {
		w.ended = nil
	}
}

// trimTotalsLocked forgets what all readers have seen.
func (r *Registry) trimTotalsLocked() {
	next := r.waiting.next()
	for _, rd := range r.readers {
		next = min(next, rd.next)
	}

	if n := next - r.waiting.first; n > 0 {
		r.waiting.drop(int(n))
	}
}

// limitWaitingTotalsLocked forgets the oldest beyond the limit and tells whether there were any. For the readers that have not
// seen them they are counted together, but for those that a reader has read while they were live: what it has read of these
// can't be taken back, so it keeps them, and they are no more than were live then.
func (r *Registry) limitWaitingTotalsLocked() (over bool) {
	n, series := 0, r.waiting.series

	for _, e := range r.waiting.ended {
		if series <= r.limits.waiting {
			break
		}

		for _, rd := range r.readers {
			if rd.next != r.waiting.first+uint64(n) {
				continue
			}

			rd.next++

			if e.ID != 0 && e.ID <= rd.lastID && !e.Late {
				rd.kept = append(rd.kept, e)
			} else {
				rd.missed.add(r, e)
			}
		}

		series -= e.weight()
		n++
	}

	if n > 0 {
		r.waiting.drop(n)
	}

	return n > 0
}

func (r *Registry) reportWaitingLimit() {
	r.reportf(reportWaiting, "more than %d series of closed connections wait for a reader that doesn't read: "+
		"for it the oldest are counted together (WithWaitingLimit)", r.limits.waiting)
}

// missed adds up the closed connections that a reader didn't fetch in time, by side and by whether they had a socket.
type missed [4]*missedConn

type missedConn struct {
	ClosedConn

	byID map[rowID]int
}

func (m *missed) add(r *Registry, e waitingConn) {
	i := 0
	if e.Info.Client {
		i++
	}

	if e.HasSocket {
		i += 2
	}

	if m[i] == nil {
		m[i] = &missedConn{byID: make(map[rowID]int)}
		m[i].Info.Client, m[i].HasSocket, m[i].Opened = e.Info.Client, e.HasSocket, e.Opened
	}

	m[i].add(r, e.ClosedConn)
}

// add adds the counts of another closed connection.
func (m *missedConn) add(r *Registry, other ClosedConn) {
	if other.Opened.Before(m.Opened) {
		m.Opened = other.Opened
	}

	m.Closed = other.Closed
	m.SocketRead += other.SocketRead
	m.SocketWritten += other.SocketWritten

	for i := range other.Rows {
		row := &other.Rows[i]

		at, ok := m.byID[row.id()]
		if !ok {
			at = len(m.Rows)
			m.byID[row.id()] = at
			m.Rows = append(m.Rows, newRows(r.layout, 1)[0])
			m.Rows[at].Client, m.Rows[at].Server, m.Rows[at].Key = row.Client, row.Server, row.Key
		}

		addRow(&m.Rows[at], row)
		m.Rows[at].Exemplar = r.better(m.Rows[at].Exemplar, row.Exemplar)
	}
}

// merge gives one closed connection for two that are the same: the first time and what came late.
func merge(r *Registry, first, late ClosedConn) ClosedConn {
	m := missedConn{ClosedConn: first, byID: make(map[rowID]int)}
	m.Rows, m.SocketRead, m.SocketWritten = nil, 0, 0
	m.add(r, first)
	m.add(r, late)

	return m.ClosedConn
}

// fresh tells whether an exemplar is newer than the last reading.
func (r *Registry) fresh(e *Exemplar) bool { return int64(e.Time.Sub(r.start)) > r.collected.Load() }

// better gives the exemplar to keep: the newer one if a reader has read in between, else the larger.
func (r *Registry) better(a, b *Exemplar) *Exemplar {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}

	if fresh := r.fresh(b); fresh != r.fresh(a) {
		if fresh {
			return b
		}

		return a
	}

	if b.Size > a.Size {
		return b
	}

	return a
}

// since gives e if it is newer than t.
func (e *Exemplar) since(t time.Time) *Exemplar {
	if e == nil || !e.Time.After(t) {
		return nil
	}

	return e
}
