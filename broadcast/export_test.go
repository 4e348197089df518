package broadcast

import (
	"fmt"
	"math/bits"
	"testing"
)

// Parked returns how many subscriptions of t wait in Next.
func Parked[T any](t *Topic[T]) int {
	t.lot.mu.Lock()
	defer t.lot.unlock() // a publisher may have found it taken
	n := 0
	for _, r := range t.lot.current.rows {
		n += bits.OnesCount64(r.parked.Load() &^ listed)
	}
	return n
}

// Rows returns the number of rows with free places on which subscriptions of t park, and of rows with somebody parked.
func Rows[T any](t *Topic[T]) (open, occupied int) {
	t.lot.mu.Lock()
	defer t.lot.unlock() // a publisher may have found it taken
	return len(t.lot.open), len(t.lot.current.rows)
}

// Chunks returns how many chunks t retains.
func Chunks[T any](t *Topic[T]) (n int) {
	for c := t.log.head.Load(); c != nil; c = c.next.Load() {
		n++
	}
	return n
}

// Room returns the keys that the maps of w have held since they were made.
func Room[K comparable, V any](w *Waiters[K, V]) (n int) {
	for i := range w.shards {
		w.shards[i].mu.Lock()
		n += w.shards[i].peak
		w.shards[i].mu.Unlock()
	}
	return n
}

// Check fails the test if the structure of t is unsound. Nothing else may use t meanwhile.
func Check[T any](tb testing.TB, t *Topic[T]) {
	tb.Helper()
	if err := check(t); err != nil {
		tb.Fatalf("unsound topic: %v", err)
	}
}

func check[T any](t *Topic[T]) error {
	l := &t.log
	newest := l.newest.Load()
	oldest := l.oldest(newest)
	head := l.head.Load()
	if head.before >= oldest || head.last() < oldest && newest >= oldest {
		return fmt.Errorf("head holds (%d, %d], oldest is %d", head.before, head.last(), oldest)
	}
	if l.headEnd != head.last() {
		return fmt.Errorf("headEnd is %d, head ends at %d", l.headEnd, head.last())
	}
	c := head
	for next := c.next.Load(); next != nil; next = c.next.Load() {
		if next.before != c.last() {
			return fmt.Errorf("a chunk ends at %d, the next begins after %d", c.last(), next.before)
		}
		c = next
	}
	if c != l.tail.Load() || newest < c.before || newest > c.last() {
		return fmt.Errorf("the last chunk holds (%d, %d], newest is %d", c.before, c.last(), newest)
	}
	if l.maxBytes > 0 {
		sum := 0
		for i := l.sizes.from; i != l.sizes.to; i++ {
			sum += l.sizes.ring[i&uint64(len(l.sizes.ring)-1)]
		}
		if kept := newest + 1 - oldest; sum != l.bytes || l.sizes.to-l.sizes.from != kept {
			return fmt.Errorf("%d sizes of sum %d, want %d of sum %d", l.sizes.to-l.sizes.from, sum, kept, l.bytes)
		}
	}

	t.lot.mu.Lock()
	defer t.lot.unlock() // a publisher may have found it taken
	if err := checkRows(&t.lot); err != nil {
		return err
	}

	t.members.mu.Lock()
	defer t.members.mu.Unlock()
	n := 0
	var prev *member
	for m := t.members.first; m != nil; m = m.next {
		if m.prev != prev || !m.listed {
			return fmt.Errorf("member %d is linked wrongly", n)
		}
		prev = m
		n++
	}
	if n != t.members.n {
		return fmt.Errorf("%d members are linked, n is %d", n, t.members.n)
	}
	return nil
}

func checkRows(l *lot) error {
	for i, r := range l.current.rows {
		parked := r.parked.Load()
		if r.at != i || parked&listed == 0 || parked&^listed&^r.taken != 0 {
			return fmt.Errorf("row %d is at %d, %b parked of %b", i, r.at, parked, r.taken)
		}
	}
	for _, r := range l.open {
		if r.taken == 0 || r.taken == full {
			return fmt.Errorf("an open row has %b taken", r.taken)
		}
		for i, s := range r.sleepers {
			if (s != nil) != (r.taken>>i&1 == 1) || s != nil && (s.row != r || int(s.place) != i) {
				return fmt.Errorf("place %d of a row with %b taken is not as its sleeper says", i, r.taken)
			}
		}
	}
	if n := len(l.current.rows); l.occupied.Load() != (n > 0) {
		return fmt.Errorf("occupied is %t with %d rows", l.occupied.Load(), n)
	}
	return nil
}
