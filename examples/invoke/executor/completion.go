package executor

import (
	"context"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/otelproto/otelproto-go/broadcast"
	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
)

// A lookup looks into the journal for one invocation's outcome.
type lookup = func(context.Context) (*invokepb.Outcome, bool, error)

// A completion tells those who wait for outcomes of one shard in one epoch.
type completion interface {
	// await returns the outcome, or the cause given to fail.
	await(ctx context.Context, key string, check lookup) (*invokepb.Outcome, error)
	// complete tells an outcome that is in the journal.
	complete(key string, outcome *invokepb.Outcome)
	// fail ends all waiting with the cause.
	fail(cause error)
	resyncs() uint64
}

func (e *Executor) newCompletion() (completion, error) {
	if e.options.Window == 0 {
		return &keyed{waiters: &e.waiters}, nil
	}
	topic, err := broadcast.New(broadcast.Options[finished]{
		Window:        e.options.Window,
		MeterProvider: noop.NewMeterProvider(), // topics come and go with shards, and are counted by Resyncs
	})
	if err != nil {
		return nil, err
	}
	return &shared{topic: topic}, nil
}

// A waitKey is an invocation of one ownership of a shard, so that nobody who comes late to the last one waits in the next.
type waitKey struct {
	owner *keyed
	key   string
}

// keyed wakes those who wait for an outcome, and nobody else.
type keyed struct {
	waiters *broadcast.Waiters[waitKey, *invokepb.Outcome]
}

func (k *keyed) await(ctx context.Context, key string, check lookup) (*invokepb.Outcome, error) {
	return k.waiters.Await(ctx, waitKey{k, key}, check)
}

func (k *keyed) complete(key string, outcome *invokepb.Outcome) {
	k.waiters.Complete(waitKey{k, key}, outcome)
}

func (k *keyed) fail(cause error) {
	k.waiters.Fail(func(w waitKey) bool { return w.owner == k }, cause)
}

func (k *keyed) resyncs() uint64 { return 0 }

// A finished is an event: one invocation has an outcome.
type finished struct {
	key     string
	outcome *invokepb.Outcome
}

// shared wakes all who wait in the shard, each of whom looks whether it is theirs.
type shared struct {
	topic *broadcast.Topic[finished]
}

func (s *shared) await(ctx context.Context, key string, check lookup) (*invokepb.Outcome, error) {
	return broadcast.Await(ctx, s.topic, check, func(f finished) (*invokepb.Outcome, bool) {
		return f.outcome, f.key == key
	})
}

func (s *shared) complete(key string, outcome *invokepb.Outcome) {
	// A closed topic has told its cause to all who wait, and they ask the new owner.
	_, _ = s.topic.Publish(finished{key, outcome})
}

func (s *shared) fail(cause error) { s.topic.Close(cause) }

func (s *shared) resyncs() uint64 { return s.topic.Stats().Resyncs }
