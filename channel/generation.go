package channel

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// generation is one grpc.ClientConn and the count of the RPCs on it. It
// begins as a connection attempt, is current while it stands in its core's
// set, then drains, and is closed by its own goroutine (core.runAttempt) when
// the last RPC ends.
type generation struct {
	core    *core
	id      uint64
	cc      *grpc.ClientConn
	created time.Time

	// refs is twice the number of holders, plus one once the generation
	// drains. One word, so that an acquire that comes after the drain bit
	// sees it, and exactly one release sees the count reach zero with it.
	refs atomic.Int64

	// opening is the number of NewStream calls under way, which hold the
	// generation beside the stream that they open.
	opening atomic.Int64

	// failing is set while cc is in TRANSIENT_FAILURE: RPCs then fail with
	// the error of an attempt that ended before they began.
	failing atomic.Bool

	// suspects counts suspect failures since the last success; confirmed is
	// set when one of them had the response header to prove it.
	suspects  atomic.Int32
	confirmed atomic.Bool

	// used is set by each acquire and cleared by each idle tick.
	used atomic.Bool

	// proven is the highest number of concurrent RPCs that all had a stream.
	// Guarded by core.mu, as are the next two and writes of failing.
	proven  int64
	waiting int64       // probes that have no stream yet
	timer   *time.Timer // drain timeout or maximum age

	ctx    context.Context // ends when cc is to be closed
	cancel context.CancelFunc
}

const drainBit = 1

// acquire counts one more RPC, unless the generation drains.
func (g *generation) acquire() bool {
	if g.refs.Add(2)&drainBit == 0 {
		if !g.used.Load() {
			g.used.Store(true)
		}
		return true
	}
	g.release()
	return false
}

// hold counts one more RPC even if the generation drains; for an attempt
// that an interceptor makes on a generation that it was given.
func (g *generation) hold() { g.refs.Add(2) }

// release ends one acquire or hold. The last one of a draining generation
// lets its goroutine close it; the context may be cancelled more than once.
func (g *generation) release() {
	v := g.refs.Add(-2)
	if v == drainBit {
		g.cancel()
	}
	if v < 0 {
		panic("bug: generation released more often than acquired")
	}
	if g.core.waiters.Load() > 0 {
		g.core.wakeOne()
	}
}

// drain stops new RPCs. It is idempotent.
func (g *generation) drain() {
	if g.refs.Or(drainBit)&^drainBit == 0 {
		g.cancel()
	}
}

// outstanding is the number of RPCs.
func (g *generation) outstanding() int64 { return g.refs.Load()>>1 - g.opening.Load() }

// streams is the number of RPCs that have their HTTP/2 stream, as far as it
// is known.
func (g *generation) streamsLocked() int64 { return g.outstanding() - g.waiting }

func (g *generation) unused() bool   { return g.refs.Load()>>1 == 0 }
func (g *generation) draining() bool { return g.refs.Load()&drainBit != 0 }

// connect waits for the outcome of the first connection attempt. It reports
// true when RPCs can be tried: connected, or connected and lost again (IDLE
// after CONNECTING), from where grpc-go reconnects for the next RPC.
func (g *generation) connect(ctx context.Context) bool {
	g.cc.Connect()
	started := false
	for {
		s := g.cc.GetState()
		switch s {
		case connectivity.Ready:
			return true
		case connectivity.TransientFailure, connectivity.Shutdown:
			return false
		case connectivity.Idle:
			if started {
				return true
			}
		case connectivity.Connecting:
			started = true
		}
		if !g.cc.WaitForStateChange(ctx, s) {
			return false
		}
	}
}

// watch follows the state until the generation is to be closed.
func (g *generation) watch() {
	for {
		s := g.core.observe(g)
		if s == connectivity.Shutdown { // closed, but not by us
			g.core.drop(g, reasonClosed)
			<-g.ctx.Done()
			return
		}
		if !g.cc.WaitForStateChange(g.ctx, s) {
			return
		}
	}
}
