package broadcast_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/otelproto/otelproto-go/broadcast"
)

// missing is a check that finds nothing.
func missing(context.Context) (string, bool, error) { return "", false, nil }

// is returns a match for the event v.
func is(v int) func(int) (string, bool) {
	return func(got int) (string, bool) { return "event", got == v }
}

// Await 1. The waiter is registered before check runs, inside the call. A completion before, during or after the check is
// delivered in every interleaving.
func TestAwaitFindsTheOutcomeWheneverItComes(t *testing.T) {
	for _, when := range []string{"before", "during", "during, with a lag", "after", "after, with a lag"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				topic := topicOf(t, broadcast.Options[int]{Window: 1})
				var done atomic.Bool
				complete := func() {
					done.Store(true)
					publish(t, topic, 42)
				}
				noise := func() { publish(t, topic, 1, 2, 3) }
				checks := 0
				check := func(context.Context) (string, bool, error) {
					checks++
					found := done.Load()
					if checks == 1 && (when == "during" || when == "during, with a lag") {
						complete() // after the state was looked at
						if when != "during" {
							noise()
						}
					}
					return "state", found, nil
				}
				if when == "before" {
					complete()
				}
				go func() {
					synctest.Wait()
					if when == "after" || when == "after, with a lag" {
						complete()
						if when != "after" {
							noise()
						}
					}
				}()
				v, err := broadcast.Await(t.Context(), topic, check, is(42))
				if err != nil || v != "event" && v != "state" {
					t.Errorf("Await = %q, %v", v, err)
				}
				if when == "before" && v != "state" || when == "during" && v != "event" ||
					when == "during, with a lag" && (v != "state" || checks != 2) {
					t.Errorf("Await = %q after %d checks", v, checks)
				}
				if n := topic.Stats().Subscribers; n != 0 {
					t.Errorf("%d subscribers are left", n)
				}
			})
		})
	}
}

// After a gap the state is asked again; a source isn't read for it.
func TestAwaitChecksAgainInsteadOfReplaying(t *testing.T) {
	j := journalOf(10)
	topic := topicOf(t, broadcast.Options[int]{Window: 1, Source: j})
	checks := 0
	v, err := broadcast.Await(t.Context(), topic, func(context.Context) (string, bool, error) {
		if checks++; checks == 1 {
			publishTo(t, topic, 10)
			return "", false, nil
		}
		return "state", true, nil
	}, is(5))
	if v != "state" || err != nil || checks != 2 || j.reads != 0 {
		t.Errorf("Await = %q, %v after %d checks and %d reads", v, err, checks, j.reads)
	}
	if got := topic.Stats().Resyncs; got != 1 {
		t.Errorf("%d resyncs, want 1", got)
	}
}

// Await 3, 5. Close wakes at once with the cause; an error from check is returned as it is; a panic leaves nothing behind.
func TestAwaitEndsWithItsErrorsAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf(t, broadcast.Options[int]{})
		failed := errors.New("no database")
		_, err := broadcast.Await(t.Context(), topic, func(context.Context) (string, bool, error) { return "", false, failed }, is(1))
		if err != failed { //nolint:errorlint // as it is
			t.Errorf("Await = %v, want the error of check", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { synctest.Wait(); cancel() }()
		if _, err := broadcast.Await(ctx, topic, missing, is(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("Await = %v, want context.Canceled", err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = broadcast.Await(t.Context(), topic, func(context.Context) (string, bool, error) { panic("check") }, is(1))
		}()
		if _, err := broadcast.Await(t.Context(), topic, nil, is(1)); err == nil {
			t.Error("a nil check is accepted")
		}
		if _, err := broadcast.Await[int, string](t.Context(), topic, missing, nil); err == nil {
			t.Error("a nil match is accepted")
		}
		if n := topic.Stats().Subscribers; n != 0 {
			t.Errorf("%d subscribers are left", n)
		}
		cause := errors.New("moved")
		go func() { synctest.Wait(); topic.Close(cause) }()
		if _, err := broadcast.Await(t.Context(), topic, missing, is(1)); !errors.Is(err, cause) {
			t.Errorf("Await = %v, want the cause", err)
		}
	})
}

// The difference that this package makes: the same load, the same window of one event, completions recorded in a state and
// then published. The old way checks, then subscribes, and skips what it lagged behind: calls are left waiting for ever for
// an outcome that is there. Await loses none.
func TestTheOldWayLosesEventsWhereAwaitLosesNone(t *testing.T) {
	const callers, calls = 50, 4000
	type check = func(context.Context) (string, bool, error)
	// run returns how many callers are left waiting for good.
	run := func(await func(ctx context.Context, topic *broadcast.Topic[int], key int, look check) error) (lost int64) {
		topic := topicOf(t, broadcast.Options[int]{Window: 1})
		var state sync.Map
		var submitted, published atomic.Int64
		var active atomic.Int64
		work := make(chan int, callers)
		var workers, waiting sync.WaitGroup
		for range 2 {
			workers.Go(func() {
				for key := range work {
					state.Store(key, true)
					publish(t, topic, key)
					published.Add(1)
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		active.Store(callers)
		for c := range callers {
			waiting.Go(func() {
				for key := c; key < calls; key += callers {
					submitted.Add(1)
					work <- key
					if await(ctx, topic, key, func(context.Context) (string, bool, error) {
						_, ok := state.Load(key)
						runtime.Gosched() // a look-up takes its time
						return "state", ok, nil
					}) != nil {
						return
					}
				}
				active.Add(-1)
			})
		}
		// Everything is published and everybody left is parked: nothing will ever wake them.
		until(t, "every caller has finished or waits in vain", func() bool {
			return published.Load() == submitted.Load() && int64(broadcast.Parked(topic)) == active.Load()
		})
		lost = active.Load()
		cancel()
		waiting.Wait()
		close(work)
		workers.Wait()
		return lost
	}

	oldWay := run(func(ctx context.Context, topic *broadcast.Topic[int], key int, look check) error {
		if _, ok, err := look(ctx); ok || err != nil {
			return err
		}
		s := topic.Subscribe(ctx) // what was completed since the check is lost
		defer s.Close()
		for {
			e, err := s.Next()
			if errors.As(err, new(*broadcast.ResyncError)) {
				continue // what was in the gap is lost
			}
			if err != nil || e.Value == key {
				return err
			}
		}
	})
	ours := run(func(ctx context.Context, topic *broadcast.Topic[int], key int, look check) error {
		_, err := broadcast.Await(ctx, topic, look, is(key))
		return err
	})
	t.Logf("%d callers over a window of one event: the old way left %d waiting for ever, Await %d", callers, oldWay, ours)
	if oldWay == 0 {
		t.Error("the old way lost nothing: the load shows no difference")
	}
	if ours != 0 {
		t.Errorf("Await left %d callers waiting", ours)
	}
}
