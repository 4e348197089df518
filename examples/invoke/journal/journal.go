// Package journal is the durable storage that executors share: which invocations were accepted, what came of them, and the state
// of the workers. (It is in memory, so that the demonstration is one command.)
//
// It upholds what must hold whichever executors run, however many believe to own a shard: an invocation, known by its idempotency
// key, has at most one outcome, the state it leaves is recorded together with it, and nothing is recorded by an executor whose
// epoch has passed.
package journal

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
)

// ErrFenced says that another executor has acquired the shard since.
var ErrFenced = errors.New("journal: the shard has another owner")

// A Journal has a log and an owner per shard. Its methods may be called from any goroutine.
type Journal struct {
	shards []shard
}

type shard struct {
	// mu guards the rest. Nothing blocks while it is held.
	mu       sync.Mutex
	epoch    uint64
	accepted []*invokepb.Invocation // in order; those with an outcome leave it when the shard changes hands
	known    map[string]bool        // by idempotency key, accepted ever
	outcomes map[string]*invokepb.Outcome
	workers  map[string]State
}

// A State is what a worker is between two invocations.
type State struct {
	Total   int64
	Text    string
	Applied uint64 // invocations that led here
}

// An Entry is what one invocation came to.
type Entry struct {
	Key     string
	Worker  string
	State   State // of the worker, afterwards
	Outcome *invokepb.Outcome
}

// New returns an empty journal for so many shards.
func New(shards int) *Journal {
	j := &Journal{shards: make([]shard, shards)}
	for i := range j.shards {
		j.shards[i].known = make(map[string]bool)
		j.shards[i].outcomes = make(map[string]*invokepb.Outcome)
		j.shards[i].workers = make(map[string]State)
	}
	return j
}

// Acquire makes the caller the shard's owner, in a new epoch, and returns the invocations that wait to be run, in the order in
// which they were accepted. From now on the previous owner gets ErrFenced.
func (j *Journal) Acquire(shard int) (epoch uint64, pending []*invokepb.Invocation) {
	s := &j.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	for _, invocation := range s.accepted {
		if s.outcomes[invocation.GetIdempotencyKey()] == nil {
			pending = append(pending, invocation)
		}
	}
	s.accepted = slices.Clip(pending) // so that Accept doesn't write behind the caller's
	return s.epoch, pending
}

// Accept records that the invocation is to be run, and reports whether that is news.
func (j *Journal) Accept(shard int, epoch uint64, invocation *invokepb.Invocation) (fresh bool, err error) {
	s := &j.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != epoch {
		return false, ErrFenced
	}
	key := invocation.GetIdempotencyKey()
	if s.known[key] {
		return false, nil
	}
	s.known[key] = true
	s.accepted = append(s.accepted, invocation)
	return true, nil
}

// Worker returns the state of a worker; the zero State is that of one that was never invoked.
func (j *Journal) Worker(shard int, name string) State {
	s := &j.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[name]
}

// Finish records an outcome and the state that belongs to it, both or neither. An invocation that has an outcome keeps it, and
// finishing it again is an error: whoever owns the shard has no reason to run it.
func (j *Journal) Finish(shard int, epoch uint64, e Entry) error {
	s := &j.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.epoch != epoch:
		return ErrFenced
	case !s.known[e.Key]:
		return fmt.Errorf("journal: %q was never accepted", e.Key)
	case s.outcomes[e.Key] != nil:
		return fmt.Errorf("journal: %q has an outcome already", e.Key)
	}
	s.outcomes[e.Key] = e.Outcome
	s.workers[e.Worker] = e.State
	return nil
}

// Lookup returns the outcome recorded under an idempotency key.
func (j *Journal) Lookup(shard int, key string) (*invokepb.Outcome, bool) {
	s := &j.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	outcome, ok := s.outcomes[key]
	return outcome, ok
}

// Counts are sums over all shards. Every invocation ran exactly once if all three are equal.
type Counts struct {
	Accepted uint64 // different idempotency keys
	Outcomes uint64
	Applied  uint64 // invocations that the states of the workers contain
}

// Counts returns the sums.
func (j *Journal) Counts() (c Counts) {
	for i := range j.shards {
		s := &j.shards[i]
		s.mu.Lock()
		c.Accepted += uint64(len(s.known))
		c.Outcomes += uint64(len(s.outcomes))
		for _, state := range s.workers {
			c.Applied += state.Applied
		}
		s.mu.Unlock()
	}
	return c
}
