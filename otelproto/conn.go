package otelproto

import (
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
)

// connTable has the connections that are open.
//
// A connection is open while grpc-go says that its socket is, and while RPCs on it run: on a client, OutHeader may come
// after the socket has ended, and on both sides an RPC may still deliver what was received before that.
type connTable struct {
	sink sink
	// routeLimit is how many methods (with retries and attributes) a connection tells apart.
	routeLimit int

	// mu guards sockets and what the sockets and the connections say it guards. Nothing is opened or closed in the sink
	// while it is held.
	mu      sync.RWMutex
	sockets map[socketKey]*socket
}

// socketKey tells sockets apart. Real addresses are pointers, of which each socket has its own; addresses that are values
// (in-memory pipes, ServeHTTP) may be equal, and then share one connection.
type socketKey struct{ local, remote any }

func newSocketKey(local, remote net.Addr) socketKey {
	return socketKey{mapKey(local), mapKey(remote)}
}

// mapKey gives a value that can stand in a map key.
func mapKey(a net.Addr) any {
	if a == nil || reflect.TypeOf(a).Kind() == reflect.Pointer { // nearly always; asking the value allocates
		return a
	}

	if reflect.ValueOf(a).Comparable() {
		return a
	}

	return a.Network() + " " + a.String()
}

// socket is one pair of addresses.
type socket struct {
	key socketKey
	// begun counts the TagConns that have not ended. Changed only while connTable.mu is held for writing.
	begun atomic.Int64
	// conns has one connection an authority, nearly always one altogether. Guarded by connTable.mu.
	conns []*conn
}

// conn is one connection.
type conn struct {
	socket    *socket
	authority string
	sink      sinkConn
	// users counts the RPCs. It grows only while connTable.mu is held for reading or writing, and it is looked at for zero
	// only while it is held for writing.
	users atomic.Int64

	routes routes
}

func newConnTable(s sink, routeLimit int) *connTable {
	return &connTable{sink: s, routeLimit: routeLimit, sockets: make(map[socketKey]*socket)}
}

// begin says that a socket is open.
func (t *connTable) begin(local, remote net.Addr) *socket {
	key := newSocketKey(local, remote)

	t.mu.Lock()
	defer t.mu.Unlock()

	s := t.sockets[key]
	if s == nil {
		s = &socket{key: key}
		t.sockets[key] = s
	}

	s.begun.Add(1)

	return s
}

// end says that a socket is closed.
func (t *connTable) end(s *socket) {
	t.mu.Lock()

	if s.begun.Load() > 0 {
		s.begun.Add(-1)
	}

	unused := t.collectLocked(s)
	t.mu.Unlock()

	closeAll(unused)
}

// acquire gives the connection to which info belongs and keeps it open until release.
func (t *connTable) acquire(info ConnInfo) *conn {
	key := newSocketKey(info.Local, info.Remote)

	t.mu.RLock()
	c := t.sockets[key].find(info.Authority)

	if c != nil {
		c.users.Add(1)
	}
	t.mu.RUnlock()

	if c != nil {
		return c
	}

	opened := t.sink.open(info) // without the lock: it may call the SDK

	t.mu.Lock()
	s := t.sockets[key]

	if s == nil {
		s = &socket{key: key}
		t.sockets[key] = s
	}

	c = s.find(info.Authority)
	first := c == nil

	if first {
		c = &conn{socket: s, authority: info.Authority, sink: opened}
		c.routes.limit = t.routeLimit
		s.conns = append(s.conns, c)
	}

	c.users.Add(1)
	t.mu.Unlock()

	if !first { // somebody was faster
		opened.close()
	}

	return c
}

// acquireOpen keeps c open until release. It may have been closed before: then what is recorded counts as late.
func (t *connTable) acquireOpen(c *conn) *conn {
	t.mu.RLock()
	c.users.Add(1)
	t.mu.RUnlock()

	return c
}

// release lets c go.
func (t *connTable) release(c *conn) {
	// Of this and an end at the same time, at least one sees what the other has done.
	if c.users.Add(-1) > 0 || c.socket.begun.Load() > 0 {
		return
	}

	t.mu.Lock()
	unused := t.collectLocked(c.socket)
	t.mu.Unlock()

	closeAll(unused)
}

// collectLocked takes out the connections of s that nobody uses, if the socket is closed.
func (t *connTable) collectLocked(s *socket) []*conn {
	if s.begun.Load() > 0 {
		return nil
	}

	var unused []*conn

	s.conns = slices.DeleteFunc(s.conns, func(c *conn) bool {
		if c.users.Load() > 0 {
			return false
		}

		unused = append(unused, c)

		return true
	})

	if len(s.conns) == 0 && t.sockets[s.key] == s {
		delete(t.sockets, s.key)
	}

	return unused
}

func closeAll(unused []*conn) {
	for _, c := range unused {
		c.sink.close()
	}
}

// find gives the connection of an authority; nil where there is none. s may be nil.
func (s *socket) find(authority string) *conn {
	if s == nil {
		return nil
	}

	for _, c := range s.conns {
		if c.authority == authority {
			return c
		}
	}

	return nil
}
