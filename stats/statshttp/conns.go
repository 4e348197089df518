package statshttp

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/otelproto/otelproto-go/stats"
)

func connColumns() []string {
	return []string{"wire", "sent", "received", "age", "lifetime", "overhead", "peer", "id"}
}

func peerColumns() []string { return []string{"wire", "sent", "received", "connections", "peer"} }

// connWindow is a connection and what it carried within the window.
type connWindow struct {
	connLine

	in connSums
}

func (c *connWindow) wire() uint64 { return c.in.sent + c.in.received }

// matches tells whether the filters leave a connection.
func (b builder) matches(c *connWindow) bool {
	if b.q.side != "" && b.q.side != sideOf(c.client) {
		return false
	}

	return contains(b.q.peer, c.peer, c.remote, c.local, c.authority)
}

func compareConns(column string) func(a, b *connWindow) int {
	switch column {
	case "sent":
		return func(a, b *connWindow) int { return cmp.Compare(a.in.sent, b.in.sent) }
	case "received":
		return func(a, b *connWindow) int { return cmp.Compare(a.in.received, b.in.received) }
	case "age":
		return func(a, b *connWindow) int { return b.opened.Compare(a.opened) }
	case "lifetime":
		return func(a, b *connWindow) int { return cmp.Compare(a.sent+a.received, b.sent+b.received) }
	case "overhead":
		return func(a, b *connWindow) int { return cmp.Compare(a.overheadShare(), b.overheadShare()) }
	case "peer":
		return func(a, b *connWindow) int { return strings.Compare(a.peer, b.peer) }
	case "id":
		return func(a, b *connWindow) int { return cmp.Compare(a.id, b.id) }
	default:
		return func(a, b *connWindow) int { return cmp.Compare(a.wire(), b.wire()) }
	}
}

// overheadShare puts a connection whose socket isn't counted after all others.
func (c *connWindow) overheadShare() float64 {
	if !c.counted {
		return -1
	}

	return socketOf(c.sockets()).OverheadShare
}

func (b builder) connectionTable(conns []connWindow) connectionTable {
	var matched []*connWindow // by ID

	for i := range conns {
		if b.matches(&conns[i]) {
			matched = append(matched, &conns[i])
		}
	}

	ordered(matched, b.q.conns, compareConns)

	shown, table := pageOf(matched, len(conns), b.q.conns, b.q.limit)
	t := connectionTable{tableView: table, List: make([]connectionRow, 0, len(shown))}

	for _, c := range shown {
		t.List = append(t.List, b.connectionRow(c))
	}

	return t
}

func (b builder) connectionRow(c *connWindow) connectionRow {
	row := connectionRow{
		ID: c.id, Side: sideOf(c.client), Peer: c.peer, Local: c.local, Remote: c.remote, Authority: c.authority,
		Opened: c.opened, AgeSeconds: secondsSince(c.opened, b.reading.totals.Time),
		Sent: b.flowShort(c.in.sentCount, c.in.sent), Received: b.flowShort(c.in.receivedCount, c.in.received),
		Share:    ratio(c.wire(), b.connBytes),
		Lifetime: lifetimeView{SentWireBytes: c.sent, ReceivedWireBytes: c.received},
	}

	if c.counted {
		socket := socketOf(c.sockets())
		row.Lifetime.Socket = &socket
	}

	return row
}

// socketOf tells what the sockets carried beside messages.
func socketOf(s stats.Sockets) socketView {
	read, written := s.Overhead()

	return socketView{
		Written: s.Written, Read: s.Read, SentWire: s.MessagesWritten, ReceivedWire: s.MessagesRead,
		WrittenOverhead: written, ReadOverhead: read, OverheadShare: ratio(read+written, s.Read+s.Written),
	}
}

// sockets gives the sums of a connection as those of its socket.
func (s connSums) sockets() stats.Sockets {
	return stats.Sockets{Read: s.socketRead, Written: s.socketWritten, MessagesRead: s.received, MessagesWritten: s.sent}
}

// sockets are those of all connections, also of those that were closed within the window, or of the one that is looked at.
func (b builder) sockets(conns []connWindow) socketsView {
	var v socketsView

	for i := range conns {
		if conns[i].counted {
			v.Connections++
		}
	}

	sums := b.window.Sockets
	if b.q.conn != 0 {
		sums = stats.Sockets{}

		if conns[0].counted {
			sums = conns[0].in.sockets()
		}
	}

	v.socketView = socketOf(sums)
	v.WrittenPerSecond, v.ReadPerSecond = b.window.PerSecond(sums.Written), b.window.PerSecond(sums.Read)

	return v
}

// peerSums are the live connections with one peer.
type peerSums struct {
	client bool
	peer   string
	conns  int
	oldest time.Time
	in     connSums
}

func (p *peerSums) wire() uint64 { return p.in.sent + p.in.received }

func (b builder) peerTable(conns []connWindow) peerTable {
	type peerID struct {
		client bool
		peer   string
	}

	index := make(map[peerID]*peerSums)

	var matched []*peerSums

	total := make(map[peerID]struct{})

	for i := range conns {
		c := &conns[i]
		id := peerID{c.client, c.peer}
		total[id] = struct{}{}

		if !b.matches(c) {
			continue
		}

		p := index[id]
		if p == nil {
			p = &peerSums{client: c.client, peer: c.peer, oldest: c.opened}
			index[id] = p
			matched = append(matched, p)
		}

		p.conns++
		p.in.sent += c.in.sent
		p.in.received += c.in.received
		p.in.sentCount += c.in.sentCount
		p.in.receivedCount += c.in.receivedCount

		if c.opened.Before(p.oldest) {
			p.oldest = c.opened
		}
	}

	slices.SortFunc(matched, func(a, b *peerSums) int {
		return cmp.Or(strings.Compare(a.peer, b.peer), strings.Compare(sideOf(a.client), sideOf(b.client)))
	})
	ordered(matched, b.q.peers, comparePeers)

	shown, table := pageOf(matched, len(total), b.q.peers, b.q.limit)
	t := peerTable{tableView: table, List: make([]peerRow, 0, len(shown))}

	for _, p := range shown {
		t.List = append(t.List, peerRow{
			Side: sideOf(p.client), Peer: p.peer, Connections: p.conns, Oldest: p.oldest,
			Sent: b.flowShort(p.in.sentCount, p.in.sent), Received: b.flowShort(p.in.receivedCount, p.in.received),
			Share: ratio(p.wire(), b.connBytes),
		})
	}

	return t
}

func comparePeers(column string) func(a, b *peerSums) int {
	switch column {
	case "sent":
		return func(a, b *peerSums) int { return cmp.Compare(a.in.sent, b.in.sent) }
	case "received":
		return func(a, b *peerSums) int { return cmp.Compare(a.in.received, b.in.received) }
	case "connections":
		return func(a, b *peerSums) int { return cmp.Compare(a.conns, b.conns) }
	case "peer":
		return func(a, b *peerSums) int { return strings.Compare(a.peer, b.peer) }
	default:
		return func(a, b *peerSums) int { return cmp.Compare(a.wire(), b.wire()) }
	}
}
