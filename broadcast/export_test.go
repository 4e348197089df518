package broadcast

import (
	"fmt"
	"testing"
)

// Parked returns how many subscriptions of t wait in Next.
func Parked[T any](t *Topic[T]) int {
	t.lot.mu.Lock()
	defer t.lot.unlock() // a publisher may have found it taken
	return len(t.lot.current.sleepers)
}

// ParkingRoom returns the capacity of the list that subscriptions of t park on.
func ParkingRoom[T any](t *Topic[T]) int {
	t.lot.mu.Lock()
	defer t.lot.unlock() // a publisher may have found it taken
	return cap(t.lot.current.sleepers)
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
	for i, s := range t.lot.current.sleepers {
		if s.index != i || s.state.Load() != sleeping {
			return fmt.Errorf("the sleeper in position %d has index %d and state %d", i, s.index, s.state.Load())
		}
	}
	if n := len(t.lot.current.sleepers); t.lot.occupied.Load() != (n > 0) {
		return fmt.Errorf("occupied is %t with %d parked", t.lot.occupied.Load(), n)
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
