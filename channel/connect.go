package channel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// resetGrace is how long a failing generation with RPCs on it gets to
// reconnect after its backoff was reset, before another is dialled.
const resetGrace = 100 * time.Millisecond

// errNotConnected is the failure of an attempt until one of the RPCs that
// waited for it has brought the cause: only RPCs are told.
var errNotConnected = errors.New("connection attempt failed")

// attempt is one connection attempt, driven by a goroutine of its own and
// independent of who waits for it.
type attempt struct {
	replaces *generation // nil: the set is empty, or grows
	reason   string      // why replaces is to go
	grow     bool

	recovered chan struct{} // closed when replaces works again
	once      sync.Once
	done      chan struct{} // closed when the outcome stands

	// Guarded by core.mu.
	joined   int
	finished bool
	failed   *generation // of a failed attempt: each waiter has a hold on it
	err      error       // could not even be tried
}

func (at *attempt) recover() { at.once.Do(func() { close(at.recovered) }) }

// joinLocked joins the attempt under way, or starts one. It fails if the
// backoff's next turn is further away than an attempt may take.
func (co *core) joinLocked() (*attempt, error) {
	if co.connecting == nil {
		co.dropDeadLocked()
		if wait := time.Until(co.next); wait > co.cfg.connectTimeout {
			return nil, &targetError{
				co.target, codes.Unavailable,
				fmt.Sprintf("not connected, next attempt in %v", wait.Round(time.Millisecond)), co.failure,
			}
		}
		at := &attempt{}
		if set := co.set.Load(); set != nil {
			at.replaces, at.reason = (*set)[0], reasonClosed
		}
		co.startLocked(at)
	}
	co.connecting.joined++
	return co.connecting, nil
}

// replaceLocked starts the replacement of g, if it is current still and
// nothing else is under way.
func (co *core) replaceLocked(g *generation, reason string) {
	if !co.gone && co.connecting == nil && co.currentLocked(g) {
		co.startLocked(&attempt{replaces: g, reason: reason})
	}
}

func (co *core) startLocked(at *attempt) {
	at.recovered = make(chan struct{})
	at.done = make(chan struct{})
	if at.grow {
		co.growing = at
	} else {
		co.connecting = at
	}
	co.wg.Add(1)
	go co.runAttempt(at)
}

// waitAttempt returns nothing if it is worth looking again, or the failed
// generation, held.
func (co *core) waitAttempt(ctx context.Context, at *attempt) (*generation, error) {
	select {
	case <-at.done:
	case <-ctx.Done():
		co.mu.Lock()
		defer co.unlock()
		if !at.finished {
			at.joined--
		} else if at.failed != nil {
			at.failed.release()
		}
		return nil, co.contextErrorLocked(ctx)
	}
	co.mu.Lock()
	defer co.unlock()
	return at.failed, at.err
}

// contextErrorLocked is what an RPC gets whose context ends before it has a
// connection.
func (co *core) contextErrorLocked(ctx context.Context) error {
	s := status.FromContextError(ctx.Err())
	text := s.Message() + " while waiting for a connection"
	if co.failure != nil {
		return &targetError{co.target, s.Code(), text + "; last failure", co.failure}
	}
	return &targetError{co.target, s.Code(), text, nil}
}

// paceLocked counts an attempt and sets the time of the next.
func (co *core) paceLocked() {
	co.attempts++
	co.next = time.Now().Add(co.cfg.backoff.next(co.attempts))
	co.dirty.Store(true)
}

// runAttempt makes a connection, installs it, and stays with it until it is
// closed.
func (co *core) runAttempt(at *attempt) {
	defer co.wg.Done()
	if !co.awaitTurn(at) {
		co.abort(at, nil)
		return
	}
	g, err := co.dial()
	if err != nil {
		co.abort(at, &targetError{co.target, codes.Unavailable, "dial", err})
		return
	}
	started := time.Now()
	ok := g.connect(g.ctx)
	co.inst.connected(co, time.Since(started), ok, g.ctx.Err() != nil)
	co.settle(at, g, ok)
	g.watch()
	g.close()
}

// awaitTurn waits for the pace, and reports whether the attempt is still
// wanted.
func (co *core) awaitTurn(at *attempt) bool {
	if at.grow {
		return co.ctx.Err() == nil
	}
	co.mu.Lock()
	wait := time.Until(co.next)
	co.unlock()
	if !waitFor(co.ctx, wait, at.recovered) {
		return false
	}
	g := at.replaces
	if g == nil {
		return true
	}
	if g.failing.Load() {
		// Its RPCs can't be moved; often all that is missing is that grpc
		// doesn't sit out its own backoff.
		g.cc.ResetConnectBackoff()
		return waitFor(co.ctx, resetGrace, at.recovered)
	}
	co.mu.Lock()
	defer co.unlock()
	// A success in the meantime takes the suspicion back.
	wanted := at.reason != reasonProxyUnavailable || at.joined > 0 || g.suspects.Load() >= co.cfg.threshold
	return wanted && co.currentLocked(g)
}

// waitFor reports false if it was cut short.
func waitFor(ctx context.Context, d time.Duration, cut <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-cut:
		return false
	case <-ctx.Done():
		return false
	}
}

func (co *core) dial() (*generation, error) {
	cc, err := grpc.NewClient(co.target, co.cfg.dial...)
	if err != nil {
		return nil, err
	}
	g := &generation{core: co, cc: cc, created: time.Now()}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	co.mu.Lock()
	defer co.unlock()
	co.lastID++
	g.id = co.lastID
	co.all[g] = struct{}{}
	if co.gone {
		g.cancel()
	}
	return g, nil
}

// settle installs the outcome of an attempt that was made, and tells those
// that wait for it.
func (co *core) settle(at *attempt, g *generation, ok bool) {
	co.mu.Lock()
	switch {
	case co.gone:
		g.drain()
	case at.grow:
		co.settleGrowthLocked(g, ok)
	case !ok:
		co.paceLocked()
		co.failure, co.failedAt = errNotConnected, time.Now()
		co.logLocked(slog.LevelWarn, "connection attempt failed", "generation", g.id, "attempt", co.attempts, "next", time.Until(co.next))
		if at.joined > 0 {
			// The waiters' RPCs run on it to get their error; then it goes.
			g.refs.Add(holder * int64(at.joined))
			at.failed = g
		}
		g.drain()
	default:
		co.paceLocked()
		if !co.installLocked(at, g) {
			g.drain() // what it was to replace was itself replaced
		}
	}
	co.concludeLocked(at)
	co.unlock()
	close(at.done)
}

// installLocked makes g current.
func (co *core) installLocked(at *attempt, g *generation) bool {
	old := at.replaces
	if old != nil && !co.currentLocked(old) {
		if co.set.Load() != nil {
			return false
		}
		old = nil
	}
	co.swapLocked(old, g)
	if old != nil {
		co.retireLocked(old, at.reason)
		if old.failing.Load() {
			old.cc.ResetConnectBackoff() // for the RPCs that wait on it
		}
	}
	co.armAgeLocked(g)
	co.limit = 0 // another backend may allow more
	co.growLocked(co.cfg.minConns)
	co.logLocked(slog.LevelInfo, "connected", "generation", g.id, "replaces", at.reason)
	return true
}

// armAgeLocked schedules the replacement at the maximum age.
func (co *core) armAgeLocked(g *generation) {
	if co.cfg.maxAge <= 0 {
		return
	}
	age := Backoff{Base: co.cfg.maxAge, Factor: 1, Jitter: 0.1, Max: co.cfg.maxAge}.next(1)
	g.timer = time.AfterFunc(age, func() {
		co.mu.Lock()
		defer co.unlock()
		co.replaceLocked(g, reasonMaxAge)
		if co.currentLocked(g) {
			// Once more if the attempt fails, or another was under way.
			g.timer.Reset(max(age/10, co.cfg.backoff.Max))
		}
	})
}

// concludeLocked ends the attempt: nobody can join it any more.
func (co *core) concludeLocked(at *attempt) {
	at.finished = true
	if at.grow {
		co.growing = nil
		co.growLocked(co.cfg.minConns)
		co.wakeAllLocked()
	} else {
		co.connecting = nil
	}
}

// noteFailure keeps what an RPC learned about the attempt that it waited for.
func (co *core) noteFailure(err error) {
	if err == nil {
		return
	}
	co.mu.Lock()
	defer co.unlock()
	if errors.Is(co.failure, errNotConnected) {
		co.failure = err
	}
}

// abort ends an attempt that was not made.
func (co *core) abort(at *attempt, err error) {
	co.mu.Lock()
	if err != nil {
		at.err = err
		co.failure, co.failedAt = err, time.Now()
		co.paceLocked()
	}
	co.concludeLocked(at)
	done := co.doneLocked()
	co.unlock()
	close(at.done)
	if done {
		co.hooks.empty(co)
	}
}

// close ends the grpc.ClientConn and forgets the generation.
func (g *generation) close() {
	g.cancel()
	_ = g.cc.Close() // fails only if it is closed already
	co := g.core
	co.mu.Lock()
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if co.swapLocked(g, nil) {
		panic("bug: a current generation was closed")
	}
	delete(co.all, g)
	done := co.doneLocked()
	co.unlock()
	if done {
		co.hooks.empty(co)
	}
}
