package controller

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// A subscription makes one sequence of updates of what the processes of all replicas send. Instance.mu guards it.
type subscription struct {
	frontier uint64 // every update before it is in the queue or was handed out
	replicas map[*remote]*progress
	queue    []*computepb.Batch
	ready    chan struct{} // closed, and replaced, when there is more in the queue or the subscription is closed
	closed   bool
}

// A progress is what one replica has sent beyond the subscription's frontier.
type progress struct {
	uppers  []uint64 // by process
	updates []*computepb.Update
}

func newSubscription(frontier uint64) *subscription {
	return &subscription{frontier: frontier, replicas: make(map[*remote]*progress), ready: make(chan struct{})}
}

// Next returns the next batch of a subscription: first all rows as of its beginning, then every change, in order of time. After
// the subscription was dropped it is io.EOF, after Shutdown ErrClosed. Batches wait until they are taken. There may be one caller
// at a time.
func (i *Instance) Next(ctx context.Context, id uint64) (*computepb.Batch, error) {
	for {
		i.mu.Lock()
		s, ok := i.subscriptions[id]
		var ready chan struct{}
		if ok {
			if len(s.queue) > 0 {
				batch := s.queue[0]
				s.queue = s.queue[1:]
				i.mu.Unlock()
				return batch, nil
			}
			ready = s.ready
		}
		closed := i.closed
		i.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case !ok:
			return nil, io.EOF
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, fmt.Errorf("controller: subscription %d: %w", id, context.Cause(ctx))
		}
	}
}

func (i *Instance) handleSubscribeLocked(from *process, r *computepb.SubscribeResponse) {
	batch := r.GetBatch()
	if batch == nil {
		i.counts.SubscribeDropped++
		return
	}
	i.counts.SubscribeBatches++
	s, ok := i.subscriptions[r.GetCollection()]
	if !ok {
		return // it was dropped meanwhile
	}
	s.add(from, batch)
}

// add takes in a batch. When all processes of its replica are past the frontier, that replica's updates up to there are the next
// batch of the whole; other replicas will send the same ones later, and are not listened to then.
func (s *subscription) add(from *process, batch *computepb.Batch) {
	of := s.replicas[from.replica]
	if of == nil {
		of = &progress{uppers: make([]uint64, len(from.replica.addresses))}
		s.replicas[from.replica] = of
	}
	of.uppers[from.index] = batch.GetUpper()
	of.updates = slices.DeleteFunc(append(of.updates, batch.GetUpdates()...), func(u *computepb.Update) bool {
		return u.GetTime() < s.frontier
	})
	upper := slices.Min(of.uppers)
	if upper <= s.frontier {
		return
	}
	var ready []*computepb.Update
	of.updates = slices.DeleteFunc(of.updates, func(u *computepb.Update) bool {
		if u.GetTime() >= upper {
			return false
		}
		ready = append(ready, u)
		return true
	})
	slices.SortFunc(ready, func(a, b *computepb.Update) int {
		return cmp.Or(cmp.Compare(a.GetTime(), b.GetTime()), cmp.Compare(a.GetRow().GetKey(), b.GetRow().GetKey()))
	})
	s.queue = append(s.queue, &computepb.Batch{Lower: s.frontier, Upper: upper, Updates: ready})
	s.frontier = upper
	s.wake()
}

func (s *subscription) close() {
	if !s.closed {
		s.closed = true
		close(s.ready)
	}
}

func (s *subscription) wake() {
	if !s.closed {
		close(s.ready)
		s.ready = make(chan struct{})
	}
}
