package channel

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/encoding"
	encproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// stallAfter is how long an RPC waits for its stream on a connection that is
// ready before the server's limit of concurrent streams is taken to be
// reached.
const stallAfter = 20 * time.Millisecond

// errMoved ends an attempt that waited for a stream, before its request was
// written. It stays inside the package, but interceptors see it.
var errMoved = errors.New("channel: the RPC moves to another connection")

// probe follows an RPC, while the server's limit isn't known, until it has
// its stream. Every RPC is followed then, not only one that raises the
// concurrency above what it was before: the others might be overtaken, and
// count as having a stream while they wait behind one.
//
// grpc-go has no API for a server's SETTINGS_MAX_CONCURRENT_STREAMS and
// blocks an RPC beyond it, so the limit has to be found out; and an RPC that
// was blocked while it was found out must be freed without risk that it was
// sent. For a stream the return of NewStream tells. For a unary RPC it is
// the codec: grpc marshals the request after it has the stream and before it
// writes the message, so a refusal there is a certain "not sent". (A stats
// handler would tell too, too late to refuse, and for 16 allocations an RPC.)
type probe struct {
	g       *generation
	state   atomic.Int32
	counted atomic.Bool // in g.waiting
	timer   *time.Timer
	cancel  context.CancelFunc
}

const (
	probeWaiting = iota
	probeStreamed
	probeMoved
)

// reserveLocked decides whether the RPC may go to best, the current
// generation with the fewest RPCs. It may return a place in the queue
// instead. Beyond the
// maximum of connections RPCs wait inside grpc as they would without us, so a
// limit that was underestimated never throttles.
func (co *core) reserveLocked(best *generation, cl *call) chan struct{} {
	cl.probe = nil
	n := best.outstanding()
	if co.limit == 0 {
		cl.probe = &probe{g: best}
		cl.probe.counted.Store(true)
		best.waiting++
		return nil
	}
	if n < co.limit {
		return nil
	}
	if !time.Now().Before(co.nextGrow) {
		co.growLocked(len(*co.set.Load()) + 1)
	}
	if co.growing == nil {
		return nil
	}
	ch := make(chan struct{})
	co.queue = append(co.queue, ch)
	co.waiters.Add(1)
	if best.outstanding() < co.limit { // released before it could see us
		co.leaveLocked(ch)
		return nil
	}
	return ch
}

// leaveLocked takes a place out of the queue; false: it was woken already.
func (co *core) leaveLocked(ch chan struct{}) bool {
	i := slices.Index(co.queue, ch)
	if i < 0 {
		return false
	}
	co.queue = slices.Delete(co.queue, i, i+1)
	co.waiters.Add(-1)
	return true
}

func (co *core) waitTurn(ctx context.Context, ch chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		co.mu.Lock()
		defer co.unlock()
		if !co.leaveLocked(ch) {
			co.wakeOneLocked() // pass on what woke us
		}
		return co.contextErrorLocked(ctx)
	}
}

func (co *core) wakeOne() {
	co.mu.Lock()
	defer co.unlock()
	co.wakeOneLocked()
}

func (co *core) wakeOneLocked() {
	if len(co.queue) > 0 {
		ch := co.queue[0]
		co.leaveLocked(ch)
		close(ch)
	}
}

func (co *core) wakeAllLocked() {
	for len(co.queue) > 0 {
		co.wakeOneLocked()
	}
}

// growLocked opens one more connection if there are fewer than n.
func (co *core) growLocked(n int) {
	set := co.set.Load()
	if co.gone || co.growing != nil || set == nil || len(*set) >= min(n, co.cfg.maxConns) {
		return
	}
	if time.Now().Before(co.nextGrow) {
		return
	}
	co.startLocked(&attempt{grow: true})
}

func (co *core) settleGrowthLocked(g *generation, ok bool) {
	if !ok {
		co.grows++
		co.nextGrow = time.Now().Add(co.cfg.backoff.next(co.grows))
		co.failure, co.failedAt = errNotConnected, time.Now()
		g.drain()
		return
	}
	co.grows = 0
	co.nextGrow = time.Time{}
	co.swapLocked(nil, g)
	co.armAgeLocked(g)
	co.logLocked(slog.LevelInfo, "connection added", "generation", g.id, "connections", len(*co.set.Load()))
}

// start gives the attempt a context by which the probe can free it.
func (p *probe) start(ctx context.Context) context.Context {
	ctx, p.cancel = context.WithCancel(ctx)
	co := p.g.core
	co.mu.Lock() // stalled must not overtake the assignment
	defer co.unlock()
	p.timer = time.AfterFunc(stallAfter, p.stalled)
	return ctx
}

// streamed tells that the RPC has its stream, and reports false if it was
// given up on before.
func (p *probe) streamed() bool {
	if !p.state.CompareAndSwap(probeWaiting, probeStreamed) {
		return p.state.Load() == probeStreamed
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	co := p.g.core
	co.mu.Lock()
	defer co.unlock()
	if p.counted.Swap(false) {
		p.g.waiting--
	}
	p.g.proven = max(p.g.proven, p.g.streamsLocked())
	return true
}

// end is called when the attempt is over. It reports whether the attempt is
// to be made again on another connection.
func (p *probe) end() (moved bool) {
	if p.timer != nil { // nil: an interceptor answered
		p.timer.Stop()
		p.cancel()
	}
	p.state.CompareAndSwap(probeWaiting, probeStreamed)
	return p.state.Load() == probeMoved
}

// leave is called after the generation was released. Until then an RPC
// without a stream counts as waiting: counted as having one it would make
// the limit look higher than it is, and RPCs wait behind others for good.
func (p *probe) leave() {
	if p.counted.Swap(false) {
		co := p.g.core
		co.mu.Lock()
		p.g.waiting--
		co.unlock()
	}
}

// stalled runs when the RPC has waited for stallAfter.
func (p *probe) stalled() {
	g, co := p.g, p.g.core
	co.mu.Lock()
	defer co.unlock()
	streams := max(g.streamsLocked(), g.proven)
	if streams < 1 || g.cc.GetState() != connectivity.Ready {
		// Something else is slow: a reconnect, credentials.
		if p.state.Load() == probeWaiting {
			p.timer.Reset(stallAfter)
		}
		return
	}
	if !p.state.CompareAndSwap(probeWaiting, probeMoved) {
		return
	}
	if co.limit == 0 {
		co.limit = streams
		co.logLocked(slog.LevelInfo, "concurrent streams limited", "limit", co.limit)
	}
	p.cancel()
}

// gate is the codec of a probed unary RPC.
type gate struct {
	encoding.CodecV2

	name string
	p    *probe
}

func (c *gate) Name() string { return c.name }

func (c *gate) Marshal(v any) (mem.BufferSlice, error) {
	if !c.p.streamed() {
		return nil, errMoved
	}
	return c.CodecV2.Marshal(v)
}

// newGate wraps the codec that grpc would use with these options; nil if it
// is of a kind that can't be wrapped without changing the RPC.
func newGate(p *probe, req any, opts []grpc.CallOption) *gate {
	if _, prepared := req.(*grpc.PreparedMsg); prepared {
		return nil // isn't marshalled again
	}
	subtype := ""
	var forced encoding.CodecV2
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ContentSubtypeCallOption:
			subtype = strings.ToLower(o.ContentSubtype)
		case grpc.ForceCodecV2CallOption:
			forced = o.CodecV2
		case grpc.ForceCodecCallOption, grpc.CustomCodecCallOption:
			return nil
		}
	}
	switch {
	case forced != nil:
		return &gate{forced, forced.Name(), p}
	case subtype == "":
		// No name: the content-type stays "application/grpc".
		return &gate{encoding.GetCodecV2(encproto.Name), "", p}
	default:
		if c := encoding.GetCodecV2(subtype); c != nil {
			return &gate{c, subtype, p}
		}
		return nil
	}
}
