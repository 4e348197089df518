package broadcast

import (
	"sync"
	"sync/atomic"
)

// A bell wakes the one goroutine that waits for it. It's a channel of capacity one in less memory: with ten thousand
// goroutines to wake it is cache misses that count, and a channel is an allocation of its own for each.
//
// The zero value needs init. A bell must not be copied.
type bell struct {
	rung atomic.Bool
	cond sync.Cond // its Locker is the bell itself
}

// Lock has nothing to lock: rung is an atomic.
func (b *bell) Lock() {}

// Unlock is called by Cond.Wait, once no Signal can be missed any more. A ring until then may have come before there was
// anything to signal.
func (b *bell) Unlock() {
	if b.rung.Load() {
		b.cond.Signal()
	}
}

func (b *bell) init() { b.cond.L = b }

// ring ends the wait that is under way, or else the next one. What was done before ring is visible after wait. There must
// be one ring for each wait.
func (b *bell) ring() {
	b.rung.Store(true)
	b.cond.Signal()
}

// wait returns after ring.
func (b *bell) wait() {
	for !b.rung.Load() {
		b.cond.Wait()
	}
	b.rung.Store(false)
}
