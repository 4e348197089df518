package broadcast

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
)

// A member is what a topic knows of a subscription: where it stands and how to wake it. It refers to no event and not to
// the subscription, which is collectable as long as no goroutine is inside its Next.
//
// What a wake-up touches comes first and fills two cache lines, and the whole of it three: with ten thousand subscribers the
// misses are what a wake-up costs.
type member struct {
	sleeper

	cursor atomic.Uint64 // the newest event that was delivered or skipped
	closed atomic.Bool   // by Subscription.Close
	// busy is held by the one goroutine that waits, replays, or tears down; it guards stop and endPull. Delivering an
	// event that is at hand goes without, by compare-and-swap of cursor.
	busy atomic.Bool

	stop    func() bool                        // unbinds the context
	endPull func()                             // ends the reading of the source that is open between two calls of Next
	endRead atomic.Pointer[context.CancelFunc] // ends the read of the source that is under way

	ctx  context.Context //nolint:containedctx // a subscription is bound to one context for life
	lot  *lot
	list *members

	prev, next *member // guarded by members.mu
	listed     bool    // guarded by members.mu
}

// members is the list of live subscriptions, for the metrics and Stats. Publishing doesn't look at it.
type members struct {
	// mu guards the list and the members' links. No foreign code runs while it is held.
	mu    sync.Mutex
	first *member
	n     int
}

func (l *members) add(m *member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.listed = true
	if m.next = l.first; m.next != nil {
		m.next.prev = m
	}
	l.first = m
	l.n++
}

// remove is idempotent.
func (l *members) remove(m *member) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !m.listed {
		return
	}
	m.listed = false
	l.n--
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		l.first = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	}
	m.prev, m.next = nil, nil
}

// live yields the members whose context goes on, and drops the others. It asks the contexts, which may be the user's own
// code, without holding mu.
func (l *members) live() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		l.mu.Lock()
		all := make([]*member, 0, l.n)
		for m := l.first; m != nil; m = m.next {
			all = append(all, m)
		}
		l.mu.Unlock()
		for _, m := range all {
			if m.ctx.Err() != nil {
				l.remove(m)
			} else if !yield(m) {
				return
			}
		}
	}
}

// bind makes the end of the context cancel the sleeps, once for the subscription's life: a select on ctx.Done() in each
// wait costs more than all the rest of it. The caller holds busy.
func (m *member) bind() {
	m.lot.place(&m.sleeper)
	if m.ctx.Done() != nil {
		m.stop = context.AfterFunc(m.ctx, func() { m.lot.cancel(&m.sleeper) })
	}
}

// interrupt makes a Next that is under way return.
func (m *member) interrupt() {
	m.closed.Store(true)
	m.lot.cancel(&m.sleeper)
	if cancel := m.endRead.Load(); cancel != nil {
		(*cancel)()
	}
}

// retire removes all traces from the topic and the context. The caller holds busy, or knows that nobody can.
func (m *member) retire() {
	if m.stop != nil {
		m.stop()
		m.stop = nil
	}
	m.lot.vacate(&m.sleeper)
	m.list.remove(m)
}

// abandon is retire for a subscription that was dropped without Close.
func (m *member) abandon() {
	if !m.busy.CompareAndSwap(false, true) {
		panic("bug: a subscription was collected while its Next was under way")
	}
	m.retire()
	if m.endPull != nil {
		m.endPull()
	}
}
