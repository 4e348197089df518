package broadcast

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
)

const (
	shardCount = 64  // a power of two
	smallShard = 128 // a map that held more keys than this is dropped once it is empty: maps don't shrink
)

var errOddKey = errors.New("broadcast: Await with a key that isn't equal to itself, such as NaN: no completion could find it")

// shardSeed spreads keys over shards, of all Waiters alike, so that their zero value needs no initialisation.
var shardSeed = maphash.MakeSeed() //nolint:gochecknoglobals // never changes after start-up, and maps have it so too

// Waiters are goroutines that wait for the outcome of many things, each by its key. A completion costs what its own
// waiters cost, whoever else waits. The zero value is ready for use; it must not be copied. All methods may be called from
// any goroutine.
type Waiters[K comparable, V any] struct {
	shards [shardCount]shard[K, V]
}

type shard[K comparable, V any] struct {
	// mu guards the rest, and n of the groups. No foreign code runs and nothing blocks while it is held.
	mu      sync.Mutex
	waiting map[K]*group[V]
	peak    int   // the most keys since waiting was made
	cause   error // set by Close
	_       [32]byte
}

// A group is all who wait for one key. Who takes it off the map writes value and err, and then closes done.
type group[V any] struct {
	n     int
	done  chan struct{}
	value V
	err   error
}

// Await returns the outcome for key: what check finds, or what Complete or Fail bring.
//
// It registers the caller, calls check once, which looks the outcome up in the state where it is recorded, and if it isn't
// there waits. A completion before the call is found by check, provided that the state was written before Complete was
// called; one during or after is brought by Complete.
//
// It returns an error of check as it is, the cause given to Fail or Close, and the context's error if that ends first; an
// outcome that is there wins over a context that has ended.
func (w *Waiters[K, V]) Await(ctx context.Context, key K, check func(context.Context) (V, bool, error)) (V, error) {
	var none V
	if check == nil {
		return none, errNoCheck
	}
	if key != key { //nolint:gocritic // true of NaN
		return none, errOddKey
	}
	s := w.shard(key)
	g, err := s.join(key)
	if err != nil {
		return none, err
	}
	defer s.leave(key, g)
	if v, ok, err := check(ctx); err != nil {
		return none, err
	} else if ok {
		return v, nil
	}
	select {
	case <-g.done:
	case <-ctx.Done():
		if !s.taken(key, g) {
			return none, contextError(ctx)
		}
		<-g.done // whoever took the group off is about to close it
	}
	return g.value, g.err
}

// Complete hands v to all who wait for key and returns how many those are. It doesn't wait for them. Who calls Await
// later depends on check: record the outcome before calling Complete.
func (w *Waiters[K, V]) Complete(key K, v V) (woken int) {
	s := w.shard(key)
	s.mu.Lock()
	g, n := s.takeLocked(key)
	s.mu.Unlock()
	g.finish(v, nil)
	return n
}

// Fail makes all whose key match accepts return cause, and returns how many those are: the keys of a shard that moved
// away, say, so that their callers turn elsewhere at once. A nil match accepts every key, a nil cause stands for ErrClosed.
// match runs on the caller's goroutine without a lock; who registers while Fail runs may or may not be included.
func (w *Waiters[K, V]) Fail(match func(K) bool, cause error) (woken int) {
	if cause == nil {
		cause = ErrClosed
	}
	var none V
	for i := range w.shards {
		s := &w.shards[i]
		var keys []K
		for _, key := range s.keys() {
			if match == nil || match(key) {
				keys = append(keys, key)
			}
		}
		if len(keys) == 0 {
			continue
		}
		groups := make([]*group[V], len(keys))
		s.mu.Lock()
		for i, key := range keys {
			g, n := s.takeLocked(key)
			groups[i] = g
			woken += n
		}
		s.mu.Unlock()
		for _, g := range groups {
			g.finish(none, cause)
		}
	}
	return woken
}

// Close makes all who wait return cause, and all who call Await later. A nil cause stands for ErrClosed. Only the first
// call has an effect.
func (w *Waiters[K, V]) Close(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	var none V
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		waiting := s.waiting
		if s.cause == nil {
			s.cause = cause
		}
		s.waiting, s.peak = nil, 0
		s.mu.Unlock()
		for _, g := range waiting {
			g.finish(none, cause)
		}
	}
}

// Len returns how many calls of Await are registered.
func (w *Waiters[K, V]) Len() (n int) {
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for _, g := range s.waiting {
			n += g.n
		}
		s.mu.Unlock()
	}
	return n
}

func (w *Waiters[K, V]) shard(key K) *shard[K, V] {
	return &w.shards[maphash.Comparable(shardSeed, key)%shardCount]
}

// join registers the caller for key.
func (s *shard[K, V]) join(key K) (*group[V], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return nil, s.cause
	}
	if g := s.waiting[key]; g != nil {
		g.n++
		return g, nil
	}
	if s.waiting == nil {
		s.waiting = make(map[K]*group[V])
	}
	g := &group[V]{n: 1, done: make(chan struct{})}
	s.waiting[key] = g
	s.peak = max(s.peak, len(s.waiting))
	return g, nil
}

// leave undoes join, unless the group has been taken off.
func (s *shard[K, V]) leave(key K, g *group[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[key] != g {
		return
	}
	if g.n--; g.n == 0 {
		s.takeLocked(key)
	}
}

func (s *shard[K, V]) taken(key K, g *group[V]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[key] != g
}

// takeLocked takes key's group off the map, nil if nobody waits.
func (s *shard[K, V]) takeLocked(key K) (g *group[V], n int) {
	g = s.waiting[key]
	if g == nil {
		return nil, 0
	}
	delete(s.waiting, key)
	if len(s.waiting) == 0 && s.peak > smallShard {
		s.waiting, s.peak = nil, 0
	}
	return g, g.n
}

func (s *shard[K, V]) keys() []K {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]K, 0, len(s.waiting))
	for key := range s.waiting {
		keys = append(keys, key)
	}
	return keys
}

func (g *group[V]) finish(value V, err error) {
	if g == nil {
		return
	}
	g.value, g.err = value, err
	close(g.done)
}
