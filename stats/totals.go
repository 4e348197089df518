package stats

import (
	"slices"
	"time"
)

// recordedLate is called when a message was recorded on a series that had already moved to the totals.
func (r *Registry) recordedLate(s *Series) {
	r.mu.Lock()
	r.late = append(r.late, s)
	r.mu.Unlock()
	r.settle()
}

// countedLate is called when bytes were counted of a socket that had already moved to the totals.
func (r *Registry) countedLate(c *connection) {
	r.mu.Lock()
	r.lateSockets = append(r.lateSockets, c)
	r.mu.Unlock()
	r.settle()
}

// settle moves what is to be moved to the totals, unless somebody else holds them, who then does it on letting go.
func (r *Registry) settle() {
	for r.unsettled() && r.totals.TryLock() {
		over := r.settleTotalsLocked()
		r.totals.Unlock()

		if over {
			r.reportWaitingLimit()
		}
	}
}

func (r *Registry) unsettled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	return len(r.closing) > 0 || len(r.late) > 0 || len(r.lateSockets) > 0
}

// settleTotalsLocked tells whether readers lost sight of connections.
func (r *Registry) settleTotalsLocked() (over bool) {
	r.mu.Lock()
	closing, late, sockets := r.closing, r.late, r.lateSockets
	r.closing, r.late, r.lateSockets = nil, nil, nil
	r.mu.Unlock()

	for _, c := range closing {
		r.foldTotalsLocked(c)
	}

	for _, s := range late {
		c := s.retired.Load()
		r.endTotalsLocked(c, []*Series{s}, true)
	}

	for _, c := range sockets {
		r.endTotalsLocked(c, nil, true)
	}

	return r.limitWaitingTotalsLocked()
}

// foldTotalsLocked moves what a connection has counted to the totals of closed connections.
func (r *Registry) foldTotalsLocked(c *connection) {
	c.mu.Lock()
	c.folded = true
	series := c.series
	c.series = nil
	c.mu.Unlock()

	c.retired.Store(true)

	for _, s := range series {
		s.retired.Store(c)
	}

	r.endTotalsLocked(c, series, false)
}

// endTotalsLocked takes the counts of series and of the socket to the totals, and for the readers if there are any.
func (r *Registry) endTotalsLocked(c *connection, series []*Series, late bool) {
	var ended ClosedConn

	if len(r.readers) > 0 {
		ended.Rows = newRows(r.layout, len(series))
	}

	for i, s := range series {
		row := &r.scratch
		if len(r.readers) > 0 {
			row = &ended.Rows[i]
		} else {
			reset(row)
		}

		s.row.name(row)
		s.addTo(row, true)
		r.closeRowTotalsLocked(s.row, row, c.hasSocket)
	}

	ended.SocketRead, ended.SocketWritten = c.read.Swap(0), c.written.Swap(0)
	r.closedSockets.Read += ended.SocketRead
	r.closedSockets.Written += ended.SocketWritten

	if len(r.readers) == 0 {
		return
	}

	ended.Rows = slices.DeleteFunc(ended.Rows, func(row Row) bool { return isEmpty(&row) })
	if late && len(ended.Rows) == 0 && ended.SocketRead == 0 && ended.SocketWritten == 0 {
		return
	}

	c.mu.Lock()
	ended.Info = c.info
	c.mu.Unlock()

	ended.ID, ended.Opened, ended.HasSocket = c.id, c.opened, c.hasSocket
	ended.Closed, ended.Late = time.Now(), late
	r.waiting.add(c, ended)
}

func (r *Registry) closeRowTotalsLocked(to *row, row *Row, hasSocket bool) {
	if isEmpty(row) && row.Exemplar == nil {
		return
	}

	closed := to.closedRow()
	addRow(closed, row)
	closed.Exemplar = r.better(closed.Exemplar, row.Exemplar)

	if hasSocket {
		addMessages(&r.closedSockets, row)
	}
}
