package channel

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/connectivity"
)

// core is everything about one target: its connections, the attempt to make
// one, the pace of attempts. A core that was given up is never revived; its
// handles find another (Conn.successor).
type core struct {
	cfg    *config
	target string
	inst   *instruments
	attrs  metric.MeasurementOption // server.address
	hooks  hooks

	// set holds the current generations; nil when there are none.
	set atomic.Pointer[[]*generation]

	// dirty is set while there is something that a success has to reset: the
	// pace after an attempt, suspect failures. It keeps core.mu out of the
	// path of RPCs.
	dirty atomic.Bool

	// closed is set by close, not by giveUp: RPCs that end by it report
	// ErrClosed.
	closed atomic.Bool

	// waiters is the length of queue, to keep releases out of core.mu.
	waiters atomic.Int32

	budget budget
	wg     sync.WaitGroup // goroutines; Add under mu and before gone only

	// mu guards what follows, writes of set, and the fields of generations
	// that say so. No gRPC call that can block and no user code runs under
	// it, and no other lock is taken under it.
	mu         sync.Mutex
	gone       bool
	events     []func()                 // logs and metrics, run by unlock
	all        map[*generation]struct{} // not closed yet: current, draining, connecting
	lastID     uint64
	connecting *attempt
	growing    *attempt
	attempts   int // since an RPC last succeeded
	next       time.Time
	grows      int // failed in a row
	nextGrow   time.Time
	failure    error // of the last attempt or suspect RPC
	failedAt   time.Time
	limit      int64 // concurrent streams per connection that the server was seen to allow; 0: not known
	queue      []chan struct{}
	idle       *time.Timer
	idleTicks  int
	ctx        context.Context // ends when the core is given up
	cancel     context.CancelFunc
}

// hooks tell the owner of a core. They are called without locks.
type hooks struct {
	idled func(*core) // given up by itself
	empty func(*core) // given up, and nothing of it runs any more
}

func newCore(cfg *config, target string, inst *instruments, lastID uint64, h hooks) *core {
	co := &core{
		cfg:    cfg,
		target: target,
		inst:   inst,
		attrs:  addressOption(target),
		hooks:  h,
		all:    make(map[*generation]struct{}),
		lastID: lastID,
	}
	co.ctx, co.cancel = context.WithCancel(context.Background())
	co.budget.tokens.Store(cfg.retry.full)
	if cfg.idleTimeout > 0 {
		co.mu.Lock() // the first tick must not overtake the assignment
		defer co.unlock()
		co.idle = time.AfterFunc(cfg.idleTimeout/4, co.idleTick)
	}
	return co
}

// acquire gives the RPC a generation that can take it, counted, and waits for
// a connection where there is none. spent reports that the connection attempt
// that the RPC waited for failed: the RPC is to fail on that generation, so
// that its error is grpc's own and fresh.
func (co *core) acquire(ctx context.Context, cl *call) (g *generation, spent bool, err error) {
	if co.cfg.maxConns == 1 {
		if set := co.set.Load(); set != nil {
			if g := (*set)[0]; !g.failing.Load() && g.acquire() {
				return g, false, nil
			}
		}
	}
	return co.acquireSlow(ctx, cl)
}

func (co *core) acquireSlow(ctx context.Context, cl *call) (*generation, bool, error) {
	for {
		co.mu.Lock()
		if co.gone {
			co.unlock()
			return nil, false, errGone
		}
		g, queued := co.pickLocked(cl)
		if g != nil {
			co.unlock()
			return g, false, nil
		}
		if queued != nil {
			co.unlock()
			if err := co.waitTurn(ctx, queued); err != nil {
				return nil, false, err
			}
			continue
		}
		at, err := co.joinLocked()
		co.unlock()
		if err != nil {
			return nil, false, err
		}
		g, err = co.waitAttempt(ctx, at)
		if err != nil {
			return nil, false, err
		}
		if g == nil {
			continue
		}
		if cl.waitForReady {
			g.release()
			continue
		}
		return g, true, nil
	}
}

// pickLocked acquires the best current generation. With none it returns nil,
// or the place in the queue for a stream if that is what is missing.
func (co *core) pickLocked(cl *call) (*generation, chan struct{}) {
	set := co.set.Load()
	if set == nil {
		return nil, nil
	}
	var best *generation
	for _, g := range *set {
		if !g.failing.Load() && !g.draining() && (best == nil || g.outstanding() < best.outstanding()) {
			best = g
		}
	}
	if best == nil {
		return nil, nil
	}
	if co.cfg.maxConns > 1 {
		if q := co.reserveLocked(best, cl); q != nil {
			return nil, q
		}
	}
	if !best.acquire() {
		return nil, nil // force-closed this instant; the caller joins an attempt
	}
	return best, nil
}

// swapLocked puts g in the place of old, or adds it if old is nil. It is the
// compare-and-swap on the generation: if old is no longer current nothing
// changes.
func (co *core) swapLocked(old, g *generation) bool {
	var gens []*generation
	if set := co.set.Load(); set != nil {
		gens = *set
	}
	if old == nil {
		co.storeLocked(append(slices.Clone(gens), g))
		return true
	}
	i := slices.Index(gens, old)
	if i < 0 {
		return false
	}
	gens = slices.Clone(gens)
	if g == nil {
		gens = slices.Delete(gens, i, i+1)
	} else {
		gens[i] = g
	}
	co.storeLocked(gens)
	return true
}

func (co *core) storeLocked(gens []*generation) {
	if len(gens) == 0 {
		co.set.Store(nil)
		return
	}
	co.set.Store(&gens)
}

func (co *core) currentLocked(g *generation) bool {
	set := co.set.Load()
	return set != nil && slices.Contains(*set, g)
}

// retireLocked drains a generation that is no longer in the set.
func (co *core) retireLocked(g *generation, reason string) {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if co.cfg.drainTimeout > 0 {
		g.timer = time.AfterFunc(co.cfg.drainTimeout, g.cancel)
	}
	g.drain()
	if reason != "" {
		co.laterLocked(func() { co.inst.invalidated(co, reason) })
		co.logLocked(slog.LevelInfo, "connection let go", "generation", g.id, "reason", reason, "outstanding", g.outstanding())
	}
}

// drop takes a current generation out without a successor.
func (co *core) drop(g *generation, reason string) {
	co.mu.Lock()
	defer co.unlock()
	if co.swapLocked(g, nil) {
		co.retireLocked(g, reason)
	}
}

// observe takes note of whether g is in TRANSIENT_FAILURE. The state is read
// under mu so that of two observers the later one wins.
func (co *core) observe(g *generation) connectivity.State {
	co.mu.Lock()
	defer co.unlock()
	s := g.cc.GetState()
	failing := s == connectivity.TransientFailure
	if g.failing.Swap(failing) == failing || !co.currentLocked(g) {
		return s
	}
	if failing {
		co.logLocked(slog.LevelWarn, "connection lost", "generation", g.id)
		co.dropDeadLocked()
	} else if at := co.connecting; at != nil && at.replaces == g {
		at.recover()
	}
	return s
}

// dropDeadLocked takes out what is in TRANSIENT_FAILURE and has no RPC: the
// next RPC is better off with a fresh attempt, resolution included, than with
// an error from before and grpc's attempts in the background. With RPCs on it
// (streams on a connection that the server shuts down gracefully, RPCs that
// wait for ready) it stays until an attempt has succeeded.
func (co *core) dropDeadLocked() {
	set := co.set.Load()
	if set == nil {
		return
	}
	for _, g := range *set {
		if g.failing.Load() && g.unused() {
			co.swapLocked(g, nil)
			co.retireLocked(g, reasonClosed)
			co.paceLocked()
		}
	}
}

// dropIfDead is called after an RPC that failed has left g.
func (co *core) dropIfDead(g *generation) {
	if g.failing.Load() && g.unused() {
		co.mu.Lock()
		defer co.unlock()
		co.dropDeadLocked()
	}
}

// succeeded is called after an RPC that shows that g works.
func (co *core) succeeded(g *generation) {
	if co.dirty.Load() {
		co.reset(g)
	}
	co.budget.earn(&co.cfg.retry)
}

func (co *core) reset(g *generation) {
	co.mu.Lock()
	defer co.unlock()
	g.suspects.Store(0)
	g.confirmed.Store(false)
	if !co.currentLocked(g) {
		return // a success of an old generation says nothing of the new one
	}
	co.attempts = 0
	co.next = time.Time{}
	set := co.set.Load()
	co.dirty.Store(slices.ContainsFunc(*set, func(g *generation) bool { return g.suspects.Load() > 0 }))
}

// suspected counts a suspect failure of g and starts its replacement when
// there are enough. A failure that had no header to prove it counts, but
// doesn't replace: from the first on RPCs ask for the header.
func (co *core) suspected(g *generation, err error, proven bool) {
	n := g.suspects.Add(1)
	if proven {
		g.confirmed.Store(true)
	}
	co.dirty.Store(true)
	co.mu.Lock()
	defer co.unlock()
	co.failure, co.failedAt = err, time.Now()
	if n >= co.cfg.threshold && g.confirmed.Load() {
		co.replaceLocked(g, reasonProxyUnavailable)
	}
}

// idleTick runs every quarter of the idle timeout and counts the ticks in
// which nothing ran: no clock is read per RPC.
func (co *core) idleTick() {
	co.mu.Lock()
	if co.gone {
		co.unlock()
		return
	}
	co.idle.Reset(co.cfg.idleTimeout / 4)
	busy := co.connecting != nil
	if set := co.set.Load(); set != nil {
		spare := len(*set) - co.cfg.minConns
		for _, g := range slices.Backward(*set) {
			if g.used.Swap(false) || !g.unused() {
				busy = true
			} else if spare > 0 && co.swapLocked(g, nil) {
				// Beyond the minimum a quarter of the timeout is enough:
				// the others serve on.
				co.retireLocked(g, reasonIdle)
				spare--
			}
		}
	}
	if busy {
		co.idleTicks = 0
	} else {
		co.idleTicks++
	}
	idle := co.idleTicks >= 4
	co.unlock()
	if idle {
		co.giveUp(reasonIdle, false)
		co.hooks.idled(co)
	}
}

// giveUp lets go of every connection, gracefully or at once.
func (co *core) giveUp(reason string, now bool) {
	co.mu.Lock()
	if now {
		co.closed.Store(true)
	}
	if set := co.set.Load(); set != nil && !co.gone {
		for _, g := range *set {
			co.retireLocked(g, reason)
		}
	}
	co.set.Store(nil)
	if now {
		for g := range co.all {
			g.drain()
			g.cancel()
		}
	}
	first := !co.gone
	co.gone = true
	if co.idle != nil {
		co.idle.Stop()
	}
	co.wakeAllLocked()
	co.cancel() // ends attempts, which wake their waiters
	done := first && co.doneLocked()
	co.unlock()
	if done {
		co.hooks.empty(co)
	}
}

// close is giveUp at once, and waits for the goroutines.
func (co *core) close() {
	co.giveUp(reasonClosed, true)
	co.wg.Wait()
}

func (co *core) doneLocked() bool {
	return co.gone && len(co.all) == 0 && co.connecting == nil && co.growing == nil
}

// laterLocked keeps user code (a log handler, a metrics SDK) out of mu.
func (co *core) laterLocked(f func()) { co.events = append(co.events, f) }

// unlock releases mu and then reports what happened under it.
func (co *core) unlock() {
	events := co.events
	co.events = nil
	co.mu.Unlock()
	for _, f := range events {
		f()
	}
}

func (co *core) logLocked(level slog.Level, text string, args ...any) {
	args = append([]any{"target", co.target}, args...)
	co.laterLocked(func() { co.cfg.logger.Log(context.Background(), level, "channel: "+text, args...) })
}

func (co *core) isGone() bool {
	co.mu.Lock()
	defer co.unlock()
	return co.gone
}
