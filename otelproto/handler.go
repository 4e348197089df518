package otelproto

import (
	"context"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	grpcstats "google.golang.org/grpc/stats"

	"github.com/otelproto/otelproto-go/stats"
)

// ScopeName is the name of the instrumentation scope.
const ScopeName = "github.com/otelproto/otelproto-go/otelproto"

// other stands for what is beyond a limit, and for methods that a server doesn't know.
const other = stats.Other

// ConnInfo tells an option about a connection.
type ConnInfo = stats.ConnInfo

// NewClientHandler makes a handler for [google.golang.org/grpc.WithStatsHandler]. Prefer [DialOptions], which also tells the
// messages of retried attempts apart: with the handler alone only transparent retries are marked.
//
// A handler may serve many ClientConns. It is safe for concurrent use and never blocks an RPC. Options with wrong values are
// reported to [go.opentelemetry.io/otel.Handle] and left out.
func NewClientHandler(opts ...Option) grpcstats.Handler { return newHandler(true, opts) }

// NewServerHandler makes a handler for [google.golang.org/grpc.StatsHandler]. What is said of [NewClientHandler] holds for it too;
// retried attempts are marked by what the client sends (grpc-previous-rpc-attempts).
func NewServerHandler(opts ...Option) grpcstats.Handler { return newHandler(false, opts) }

// handler is both handlers.
type handler struct {
	client        bool
	filter        func(*grpcstats.RPCTagInfo) bool
	rpcAttributes func(context.Context) []attribute.KeyValue
	known         func(fullMethod string) bool
	names         *namer
	limit         *seriesLimit
	conns         *connTable
}

func newHandler(client bool, opts []Option) *handler {
	c := newConfig(opts)
	h := &handler{
		client: client,
		filter: c.filter,
		known:  c.known,
		names:  newNamer(c),
		limit:  newSeriesLimit(c.seriesLimit),
	}

	if c.registry != nil {
		h.conns = newConnTable(registrySink{c.registry, h.limit}, c.seriesLimit)
	} else {
		h.rpcAttributes = c.rpcAttributes // a registry has no place for them
		h.conns = newConnTable(newInstrumentSink(client, c, h.limit), c.seriesLimit)
	}

	return h
}

// The keys under which a handler finds its own states in a context. Each is one pointer wide, so that it becomes an
// interface value without an allocation.
type (
	attemptKey struct{ h *handler }
	connKey    struct{ h *handler }
	callKey    struct{ h *handler }
)

// TagRPC starts the state of one attempt.
func (h *handler) TagRPC(ctx context.Context, info *grpcstats.RPCTagInfo) context.Context {
	a := &attempt{Context: ctx, h: h, fullMethod: info.FullMethodName}

	if h.filter != nil && !h.filter(info) {
		a.ignored = true // rather than no state, or a call within a call would find the outer one's

		return a
	}

	if h.client {
		if c, ok := ctx.Value(callKey{h}).(*call); ok && c.attempts.Add(1) > 1 {
			a.retry = true
		}
	} else if c, ok := ctx.Value(connKey{h}).(*connContext); ok {
		a.conn = c.conn
	}

	if h.rpcAttributes != nil {
		a.attrs = attribute.NewSet(h.rpcAttributes(ctx)...)
	}

	return a
}

// HandleRPC records the sizes of messages.
func (h *handler) HandleRPC(ctx context.Context, rs grpcstats.RPCStats) {
	a, ok := ctx.(*attempt) // as it is on a server if no other handler follows
	if !ok || a.h != h {
		if a, ok = ctx.Value(attemptKey{h}).(*attempt); !ok {
			return
		}
	}

	if a.ignored {
		return
	}

	switch rs := rs.(type) {
	case *grpcstats.InPayload:
		a.record(ctx, stats.Receive, rs.Payload, rs.WireLength, rs.Length)
	case *grpcstats.OutPayload:
		a.record(ctx, stats.Transmit, rs.Payload, rs.WireLength, rs.Length)
	case *grpcstats.InHeader:
		h.inHeader(a, rs)
	case *grpcstats.OutHeader:
		if h.client && a.conn == nil {
			a.hold(h.conns.acquire(ConnInfo{Client: true, Local: rs.LocalAddr, Remote: rs.RemoteAddr, Authority: rs.Authority}))
		}
	case *grpcstats.Begin:
		h.begin(a, rs)
	case *grpcstats.End:
		a.release()
	}
}

// connContext carries the connection to the RPCs of a server.
type connContext struct {
	context.Context //nolint:containedctx // it is the context

	h    *handler
	conn *conn
	sock *socket
}

// Value gives the state itself, so that it costs no second allocation.
func (c *connContext) Value(key any) any {
	if k, ok := key.(connKey); ok && k.h == c.h {
		return c
	}

	return c.Context.Value(key)
}

// TagConn starts the state of one connection. Through ServeHTTP it is called once a request; addresses that are equal
// as values then stand for one connection.
func (h *handler) TagConn(ctx context.Context, info *grpcstats.ConnTagInfo) context.Context {
	c := &connContext{Context: ctx, h: h, sock: h.conns.begin(info.LocalAddr, info.RemoteAddr)}

	if !h.client { // a client learns the authority with the first RPC
		c.conn = h.conns.acquire(ConnInfo{Local: info.LocalAddr, Remote: info.RemoteAddr})
		h.conns.release(c.conn)
	}

	return c
}

// HandleConn ends connections.
func (h *handler) HandleConn(ctx context.Context, cs grpcstats.ConnStats) {
	if _, ok := cs.(*grpcstats.ConnEnd); !ok {
		return
	}

	if c, ok := ctx.Value(connKey{h}).(*connContext); ok {
		h.conns.end(c.sock)
	}
}

// inHeader comes before Begin on a server.
func (h *handler) inHeader(a *attempt, rs *grpcstats.InHeader) {
	if h.client {
		return
	}

	if v := rs.Header["grpc-previous-rpc-attempts"]; len(v) > 0 {
		n, err := strconv.Atoi(v[0])
		a.retry = err == nil && n > 0
	}

	if a.conn == nil { // TagConn wasn't called with this handler
		a.info = &ConnInfo{Local: rs.LocalAddr, Remote: rs.RemoteAddr}
	}
}

// begin comes after InHeader on a server, and only for methods that it serves.
func (h *handler) begin(a *attempt, rs *grpcstats.Begin) {
	if h.client {
		if rs.IsTransparentRetryAttempt {
			a.retry = true
		}

		return
	}

	// A handler for unknown services is always bidirectional, and then any name may stand here.
	a.known = !rs.IsClientStream || !rs.IsServerStream || h.known(a.fullMethod)

	if a.conn == nil {
		a.hold(h.conns.acquire(a.connInfo()))
	} else if a.held == nil {
		a.hold(h.conns.acquireOpen(a.conn))
	}
}

// cutMethod splits /package.Service/Method.
func cutMethod(fullMethod string) (service, method string, ok bool) {
	name := methodName(fullMethod)

	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", "", false
	}

	return name[:i], name[i+1:], true
}

// methodName is the value of rpc.method.
func methodName(fullMethod string) string { return strings.TrimPrefix(fullMethod, "/") }
