package channel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Conn is a handle on one target. It is a grpc.ClientConnInterface, so a
// generated client takes it as it is; it is safe for concurrent use. It stays
// usable whatever becomes of the connections below, until Close.
type Conn struct {
	target string
	hash   uint64 // of target, in the cache's table
	cache  *Cache // nil: from New
	cfg    *config
	inst   *instruments
	err    error // the target is no target; nothing stands behind the handle

	core   atomic.Pointer[core]
	closed atomic.Bool

	// used is the cache's clock when the handle was last used.
	used atomic.Uint64

	// mu guards writes of core, of a handle from New. Handles of a cache are
	// under the cache's.
	mu sync.Mutex
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// New returns a handle on one target, in the syntax of grpc.NewClient. It
// does no I/O: the first RPC connects. It fails if an option, a dial option
// or the target can't be used. Close it.
func New(target string, opts ...Option) (*Conn, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if err := checkTarget(target, cfg); err != nil {
		return nil, err
	}
	c := &Conn{target: target, cfg: cfg}
	c.inst, err = newInstruments(cfg.provider, func(yield func(*core)) { yield(c.core.Load()) })
	if err != nil {
		return nil, err
	}
	c.core.Store(newCore(cfg, target, c.inst, 0, hooks{ignore, ignore}))
	return c, nil
}

// ignore is the hook of a Conn from New: it keeps its core until another is
// needed.
func ignore(*core) {}

func checkTarget(target string, cfg *config) error {
	switch target {
	case "", "dns:", "dns://", "dns:///":
		return fmt.Errorf("channel: target %q names no endpoint", target)
	}
	if err := tryDial(target, cfg.dial); err != nil {
		return fmt.Errorf("channel: target %q: %w", target, err)
	}
	return nil
}

// Invoke runs a unary RPC, as grpc.ClientConn does. It waits for a connection
// if there is none, at most for one turn in the backoff (which is never
// longer than the connect timeout) and one attempt, or until ctx ends. Errors
// are gRPC statuses.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	cl := &call{}
	cl.init(method, opts, c.cfg != nil && c.cfg.retry.attempts > 1)
	for n := 1; ; {
		co, g, spent, err := c.acquire(ctx, cl)
		if err != nil {
			return err
		}
		err = g.cc.Invoke(ctx, method, args, reply, cl.ask(g)...)
		moved := cl.probe != nil && cl.probe.end()
		if spent {
			co.noteFailure(err)
		}
		reason := ""
		switch {
		case err == nil:
			co.succeeded(g)
		case !moved:
			reason = co.failed(ctx, g, cl, err)
		}
		g.release()
		if cl.probe != nil {
			cl.probe.leave()
		}
		if err == nil {
			return nil
		}
		co.dropIfDead(g)
		if moved {
			continue
		}
		if reason == "" || spent || cl.once || n >= c.cfg.retry.attempts || !co.again(ctx, cl, n, reason) {
			return c.explain(ctx, co, err)
		}
		n++
	}
}

// failed draws the conclusions from a failed attempt of a unary RPC, and
// returns the reason for which another may be made, if there is one.
func (co *core) failed(ctx context.Context, g *generation, cl *call, err error) string {
	seen := cl.seen.Load()
	if seen == 0 {
		return ""
	}
	v := co.judge(ctx, g, Failure{
		Method: cl.method, Err: err, Peer: cl.peer.Addr, Header: cl.header, Trailer: cl.trailer,
	}, cl.withHeader)
	if v.neverSent && seen == 1 {
		return reasonNeverSent
	}
	switch v.class {
	case Suspect, TransportLost, Closed:
		if co.cfg.retry.isIdempotent(cl.method) {
			return reasonIdempotent
		}
	case NeverSent, Application, Caller:
	}
	return ""
}

// again takes a token and waits until attempt n+1 may begin.
func (co *core) again(ctx context.Context, cl *call, n int, reason string) bool {
	wait, given, allowed := pushback(cl.trailer)
	if !allowed || co.closed.Load() {
		return false
	}
	if !given {
		wait = co.cfg.retry.backoff.next(n)
	}
	if !co.budget.spend() || !sleep(ctx, wait) {
		return false
	}
	co.inst.retried(co, strings.TrimPrefix(cl.method, "/"), reason)
	return true
}

// NewStream opens a stream, as grpc.ClientConn does. The stream counts as
// under way until it ends by the rules of grpc.ClientConn.NewStream: drain
// its RecvMsg or cancel ctx, or its connection can't be closed.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	cl := &call{}
	cl.init(method, opts, c.cfg != nil && c.cfg.retry.attempts > 1)
	for n := 1; ; {
		co, g, spent, err := c.acquire(ctx, cl)
		if err != nil {
			return nil, err
		}
		cl.g = g
		cl.peer.Addr = nil
		cl.seen.Store(0)
		cs, err := g.cc.NewStream(ctx, desc, method, cl.opts...)
		moved := cl.probe != nil && cl.probe.state.Load() == probeMoved
		if spent {
			co.noteFailure(err)
		}
		neverSent := false
		if err != nil {
			co.observe(g)
			neverSent = cl.seen.Load() == 1 && cl.peer.Addr == nil && isConnectionError(err)
		}
		if cl.seen.Load() > 0 {
			g.releaseAgain() // a stream that stands holds it itself
		} else { // an interceptor answered
			if cl.probe != nil {
				cl.probe.end()
			}
			g.release()
			if cl.probe != nil {
				cl.probe.leave()
			}
		}
		if err == nil {
			return &stream{cs, c, co, ctx}, nil
		}
		co.dropIfDead(g)
		switch {
		case moved:
		case neverSent && !cl.once && !spent && n < c.cfg.retry.attempts && co.again(ctx, cl, n, reasonNeverSent):
			n++
		default:
			return nil, c.explain(ctx, co, err)
		}
	}
}

func isConnectionError(err error) bool {
	class := Classify(Failure{Err: err})
	return class == NeverSent || class == Closed
}

// Close ends the RPCs under way and the connections, and waits for the
// goroutines. It is idempotent; what is used afterwards reports ErrClosed.
// A handle that a Cache gave out is shared by all that asked for its target,
// and Close is for all of them: use Cache.Forget to let go of a target
// without hurting anybody.
func (c *Conn) Close() error {
	if c.err != nil {
		return nil //nolint:nilerr // it is about the target, and each use tells it
	}
	if c.cache != nil {
		c.closed.Store(true)
		c.cache.remove(c)
		c.core.Load().close()
		return nil
	}
	c.mu.Lock()
	first := !c.closed.Swap(true)
	co := c.core.Load()
	c.mu.Unlock()
	co.close()
	if first {
		return c.inst.close()
	}
	return nil
}

// acquire finds a generation, on the handle's core or its successor.
func (c *Conn) acquire(ctx context.Context, cl *call) (*core, *generation, bool, error) {
	if c.err != nil {
		return nil, nil, false, c.err
	}
	if c.cache != nil {
		c.cache.touch(c)
	}
	for {
		co := c.core.Load()
		g, spent, err := co.acquire(ctx, cl)
		if err == nil {
			return co, g, spent, nil
		}
		if !errors.Is(err, errGone) {
			return nil, nil, false, err
		}
		if err := c.successor(co); err != nil {
			return nil, nil, false, err
		}
	}
}

// successor gives the handle another core after old was given up.
func (c *Conn) successor(old *core) error {
	if c.cache != nil {
		return c.cache.readmit(c, old)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return &closedError{c.target}
	}
	if c.core.Load() == old {
		old.mu.Lock()
		lastID := old.lastID
		old.mu.Unlock()
		c.core.Store(newCore(c.cfg, c.target, c.inst, lastID, hooks{ignore, ignore}))
	}
	return nil
}

// explain makes the error of an RPC that Close ended say so.
func (c *Conn) explain(ctx context.Context, co *core, err error) error {
	if !co.closed.Load() || ctx.Err() != nil {
		return err
	}
	switch status.Code(err) {
	case codes.Canceled, codes.Unavailable:
		return &closedError{c.target}
	default:
		return err
	}
}

// stream makes the errors of a stream that Close ended say so. Everything
// else, its end included, is observed below it (interceptStream).
type stream struct {
	grpc.ClientStream

	c   *Conn
	co  *core
	ctx context.Context
}

func (s *stream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return s.c.explain(s.ctx, s.co, err)
	}
	return nil
}

func (s *stream) SendMsg(m any) error {
	if err := s.ClientStream.SendMsg(m); err != nil {
		return s.c.explain(s.ctx, s.co, err)
	}
	return nil
}
