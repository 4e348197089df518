package broadcast

import (
	"sync/atomic"
	"unsafe"
)

// chunkLen is the number of events that share one allocation.
const chunkLen = 64

// A chunk holds consecutive events. A slot is written once, before the log's newest is raised to it, and never again, so
// whoever has seen newest reads it without a lock, however long ago the log has dropped the chunk.
type chunk[T any] struct {
	before uint64                   // the sequence number before slot 0's
	limit  atomic.Uint32            // slots that will ever be used; lowered below chunkLen before next is set, never after
	next   atomic.Pointer[chunk[T]] // nil at the tail, and again once the chunk is cut off
	slots  [chunkLen]T
}

// has reports whether the event after cursor stands in c, provided that it has been published: the caller must have
// loaded newest before, or it may see the limit of a chunk that is about to be closed early.
func (c *chunk[T]) has(cursor uint64) bool { return cursor-c.before < uint64(c.limit.Load()) }

func (c *chunk[T]) last() uint64 { return c.before + uint64(c.limit.Load()) }

func newChunk[T any](before uint64) *chunk[T] {
	c := &chunk[T]{before: before}
	c.limit.Store(chunkLen)
	return c
}

// eventLog is the retained events: a chain of chunks from head to tail. It knows nothing of its readers, so appending
// costs the same for one as for ten thousand, and what every reader has passed is garbage.
//
// Appending is the topic's business, under its mutex. Reading needs no lock.
type eventLog[T any] struct {
	start    uint64 // sequence number of the first event ever
	window   uint64 // events retained at most
	maxBytes int    // bytes retained at most; 0: no such bound
	sealAt   int    // bytes after which a chunk takes no further event

	_ [64]byte // readers load what follows, publishers write it: apart from what never changes
	// newest is the sequence number of the newest event, start − 1 before there is one. Storing it publishes the event.
	newest atomic.Uint64
	// passed is the newest sequence number out of the window, maintained only with maxBytes: without, it follows from
	// newest, and saves each publish a store.
	passed atomic.Uint64
	head   atomic.Pointer[chunk[T]] // the oldest chunk with a retained event
	tail   atomic.Pointer[chunk[T]] // the newest chunk
	_      [64]byte                 // the publishers' own, guarded by the topic's mu:

	headEnd   uint64 // the last event of head
	tailBytes int    // bytes in tail
	bytes     int    // bytes retained
	sizes     sizeQueue
}

func (l *eventLog[T]) init(start, window uint64, maxBytes int) {
	l.start, l.window, l.maxBytes = start, window, maxBytes
	// A chunk stays whole while any of its events is retained. With a byte bound, chunks are closed early so that this
	// holds no more than an eighth above the bound, but never so early that the slots outweigh the events.
	l.sealAt = max(maxBytes/8, int(unsafe.Sizeof(chunk[T]{})))
	l.newest.Store(start - 1)
	l.passed.Store(start - 1)
	c := newChunk[T](start - 1)
	l.headEnd = c.last()
	l.head.Store(c)
	l.tail.Store(c)
}

// append adds v and moves the window. The caller holds the topic's mu.
func (l *eventLog[T]) appendLocked(v T, size int) (seq uint64) {
	cursor := l.newest.Load()
	c := l.tail.Load()
	i := cursor - c.before
	if i == chunkLen || l.maxBytes > 0 && i > 0 && l.tailBytes >= l.sealAt {
		c = l.growLocked(cursor, i)
		i = 0
	}
	c.slots[i] = v
	seq = cursor + 1
	l.newest.Store(seq)
	var lowest uint64
	if l.maxBytes > 0 {
		lowest = l.shedLocked(seq, size)
	} else {
		lowest = l.oldest(seq)
	}
	for lowest > l.headEnd {
		l.cutLocked()
	}
	return seq
}

// growLocked closes the tail after used slots and links a fresh one.
func (l *eventLog[T]) growLocked(cursor, used uint64) *chunk[T] {
	old := l.tail.Load()
	if used < chunkLen {
		old.limit.Store(uint32(used))
		if old == l.head.Load() {
			l.headEnd = old.last()
		}
	}
	c := newChunk[T](cursor)
	old.next.Store(c)
	l.tail.Store(c)
	l.tailBytes = 0
	return c
}

// shedLocked accounts for the newest event's size and drops what exceeds either bound. The newest event stays, however
// large: it could never be delivered otherwise.
func (l *eventLog[T]) shedLocked(newest uint64, size int) (oldest uint64) {
	l.tailBytes += size
	l.bytes += size
	l.sizes.push(size)
	passed := l.passed.Load()
	for kept := newest - passed; kept > 1 && (kept > l.window || l.bytes > l.maxBytes); kept-- {
		l.bytes -= l.sizes.pop()
		passed++
	}
	l.passed.Store(passed)
	return passed + 1
}

// cutLocked drops the head. Its next pointer is cleared so that a reader that stalls on it keeps this one chunk alive and
// not all that follow. The window has moved past it before, so a reader that finds nil although newer events exist asks
// for the head again and sees there whether it lost anything.
func (l *eventLog[T]) cutLocked() {
	old := l.head.Load()
	next := old.next.Load()
	l.head.Store(next)
	l.headEnd = next.last()
	old.next.Store(nil)
}

// oldest is the sequence number of the oldest event in the window when newest was the newest.
func (l *eventLog[T]) oldest(newest uint64) uint64 {
	lowest := l.start
	if newest >= l.window {
		lowest = max(lowest, newest-l.window+1)
	}
	if l.maxBytes > 0 {
		lowest = max(lowest, l.passed.Load()+1)
	}
	return lowest
}

// holds reports whether the event after cursor has been published and is in the window, for a cursor from the start on. For
// a cursor at newest the difference wraps around. Without maxBytes passed stays where it began.
func (l *eventLog[T]) holds(cursor, newest uint64) bool {
	return newest-cursor-1 < l.window && cursor >= l.passed.Load()
}

// find returns the chunk of the event after cursor, which has been published, or nil if it has been cut off meanwhile.
// near is where to look first, and may be nil.
func (l *eventLog[T]) find(near *chunk[T], cursor uint64) *chunk[T] {
	for c := near; c != nil; c = c.next.Load() {
		if c.has(cursor) {
			return c
		}
	}
	// near was nil, or cut off, or beyond the cursor. From the head it is one step after a gap.
	for c := l.head.Load(); c != nil && c.before <= cursor; c = c.next.Load() {
		if c.has(cursor) {
			return c
		}
	}
	return nil
}

// sizeQueue is a queue of event sizes over a ring that grows to the longest window it has seen.
type sizeQueue struct {
	ring []int // its length is a power of two
	from uint64
	to   uint64
}

func (q *sizeQueue) push(size int) {
	if n := uint64(len(q.ring)); q.to-q.from == n {
		ring := make([]int, max(16, 2*n))
		for i := q.from; i != q.to; i++ {
			ring[i&uint64(len(ring)-1)] = q.ring[i&(n-1)]
		}
		q.ring = ring
	}
	q.ring[q.to&uint64(len(q.ring)-1)] = size
	q.to++
}

func (q *sizeQueue) pop() int {
	size := q.ring[q.from&uint64(len(q.ring)-1)]
	q.from++
	return size
}
