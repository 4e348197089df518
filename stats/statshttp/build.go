package statshttp

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/otelproto/otelproto-go/stats"
)

// builder makes the view of a reading for a query.
type builder struct {
	q       query
	reading *reading
	base    *baseline
	// window is what was counted between base and reading, of all connections or of the one that is looked at.
	window stats.Snapshot
	// conns are all live connections, connBytes their wire bytes within the window.
	conns     []connWindow
	connBytes uint64
	// traceURL gives the address of a trace; nil where none is known.
	traceURL func(traceID, spanID string) string
}

func newBuilder(c config, q query, r *reading, base *baseline) builder {
	b := builder{q: q, reading: r, base: base, traceURL: c.traceURL}
	now, before := r.totals, base.totals

	if q.conn != 0 {
		now.Total, before.Total = r.watched[q.conn], base.watched[q.conn]
		now.Closed = nil
	}

	b.window = now.Sub(before)
	b.conns = make([]connWindow, len(r.conns))

	for i, line := range r.conns {
		b.conns[i] = connWindow{connLine: line, in: line.minus(base.sums(line.connSums))}
		b.connBytes += b.conns[i].wire()
	}

	return b
}

// view puts all together but for the sections. It is false where the connection that is looked at isn't live.
func (b builder) view(title string) (view, bool) {
	v := view{
		Schema: schemaVersion, Title: clean(title), Start: b.reading.totals.Start, Time: b.reading.totals.Time,
		Window: b.windowView(),
		Bounds: []float64{},
	}

	conns := b.conns

	if b.q.conn != 0 {
		i, ok := b.reading.conn(b.q.conn)
		if !ok {
			return view{}, false
		}

		conns = conns[i : i+1]
		row := b.connectionRow(&conns[0])
		v.Connection = &row
	}

	if rows := b.reading.totals.Total; len(rows) > 0 && len(rows[0].Wire.Bounds) > 0 {
		v.Bounds = rows[0].Wire.Bounds
	}

	v.Summary = b.summary()
	v.Messages = b.messageTable()
	v.Peers = b.peerTable(conns)
	v.Connections = b.connectionTable(conns)
	v.Sockets = b.sockets(conns)
	v.Closed = b.closed()

	return v, true
}

func (b builder) windowView() windowView {
	w := windowView{Asked: all, Start: b.window.Start, Seconds: b.window.Duration().Seconds()}
	if b.q.window == 0 {
		return w
	}

	w.Asked = shortDuration(b.q.window)

	switch d := b.window.Duration(); {
	case factor(d, b.q.window) < nearly:
	case !b.base.earlier():
		w.Note = fmt.Sprintf("There is no reading from %s ago yet, so this is all %s since %s.", w.Asked, age(d), b.sinceWhat())
	default:
		w.Note = fmt.Sprintf("There is no reading from %s ago, so this is the last %s.", w.Asked, age(d))
	}

	return w
}

// nearly is the factor (as a logarithm, about 1.5) up to which a window is taken for the one that was asked for.
const nearly = 0.4

func (b builder) sinceWhat() string {
	if b.q.conn != 0 {
		return "the connection was opened"
	}

	return "counting began"
}

// earlier is true for a reading, false for counting from zero.
func (b *baseline) earlier() bool { return b.conns != nil }

func (b builder) flow(messages, wire, size uint64) flow {
	return flow{
		Messages: messages, WireBytes: wire, SizeBytes: size,
		MessagesPerSecond: b.window.PerSecond(messages), WireBytesPerSecond: b.window.PerSecond(wire),
	}
}

func (b builder) flowShort(messages, wire uint64) flowShort {
	return flowShort{
		Messages: messages, WireBytes: wire,
		MessagesPerSecond: b.window.PerSecond(messages), WireBytesPerSecond: b.window.PerSecond(wire),
	}
}

func (b builder) summary() summaryView {
	var s summaryView

	for _, c := range b.reading.conns {
		if c.client {
			s.LiveClient++
		} else {
			s.LiveServer++
		}
	}

	s.LiveConnections = s.LiveClient + s.LiveServer

	var sent, received messageGroup

	for _, r := range b.window.Total {
		if r.Key.Direction == stats.Transmit {
			sent.add(r)
		} else {
			received.add(r)
		}
	}

	s.Sent = b.flow(sent.Messages, sent.Wire.Sum, sent.Size.Sum)
	s.Received = b.flow(received.Messages, received.Wire.Sum, received.Size.Sum)
	s.CompressionRatio = ratio(s.Sent.SizeBytes+s.Received.SizeBytes, s.Sent.WireBytes+s.Received.WireBytes)
	s.Types, s.Sentence = b.topTypes()

	return s
}

const (
	// mostShare is what the types that the sentence names have together, if so few are enough.
	mostShare = 0.95
	mostTypes = 5
)

// topTypes gives the types that have nearly all of the bytes, and says so.
func (b builder) topTypes() ([]typeShare, string) {
	groups := groupRows(b.window.Total, func(r stats.Row) rowGroup { return rowGroup{typ: r.Key.Type} })
	sum := wireOf(groups)

	if sum == 0 {
		return []typeShare{}, "No messages in this window."
	}

	sortGroups(groups)

	top, together := []typeShare{}, 0.0

	for _, g := range groups[:min(len(groups), mostTypes)] {
		share := float64(g.Wire.Sum) / float64(sum)
		top = append(top, typeShare{Type: clean(g.Key.Type), WireBytes: g.Wire.Sum, Share: share})
		together += share

		if together >= mostShare {
			break
		}
	}

	if len(top) == len(groups) {
		return top, fmt.Sprintf("%s: %s of the bytes.", typesText(len(top)), percent(1))
	}

	verb := "are"
	if len(top) == 1 {
		verb = "is"
	}

	return top, fmt.Sprintf("%s of %d %s %s of the bytes.", typesText(len(top)), len(groups), verb, percent(together))
}

// typesText writes a small number of types as a word.
func typesText(n int) string {
	words := []string{"No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten"}

	s := strconv.Itoa(n)
	if n < len(words) {
		s = words[n]
	}

	if n == 1 {
		return s + " type"
	}

	return s + " types"
}

func ratio(size, wire uint64) float64 {
	if wire == 0 {
		return 0
	}

	return float64(size) / float64(wire)
}

// pageOf gives the part of the rows that is shown, and says so.
func pageOf[T any](rows []T, all int, l listing, limit int) ([]T, tableView) {
	t := tableView{Rows: all, Matched: len(rows), Page: l.page, Pages: max(1, (len(rows)+limit-1)/limit), Sort: l.sort}
	t.Page = min(t.Page, t.Pages) // the rows that were on it may be gone since the link was made

	return rows[min(len(rows), (t.Page-1)*limit):min(len(rows), t.Page*limit)], t
}

// contains tells whether one of the names has what is looked for, which is in lower case.
func contains(lower string, names ...string) bool {
	if lower == "" {
		return true
	}

	for _, n := range names {
		if strings.Contains(strings.ToLower(n), lower) {
			return true
		}
	}

	return false
}

const (
	sideClient = "client"
	sideServer = "server"
)

func sideOf(client bool) string {
	if client {
		return sideClient
	}

	return sideServer
}

func secondsSince(t, now time.Time) float64 { return max(0, now.Sub(t).Seconds()) }
