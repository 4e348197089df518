package channel

import (
	"hash/maphash"
	"iter"
	"sync/atomic"
)

// table maps targets to handles. Look-ups take no lock, allocate nothing and
// hash once: a sync.Map would make an interface of the string, and a map per
// shard that is copied on write hashes twice, for half of a hit's time.
//
// It is an open-addressing hash table with linear probing. Writers are
// serialised by Cache.mu; they fill free slots and replace handles in place,
// and build new slots when a quarter is free no longer.
type table struct {
	seed  maphash.Seed
	slots atomic.Pointer[[]atomic.Pointer[Conn]] // a power of two, never full

	// Of writers only.
	size  int   // handles
	taken int   // slots that aren't free: handles and removed
	gone  *Conn // marks a removed handle, so that probing goes on past it
}

func newTable() *table {
	t := &table{seed: maphash.MakeSeed(), gone: &Conn{target: "\x00"}}
	slots := make([]atomic.Pointer[Conn], 16)
	t.slots.Store(&slots)
	return t
}

// get returns nil if there is no handle on target.
func (t *table) get(target string) *Conn {
	hash := t.hash(target)
	slots := *t.slots.Load()
	mask := uint64(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		c := slots[i].Load()
		if c == nil {
			return nil
		}
		if c.hash == hash && c.target == target {
			return c
		}
	}
}

func (t *table) hash(target string) uint64 { return maphash.String(t.seed, target) }

// put adds c, whose hash is set, or puts it in the place of the handle on its
// target.
func (t *table) put(c *Conn) {
	slots := *t.slots.Load()
	if (t.taken+1)*4 > len(slots)*3 {
		slots = t.rebuild()
	}
	mask := uint64(len(slots) - 1)
	for i := c.hash & mask; ; i = (i + 1) & mask {
		switch old := slots[i].Load(); {
		case old == nil:
			t.size++
			t.taken++
		case old.hash == c.hash && old.target == c.target && old != t.gone:
		default:
			continue
		}
		slots[i].Store(c)
		return
	}
}

// remove takes c out, and reports whether it was in.
func (t *table) remove(c *Conn) bool {
	slots := *t.slots.Load()
	mask := uint64(len(slots) - 1)
	for i := c.hash & mask; ; i = (i + 1) & mask {
		switch slots[i].Load() {
		case nil:
			return false
		case c:
			slots[i].Store(t.gone)
			t.size--
			return true
		}
	}
}

// rebuild leaves the removed behind, and at least half of the slots free.
func (t *table) rebuild() []atomic.Pointer[Conn] {
	n := 16
	for n < 2*(t.size+1) {
		n *= 2
	}
	slots := make([]atomic.Pointer[Conn], n)
	mask := uint64(n - 1)
	for c := range t.all() {
		i := c.hash & mask
		for slots[i].Load() != nil {
			i = (i + 1) & mask
		}
		slots[i].Store(c)
	}
	t.taken = t.size
	t.slots.Store(&slots)
	return slots
}

// all iterates over the handles. It may be used while removing.
func (t *table) all() iter.Seq[*Conn] {
	slots := *t.slots.Load()
	return func(yield func(*Conn) bool) {
		for i := range slots {
			if c := slots[i].Load(); c != nil && c != t.gone && !yield(c) {
				return
			}
		}
	}
}
