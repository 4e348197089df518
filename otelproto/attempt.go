package otelproto

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelproto/otelproto-go/stats"
)

// attempt is the state of one RPC attempt, and its context: one allocation serves both.
//
// grpc-go orders TagRPC, headers and Begin before any payload. Payloads of the two directions come concurrently, each
// direction from one goroutine at a time; the fields that they change are atomic all the same.
type attempt struct {
	context.Context //nolint:containedctx // it is the context

	h          *handler
	fullMethod string
	// conn is nil on a client until OutHeader.
	conn *conn
	// held is the connection that this attempt keeps open, from OutHeader or Begin to End.
	held *conn
	// info is what InHeader said on a server where TagConn wasn't called.
	info  *ConnInfo
	attrs attribute.Set
	retry bool
	// known is true on a server for methods that it serves.
	known   bool
	ignored bool

	route atomic.Pointer[route]
	// last is the entry of the last message in each direction: usually the next one has the same.
	last [2]atomic.Pointer[entry]
}

// Value gives the state itself, so that it costs no second allocation.
func (a *attempt) Value(key any) any {
	if k, ok := key.(attemptKey); ok && k.h == a.h {
		return a
	}

	return a.Context.Value(key)
}

// record counts one message.
func (a *attempt) record(ctx context.Context, d stats.Direction, payload any, wire, size int) {
	e := a.last[d].Load()
	if e == nil || !e.matches(payload) {
		a.recordOther(ctx, d, payload, wire, size)

		return
	}

	e.recorder.Record(ctx, wire, size)
}

// recordOther counts a message that isn't like the last one. It stands apart so that record keeps a small frame.
func (a *attempt) recordOther(ctx context.Context, d stats.Direction, payload any, wire, size int) {
	r := a.route.Load()
	if r == nil {
		r = a.newRoute()
		a.route.Store(r)
	}

	first := a.last[d].Load() == nil

	var e *entry

	if first {
		if last := r.last[d].Load(); last != nil && last.matches(payload) {
			e = last
		}
	}

	if e == nil {
		e = r.entry(d, payload)

		if e.parts != nil { // no entry is the one for all of the message
			r.split(ctx, d, e, payload, wire, size)

			return
		}

		if first {
			r.last[d].Store(e)
		}
	}

	a.last[d].Store(e)
	e.recorder.Record(ctx, wire, size)
}

func (a *attempt) newRoute() *route {
	c := a.conn
	if c == nil { // no event told the connection
		c = a.h.conns.acquire(a.connInfo())
		defer a.h.conns.release(c)
	}

	method := other
	if a.h.client || a.known {
		method = methodName(a.fullMethod)
	}

	return c.route(routeKey{method, a.retry, a.attrs.Equivalent()}, a.attrs, a.h)
}

// connInfo is what is known of the connection where TagConn wasn't called.
func (a *attempt) connInfo() ConnInfo {
	if a.info == nil {
		return ConnInfo{Client: a.h.client}
	}

	return *a.info
}

// hold keeps c open until release.
func (a *attempt) hold(c *conn) { a.conn, a.held = c, c }

// release lets the connection go, once.
func (a *attempt) release() {
	if a.held != nil {
		a.h.conns.release(a.held)
		a.held = nil
	}
}
