package broadcast

import (
	"sync"
	"sync/atomic"
)

const (
	fanOut     = 8       // sleepers that one woken goroutine wakes in turn
	spareLimit = 1 << 15 // a batch with room for more than this is left to the garbage collector
)

// States of a sleeper. One compare-and-swap from sleeping decides who ends a sleep, and exactly that one sends on wake.
const (
	awake     uint32 = iota
	sleeping         // on the lot or in a detached batch
	cancelled        // for good: it never sleeps again
)

// A sleeper is a subscription as the parking lot knows it. It refers neither to the subscription nor to any event, so that
// nothing that holds it (the lot, a context) keeps a subscription alive that its user has dropped.
type sleeper struct {
	state atomic.Uint32
	wake  chan bool // capacity 1: one value for each sleep; true: woken by a batch, with a share of it to wake

	index int // position on the lot, guarded by lot.mu

	// The share of a batch to wake, written by the waker before it wins the state and read by the woken.
	batch    *batch
	low, top int
}

// A batch is sleepers that one publish detached at once. It is a tree of fan-out eight laid out as a heap: the children of
// position i, counted from root, are 8i+1 to 8i+8. Each position is visited once, by whoever woke its parent.
type batch struct {
	sleepers []*sleeper
	root     int
	left     atomic.Int64 // positions not yet visited; who visits the last gives the batch back
}

// A lot is where sleepers wait. Waking all of them costs the caller one goroutine's wake-up: the woken wake the rest.
//
// An alternative is a lock-free stack. It parks without a mutex, but it can't drop a cancelled sleeper from its middle and
// has no positions to share out, so that waking needs a walk or a contended cursor.
type lot struct {
	ready    func(seen uint64) bool // whether there is more than seen to wake up for; loads atomics, nothing else
	occupied atomic.Bool            // whether waking must look
	again    atomic.Bool            // set by a waker who found mu taken: whoever has it wakes when he gives it back
	spare    atomic.Pointer[batch]

	// mu guards current and the index of the sleepers on it. Nothing is woken and no foreign code runs while it is held.
	mu      sync.Mutex
	current *batch
}

func (l *lot) init(ready func(uint64) bool) {
	l.ready = ready
	l.current = new(batch)
}

// sleep returns when wakeAll was called since the caller found nothing beyond seen, or s was cancelled; it may return at
// once. Whoever it wakes up has woken its share of the others when it returns.
func (l *lot) sleep(s *sleeper, seen uint64) {
	l.mu.Lock()
	// Announce, then look: a waker raises the level and then looks for the announcement, so one of the two sees the other.
	if len(l.current.sleepers) == 0 {
		l.occupied.Store(true)
	}
	if l.ready(seen) || !s.state.CompareAndSwap(awake, sleeping) {
		if len(l.current.sleepers) == 0 {
			l.occupied.Store(false)
		}
		l.unlock()
		return
	}
	s.index = len(l.current.sleepers)
	l.current.sleepers = append(l.current.sleepers, s)
	l.unlock()
	if <-s.wake && s.batch != nil {
		b := s.batch
		s.batch = nil
		l.visited(b, l.rouse(b, s.low, s.top))
	}
}

// unlock gives mu back, and wakes on behalf of those who found it taken.
func (l *lot) unlock() {
	l.mu.Unlock()
	if l.again.Load() {
		l.wakeAll()
	}
}

// wakeAll detaches everyone on the lot and wakes one, which wakes the others. It doesn't wait for mu: a publisher would
// stand in line with thousands that were just woken and lie down again.
func (l *lot) wakeAll() {
	if !l.occupied.Load() {
		return
	}
	if !l.mu.TryLock() {
		// If it is still taken after this is set, who has it gives it back later and sees it.
		l.again.Store(true)
		if !l.mu.TryLock() {
			return
		}
	}
	l.again.Store(false) // what is on the lot from here on has looked after whoever set it
	b := l.current
	if len(b.sleepers) == 0 { // somebody was about to lie down and has looked first
		l.mu.Unlock()
		return
	}
	if l.current = l.spare.Swap(nil); l.current == nil {
		l.current = new(batch)
	}
	l.occupied.Store(false)
	l.mu.Unlock()
	n := len(b.sleepers)
	b.left.Store(int64(n))
	// The cancelled at the front are skipped and the tree begins behind them, so that one goroutine is woken here.
	for b.root = 0; b.root < n; b.root++ {
		if b.rouse(b.root) {
			l.visited(b, b.root+1)
			return
		}
	}
	l.visited(b, n)
}

// rouse wakes the sleepers in positions low to top and returns how many positions it visited: for a sleeper that was
// cancelled it takes over what that one would have woken.
func (l *lot) rouse(b *batch, low, top int) (visited int) {
	for i := low; i < top; i++ {
		visited++
		if !b.rouse(i) {
			visited += l.rouse(b, b.firstBelow(i), b.firstBelow(i+1))
		}
	}
	return visited
}

// visited gives the batch back once nobody will look at it any more.
func (l *lot) visited(b *batch, n int) {
	if b.left.Add(int64(-n)) == 0 && cap(b.sleepers) <= spareLimit {
		b.sleepers = b.sleepers[:0]
		l.spare.CompareAndSwap(nil, b)
	}
}

// firstBelow is the position of the first child of i; the children of i end where those of i+1 begin.
func (b *batch) firstBelow(i int) int {
	return min(b.root+(i-b.root)*fanOut+1, len(b.sleepers))
}

// rouse wakes the sleeper in position i with its share, and reports false if it has been cancelled.
func (b *batch) rouse(i int) bool {
	s := b.sleepers[i]
	b.sleepers[i] = nil
	if low, top := b.firstBelow(i), b.firstBelow(i+1); low < top {
		s.batch, s.low, s.top = b, low, top
	}
	if !s.state.CompareAndSwap(sleeping, awake) {
		return false
	}
	s.wake <- true
	return true
}

// cancel ends s's sleep, now and in future. A sleeper in a detached batch stays there: its waker finds out and takes over.
func (l *lot) cancel(s *sleeper) {
	if s.state.Swap(cancelled) != sleeping {
		return
	}
	l.remove(s)
	s.wake <- false
}

func (l *lot) remove(s *sleeper) {
	l.mu.Lock()
	defer l.unlock()
	on := l.current.sleepers
	if s.index >= len(on) || on[s.index] != s {
		return
	}
	last := len(on) - 1
	on[s.index] = on[last]
	on[s.index].index = s.index
	on[last] = nil
	on = on[:last]
	if cap(on) > 4*fanOut && len(on) < cap(on)/4 {
		on = append(make([]*sleeper, 0, cap(on)/2), on...)
	}
	l.current.sleepers = on
	if len(on) == 0 {
		l.occupied.Store(false)
	}
}
