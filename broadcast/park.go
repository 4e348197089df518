package broadcast

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	rowLen = 61              // places in a row, which fills 512 bytes with them
	full   = 1<<rowLen - 1   // in row.taken
	listed = uint64(1) << 63 // in row.parked: the row is on the lot, on its way there, or in a batch that will visit it
	fanOut = 2               // rows of a batch that are visited in turn after each one
)

// A sleeper is a subscription as the parking lot knows it. It refers neither to the subscription nor to any event, so that
// nothing that holds it (the lot, a context) keeps a subscription alive that its user has dropped.
type sleeper struct {
	bell

	cancelled atomic.Bool // for good: it never sleeps again

	// Its place on the lot; row is nil before the first sleep and after the last. Its own goroutine writes both, with
	// lot.mu held.
	place uint32
	row   *row

	// The position of a batch to visit, written by whoever rings the bell and read by the woken. A nil batch: none.
	batch  *batch
	visits int
}

// A row is neighbours on the lot. They are woken one after the other, so that subscribers which lie next to each other in
// memory, as those that were made one after the other do, stay in that order whatever order they fell asleep in.
//
// A bit of parked means that the sleeper in that place sleeps and nobody is about to wake it. Whoever clears the bit, waker,
// canceller or the sleeper itself, is the one to end the sleep.
type row struct {
	parked   atomic.Uint64 // bit i for place i, and listed
	taken    uint64        // places that belong to a sleeper; guarded by lot.mu
	at       int           // position in lot.current; guarded by lot.mu
	sleepers [rowLen]*sleeper
}

// A batch is the rows that one publish detached at once. It is a tree laid out as a heap: the children of position i,
// counted from root, are 2i+1 and 2i+2. Each position is visited once, after its parent.
type batch struct {
	rows []*row
	root int
	left atomic.Int64 // positions not yet visited; who visits the last gives the batch back
}

// A lot is where sleepers wait. Waking all of them costs the caller one goroutine's wake-up: the woken wake the rest.
//
// An alternative is a list of sleepers in the order in which they fell asleep. It has no places to keep, and is slower: with
// ten thousand it jumps about in memory, and each pays for a mutex where here a row does.
type lot struct {
	ready    func(seen uint64) bool // whether there is more than seen to wake up for; loads atomics, nothing else
	occupied atomic.Bool            // whether waking must look
	again    atomic.Bool            // set by a waker who found mu taken: whoever has it wakes when he gives it back
	spare    atomic.Pointer[batch]

	// mu guards what follows, and what rows and sleepers say it does. Nothing is woken and no foreign code runs while it is
	// held.
	mu      sync.Mutex
	current *batch // rows with somebody asleep; all of them are listed
	open    []*row // rows with a free place
}

func (l *lot) init(ready func(uint64) bool) {
	l.ready = ready
	l.current = new(batch)
}

// place gives s a place, which it keeps until vacate.
func (l *lot) place(s *sleeper) {
	s.init()
	l.mu.Lock()
	defer l.unlock()
	if len(l.open) == 0 {
		l.open = append(l.open, new(row))
	}
	last := len(l.open) - 1
	r := l.open[last]
	s.row, s.place = r, uint32(bits.TrailingZeros64(^r.taken))
	r.sleepers[s.place] = s
	if r.taken |= s.bit(); r.taken == full {
		l.open = slices.Delete(l.open, last, last+1)
	}
}

// vacate takes the place of s, which is awake, back.
func (l *lot) vacate(s *sleeper) {
	l.mu.Lock()
	defer l.unlock()
	r := s.row
	if r == nil {
		return
	}
	if r.taken == full {
		l.open = append(l.open, r)
	}
	r.taken &^= s.bit()
	r.sleepers[s.place] = nil
	s.row = nil
	if r.taken == 0 {
		l.dropLocked(r)
	}
}

// dropLocked forgets a row without sleepers. In a detached batch it stays until it is visited.
func (l *lot) dropLocked(r *row) {
	i := slices.Index(l.open, r)
	last := len(l.open) - 1
	l.open[i] = l.open[last]
	l.open = slices.Delete(l.open, last, last+1)
	on := l.current.rows
	if r.at >= len(on) || on[r.at] != r {
		return
	}
	last = len(on) - 1
	on[r.at] = on[last]
	on[r.at].at = r.at
	l.current.rows = slices.Delete(on, last, last+1)
	l.occupied.Store(last > 0)
}

func (s *sleeper) bit() uint64 { return 1 << s.place }

// sleep returns when wakeAll was called since the caller found nothing beyond seen, or s was cancelled; it may return at
// once. Whoever it wakes up has woken another row, if that was its share, when it returns.
func (l *lot) sleep(s *sleeper, seen uint64) {
	// Announce, then look: a waker raises the level and then looks for the announcement, so one of the two sees the other.
	first := s.row.parked.Or(s.bit()|listed)&listed == 0
	if first {
		l.list(s.row)
	}
	ready := l.ready(seen)
	mine := (ready || s.cancelled.Load()) && s.row.take(s.bit())
	if ready && first {
		// Neighbours that lay down between the two steps of the announcement have relied on this one's.
		l.wakeAll()
	}
	if mine {
		return
	}
	s.wait()
	if b := s.batch; b != nil {
		s.batch = nil
		l.visit(b, s.visits)
	}
}

// take reports whether the sleep behind bit is the caller's to end.
func (r *row) take(bit uint64) bool { return r.parked.And(^bit)&bit != 0 }

func (l *lot) list(r *row) {
	l.mu.Lock()
	defer l.unlock()
	l.occupied.Store(true)
	r.at = len(l.current.rows)
	l.current.rows = append(l.current.rows, r)
}

// unlock gives mu back, and wakes on behalf of those who found it taken.
func (l *lot) unlock() {
	l.mu.Unlock()
	if l.again.Load() {
		l.wakeAll()
	}
}

// wakeAll detaches every row on the lot and wakes one sleeper, which wakes the others. It doesn't wait for mu: a publisher
// would stand in line with those that were just woken and lie down again.
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
	if len(b.rows) == 0 {
		l.mu.Unlock()
		return
	}
	if l.current = l.spare.Swap(nil); l.current == nil {
		l.current = new(batch)
	}
	l.occupied.Store(false)
	l.mu.Unlock()
	// Rows whose sleepers were all cancelled are skipped and the tree begins behind them.
	for root, r := range b.rows {
		if s := r.takeOne(); s != nil {
			b.root = root
			b.left.Store(int64(len(b.rows) - root))
			s.batch, s.visits = b, root
			s.ring()
			return
		}
		b.rows[root] = nil
	}
	l.giveBack(b)
}

// takeOne returns a sleeper of r for the caller to wake; the row stays listed. If there is none the row is visited
// thereby.
func (r *row) takeOne() *sleeper {
	for {
		parked := r.parked.Load()
		if parked == listed {
			if r.parked.CompareAndSwap(listed, 0) {
				return nil
			}
			continue
		}
		if i := bits.TrailingZeros64(parked); r.take(1 << i) {
			return r.sleepers[i]
		}
	}
}

// visit visits position i of b and, as far as it finds nobody to do so, those below.
func (l *lot) visit(b *batch, i int) {
	if n := b.visit(i); b.left.Add(int64(-n)) == 0 {
		l.giveBack(b)
	}
}

// giveBack keeps a batch that nobody looks at any more for the next time.
func (l *lot) giveBack(b *batch) {
	b.rows = b.rows[:0]
	l.spare.CompareAndSwap(nil, b)
}

// visit wakes everybody in position i. The first of them have to visit the positions below, one each; what is left of these
// it visits itself. It returns how many positions it visited.
func (b *batch) visit(i int) (visited int) {
	r := b.rows[i]
	b.rows[i] = nil
	low, top := b.firstBelow(i), b.firstBelow(i+1)
	for parked := r.parked.Swap(0) &^ listed; parked != 0; {
		s := r.sleepers[bits.TrailingZeros64(parked)]
		parked &= parked - 1
		if low < top {
			s.batch, s.visits = b, low
			low++
		}
		s.ring()
	}
	visited = 1
	for ; low < top; low++ {
		visited += b.visit(low)
	}
	return visited
}

// firstBelow is the position of the first child of i; the children of i end where those of i+1 begin.
func (b *batch) firstBelow(i int) int {
	return min(b.root+(i-b.root)*fanOut+1, len(b.rows))
}

// cancel ends the sleep of s, now and in future.
func (l *lot) cancel(s *sleeper) {
	s.cancelled.Store(true) // before the row is looked at: if s is not asleep there yet, it sees this before it sleeps
	l.mu.Lock()
	mine := s.row != nil && s.row.take(s.bit())
	l.unlock()
	if mine {
		s.ring()
	}
}
