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

	// refs counts what holds the generation: drainBit once it drains, holder
	// for each, and double for each RPC that holds it twice (a stream that is
	// being opened). One word, so that an acquire that comes after the drain
	// bit sees it, exactly one release sees the holders reach zero with it,
	// and the number of RPCs is never off, however briefly.
	refs atomic.Int64

	// failing is set while cc is in TRANSIENT_FAILURE: RPCs then fail with
	// the error of an attempt that ended before they began.
	failing atomic.Bool

	// suspects counts suspect failures since the last success; confirmed is
	// set when one of them had the response header to prove it.
	suspects  atomic.Int32
	confirmed atomic.Bool

	// used is set by each acquire and cleared by each idle tick.
	used atomic.Bool

	// proven is the highest number of streams that were open at once.
	// Guarded by core.mu, as are the next two and writes of failing.
	proven  int64
	waiting int64       // probes that have no stream yet
	timer   *time.Timer // drain timeout or maximum age

	ctx    context.Context // ends when cc is to be closed
	cancel context.CancelFunc
}

const (
	drainBit = 1
	holder   = 1 << 1
	double   = 1 << 32

	holders = double - holder // mask
)

// acquire counts one more RPC, unless the generation drains.
func (g *generation) acquire() bool {
	if g.refs.Add(holder)&drainBit == 0 {
		if !g.used.Load() {
			g.used.Store(true)
		}
		return true
	}
	g.release()
	return false
}

// hold counts one more holder, even if the generation drains; again says
// that the RPC holds the generation already.
func (g *generation) hold(again bool) {
	if again {
		g.refs.Add(holder + double)
	} else {
		g.refs.Add(holder)
	}
}

// release ends one acquire or hold.
func (g *generation) release() { g.released(g.refs.Add(-holder)) }

// releaseAgain ends the first hold of an RPC that has another.
func (g *generation) releaseAgain() { g.released(g.refs.Add(-holder - double)) }

// released lets the goroutine close the generation after the last release
// since it drains; the context may be cancelled more than once.
func (g *generation) released(refs int64) {
	if refs == drainBit {
		g.cancel()
	}
	if refs < 0 {
		panic("bug: generation released more often than acquired")
	}
	if g.core.waiters.Load() > 0 {
		g.core.wakeOne()
	}
}

// drain stops new RPCs. It is idempotent.
func (g *generation) drain() {
	if g.refs.Or(drainBit)&holders == 0 {
		g.cancel()
	}
}

// outstanding is the number of RPCs.
func (g *generation) outstanding() int64 {
	refs := g.refs.Load()
	return (refs&holders)/holder - refs/double
}

// streamsLocked is the number of RPCs that have their HTTP/2 stream. While
// one ends it may be too low.
func (g *generation) streamsLocked() int64 { return g.outstanding() - g.waiting }

func (g *generation) unused() bool   { return g.refs.Load()&holders == 0 }
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
