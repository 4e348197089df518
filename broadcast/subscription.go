package broadcast

import (
	"context"
	"iter"
	"runtime"
	"sync/atomic"
)

// A Subscription is one reader's place in a topic. Next, NextBatch and All are for one goroutine at a time; Lag and Close
// may be called from any.
type Subscription[T any] struct {
	topic  *Topic[T]
	member *member
	chunk  atomic.Pointer[chunk[T]] // where the next event is looked for first; stored by the holder of member.busy
	broken error                    // what every Next returns
	source Source[T]                // nil: gaps are reported

	// Guarded by member.busy:

	pin     *chunk[T]  // holds the event after a gap that was reported: it is delivered even if it leaves the window meanwhile
	replay  *replay[T] // the gap that is being read from the source
	cleanup runtime.Cleanup
	guarded bool
}

// subscribe returns a subscription that must be closed.
func (t *Topic[T]) subscribe(ctx context.Context, cursor uint64, near *chunk[T]) *Subscription[T] {
	if ctx == nil {
		panic(errNilContext)
	}
	m := &member{ctx: ctx, lot: &t.lot, list: &t.members}
	m.cursor.Store(cursor)
	t.members.add(m)
	s := &Subscription[T]{topic: t, member: m, source: t.source}
	s.chunk.Store(near)
	return s
}

// guard makes the topic and the context forget s once it is garbage.
func (s *Subscription[T]) guard() {
	s.guarded = true
	s.cleanup = runtime.AddCleanup(s, (*member).abandon, s.member)
}

// Next returns the next event. If there is none it waits for one until the context given to Subscribe ends, and then
// returns the context's error; an event that is there wins over a context that has ended.
//
// A gap is returned once, as a *ResyncError, and the next call delivers the event after it. With a Source the gap is read
// from there, inside Next, and only ErrTruncated may surface, in the same way. After Topic.Close, Next returns the
// remaining events and then the cause; after Close of the subscription it returns ErrClosed.
func (s *Subscription[T]) Next() (Event[T], error) {
	m := s.member
	c := s.chunk.Load()
	if c == nil || m.busy.Load() {
		return s.waitOne()
	}
	cursor := m.cursor.Load()
	log := &s.topic.log
	newest := log.newest.Load()
	i := cursor - c.before
	if !log.holds(cursor, newest) || i >= uint64(c.limit.Load()) {
		return s.waitOne()
	}
	e := Event[T]{cursor + 1, c.slots[i%chunkLen]}
	// The store of the cursor that Lag needs anyway is a compare-and-swap, which is how a second reader shows.
	if !m.cursor.CompareAndSwap(cursor, cursor+1) {
		return Event[T]{}, ErrConcurrent
	}
	return e, nil
}

// waitOne is Next where the next event isn't at hand.
func (s *Subscription[T]) waitOne() (Event[T], error) {
	var one [1]Event[T]
	_, err := s.wait(one[:])
	return one[0], err
}

// NextBatch fills dst with the events that are at hand and returns their number. It waits like Next if there is none, so
// that the number is 0 only with an error, or if dst is empty. It costs less per event than Next.
func (s *Subscription[T]) NextBatch(dst []Event[T]) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	return s.wait(dst)
}

// All yields what Next returns, a gap as an error between events, and ends after the first error that isn't a gap.
// It doesn't close the subscription: a loop that was left can be resumed.
func (s *Subscription[T]) All() iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		for {
			e, err := s.Next()
			if !yield(e, err) || err != nil && !isGap(err) {
				return
			}
		}
	}
}

// Lag is the number of events between the subscription's place and the newest event.
func (s *Subscription[T]) Lag() uint64 { return s.topic.lag(s.member) }

func (t *Topic[T]) lag(m *member) uint64 {
	cursor := m.cursor.Load() // before newest, which only grows
	return t.log.newest.Load() - cursor
}

// Close ends the subscription and makes a Next that is under way return ErrClosed. It doesn't wait for it.
func (s *Subscription[T]) Close() {
	s.member.interrupt()
	s.tearDown()
}

// wait is Next for the holder of busy: it advances over chunks, deals with gaps, and sleeps.
func (s *Subscription[T]) wait(dst []Event[T]) (n int, err error) {
	m, log := s.member, &s.topic.log
	if !m.busy.CompareAndSwap(false, true) {
		if m.closed.Load() {
			return 0, ErrClosed
		}
		return 0, ErrConcurrent
	}
	defer s.leave()
	for {
		if m.closed.Load() {
			return 0, ErrClosed
		}
		if s.broken != nil {
			return 0, s.broken
		}
		cursor := m.cursor.Load()
		newest := log.newest.Load()
		if cursor < newest || s.replay != nil {
			if n, err = s.take(dst, cursor, newest); n > 0 || err != nil {
				return n, err
			}
			continue
		}
		// What was published before the end, of the topic or of the context, comes first, and may have come since.
		if s.topic.closed.Load() {
			if log.newest.Load() != cursor {
				continue
			}
			m.retire()
			return 0, s.topic.cause
		}
		if m.row == nil || m.cancelled.Load() { // otherwise the context would have cancelled the sleep
			if m.ctx.Err() != nil {
				if log.newest.Load() != cursor {
					continue
				}
				m.retire()
				return 0, contextError(m.ctx)
			}
			if m.row == nil {
				m.bind()
			}
		}
		m.lot.sleep(&m.sleeper, cursor)
	}
}

// take delivers events after cursor, or the gap that begins there. Neither means that the window has moved: look again.
func (s *Subscription[T]) take(dst []Event[T], cursor, newest uint64) (int, error) {
	log := &s.topic.log
	c := s.pin
	if oldest := log.oldest(newest); c == nil && cursor+1 < oldest {
		if s.source == nil {
			return 0, s.skip(cursor, 0)
		}
		return s.read(dst, cursor)
	}
	s.endReplay()
	switch {
	case cursor == newest:
		return 0, nil
	case c != nil:
		s.pin = nil
		dst = dst[:1]
	default:
		if c = log.find(s.chunk.Load(), cursor); c == nil {
			return 0, nil
		}
	}
	n := 0
	for at := cursor; n < len(dst) && at < newest; c = c.next.Load() {
		if c == nil || !c.has(at) { // cut off behind us; the rest is for the next call to find
			break
		}
		s.chunk.Store(c)
		k := min(uint64(len(dst)-n), newest-at, c.last()-at)
		for i := range k {
			dst[n] = Event[T]{at + 1 + i, c.slots[at+i-c.before]}
			n++
		}
		at += k
	}
	if !s.member.cursor.CompareAndSwap(cursor, cursor+uint64(n)) {
		clear(dst[:n])
		return 0, ErrConcurrent
	}
	return n, nil
}

// skip moves the cursor to before the oldest event in the window, or to before the event held by the replay, if there is
// one and it is older, and returns the gap.
func (s *Subscription[T]) skip(cursor, held uint64) error {
	log := &s.topic.log
	var c *chunk[T]
	var to uint64
	for c == nil {
		to = log.oldest(log.newest.Load())
		if 0 < held && held < to {
			to = held
			break
		}
		c = log.find(nil, to-1)
	}
	if !s.member.cursor.CompareAndSwap(cursor, to-1) {
		return ErrConcurrent
	}
	s.pin = c
	s.chunk.Store(nil) // Next must come by here for what is pinned
	if s.source != nil {
		return &truncatedError{ResyncError{cursor + 1, to}}
	}
	s.topic.resyncs.Add(1)
	return &ResyncError{cursor + 1, to}
}

// leave gives busy back. A Close that came meanwhile left the tearing down to us.
func (s *Subscription[T]) leave() {
	s.member.busy.Store(false)
	if s.member.closed.Load() {
		s.tearDown()
	}
	runtime.KeepAlive(s) // what abandons a dropped subscription relies on busy being free
}

// tearDown releases what a closed subscription holds, unless a Next is under way: that does it when it leaves.
func (s *Subscription[T]) tearDown() {
	if !s.member.busy.CompareAndSwap(false, true) {
		return
	}
	s.member.retire()
	s.endReplay()
	s.chunk.Store(nil)
	s.pin = nil
	if s.guarded {
		s.guarded = false
		s.cleanup.Stop()
	}
	s.member.busy.Store(false)
}
