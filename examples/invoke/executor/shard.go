package executor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
	"github.com/otelproto/otelproto-go/examples/invoke/journal"
)

// A shard is one ownership of a shard: it ends when the shard is released, and another begins if it comes back.
type shard struct {
	executor *Executor
	id       int
	epoch    uint64
	told     completion
	ctx      context.Context // of everything that runs
	cancel   context.CancelFunc

	// mu guards the rest. Nothing blocks while it is held.
	mu     sync.Mutex
	moved  bool
	queues map[string][]*invokepb.Invocation // what each worker has to do; a worker with a queue has a goroutine
}

func newShard(e *Executor, id int, epoch uint64, told completion) *shard {
	s := &shard{executor: e, id: id, epoch: epoch, told: told, queues: make(map[string][]*invokepb.Invocation)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// release ends it. What is queued stays in the journal for the next owner.
func (s *shard) release() {
	s.mu.Lock()
	before := s.moved
	s.moved = true
	s.mu.Unlock()
	if before {
		return
	}
	s.cancel()
	s.told.fail(errMoved) // after the mark that await looks at
	s.executor.resyncs.Add(s.told.resyncs())
}

// lost is what to do when the journal says that there is another owner, of which nobody has told this executor yet.
func (s *shard) lost() {
	e := s.executor
	e.mu.Lock()
	if e.owned[s.id] == s {
		delete(e.owned, s.id)
	}
	e.mu.Unlock()
	s.release()
}

// accept makes sure that the invocation runs, now or some day, or else reports that another owner has to.
func (s *shard) accept(invocation *invokepb.Invocation) bool {
	fresh, err := s.executor.options.Journal.Accept(s.id, s.epoch, invocation)
	if err != nil {
		s.lost()
		return false
	}
	if fresh {
		s.enqueue(invocation)
	}
	return true
}

// await returns the outcome of an invocation that was accepted.
func (s *shard) await(ctx context.Context, key string) (*invokepb.Outcome, error) {
	return s.told.await(ctx, key, func(context.Context) (*invokepb.Outcome, bool, error) {
		if outcome, ok := s.executor.options.Journal.Lookup(s.id, key); ok {
			return outcome, true, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.moved {
			return nil, false, errMoved
		}
		return nil, false, nil
	})
}

// enqueue adds to the worker's queue, and wakes the worker if it had none.
func (s *shard) enqueue(invocation *invokepb.Invocation) {
	worker := invocation.GetWorker()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved {
		return
	}
	queue, awake := s.queues[worker]
	s.queues[worker] = append(queue, invocation)
	if !awake {
		s.executor.workers.Go(func() { s.work(worker) })
	}
}

// next takes the worker's next invocation, and otherwise lets the worker go to sleep.
func (s *shard) next(worker string) *invokepb.Invocation {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queues[worker]
	if s.moved || len(queue) == 0 {
		delete(s.queues, worker)
		return nil
	}
	s.queues[worker] = queue[1:]
	return queue[0]
}

// work runs a worker's invocations, one after the other, until there are none.
func (s *shard) work(worker string) {
	for {
		invocation := s.next(worker)
		if invocation == nil {
			return
		}
		if err := s.run(invocation); err != nil {
			// Whatever it is, the invocation has no outcome, and an executor that can't record one had better not own the shard.
			s.lost()
		}
	}
}

// run runs an invocation, records what came of it, and then tells.
func (s *shard) run(invocation *invokepb.Invocation) error {
	component, err := s.component()
	if err != nil {
		return err
	}
	j := s.executor.options.Journal
	state, outcome := apply(component, j.Worker(s.id, invocation.GetWorker()), invocation)
	key := invocation.GetIdempotencyKey()
	entry := journal.Entry{Key: key, Worker: invocation.GetWorker(), State: state, Outcome: outcome}
	if err := j.Finish(s.id, s.epoch, entry); err != nil {
		return err
	}
	s.told.complete(key, outcome)
	return nil
}

// component returns the latest version's metadata, and asks again, after a pause, until it gets it or the shard is released.
func (s *shard) component() (*invokepb.MetadataResponse, error) {
	for {
		component, err := s.executor.components.latest(s.ctx)
		if err == nil {
			return component, nil
		}
		pause := time.NewTimer(componentPause)
		select {
		case <-s.ctx.Done():
			pause.Stop()
			return nil, errors.Join(errMoved, err)
		case <-pause.C:
		}
	}
}
