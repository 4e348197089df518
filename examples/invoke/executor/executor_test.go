package executor_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/examples/invoke/component"
	"github.com/otelproto/otelproto-go/examples/invoke/executor"
	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
	"github.com/otelproto/otelproto-go/examples/invoke/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// components are a component service without a connection, whose answers may be held up.
type components struct {
	component.Service

	gate             chan struct{} // nil: open
	asked            chan struct{} // gets a value for each question, if there is room
	latest, versions atomic.Int64  // questions: for the latest version, for the metadata of one
	failures         atomic.Int64  // to come
}

func (c *components) client() invokepb.ComponentsClient { return client{c} }

type client struct{ *components }

func (c client) LatestVersion(
	ctx context.Context, request *invokepb.LatestVersionRequest, _ ...grpc.CallOption,
) (*invokepb.LatestVersionResponse, error) {
	c.latest.Add(1)
	select {
	case c.asked <- struct{}{}:
	default:
	}
	if c.failures.Add(-1) >= 0 {
		return nil, errors.New("not now")
	}
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c.Service.LatestVersion(ctx, request)
}

func (c client) Metadata(
	ctx context.Context, request *invokepb.MetadataRequest, _ ...grpc.CallOption,
) (*invokepb.MetadataResponse, error) {
	c.versions.Add(1)
	return c.Service.Metadata(ctx, request)
}

// both runs a test once for each way of telling callers.
func both(t *testing.T, test func(t *testing.T, window int)) {
	t.Helper()
	t.Run("by key", func(t *testing.T) { test(t, 0) })
	t.Run("by a topic with a window of one", func(t *testing.T) { test(t, 1) })
}

func start(t *testing.T, j *journal.Journal, c *components, window int) *executor.Executor {
	t.Helper()
	e, err := executor.Start(executor.Options{Journal: j, Shards: 1, Components: c.client(), Window: window})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func acquire(t *testing.T, e *executor.Executor) {
	t.Helper()
	if _, err := e.Acquire(0); err != nil {
		t.Fatal(err)
	}
}

// add is an invocation that adds 1 to one worker's total.
func add(key string) *invokepb.Invocation {
	return &invokepb.Invocation{
		Worker: "w", IdempotencyKey: key, Function: &invokepb.Invocation_Add{Add: &invokepb.Add{Amount: 1}},
	}
}

// await invokes with keys 0 to n-1 at once, and returns the outcomes when all are there.
func await(t *testing.T, e *executor.Executor, n int) (wait func() []*invokepb.Outcome) {
	t.Helper()
	outcomes := make([]*invokepb.Outcome, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			var err error
			if outcomes[i], err = e.InvokeAndAwait(t.Context(), add(strconv.Itoa(i))); err != nil {
				t.Error(err)
			}
		})
	}
	return func() []*invokepb.Outcome {
		group.Wait()
		return outcomes
	}
}

func once(t *testing.T, j *journal.Journal, n uint64) {
	t.Helper()
	if diff := cmp.Diff(journal.Counts{Accepted: n, Outcomes: n, Applied: n}, j.Counts()); diff != "" {
		t.Error(diff)
	}
}

func TestCallersWhoWaitAreSentAwayWhenTheShardMovesAndTheNextOwnerGoesOn(t *testing.T) {
	both(t, func(t *testing.T, window int) {
		const calls = 20
		j := journal.New(1)
		stuck := &components{gate: make(chan struct{}), asked: make(chan struct{}, 1)}
		old, next := start(t, j, stuck, window), start(t, j, &components{}, window)
		acquire(t, old)
		for n := range calls { // so that all of them are accepted
			receipt, err := old.Invoke(t.Context(), add(strconv.Itoa(n)))
			if err != nil || receipt.GetAccepted() == nil {
				t.Fatal(receipt, err)
			}
		}
		outcomes := await(t, old, calls)
		<-stuck.asked // one runs, and gets no further
		old.Release(0)
		for _, outcome := range outcomes() {
			if outcome.GetMoved() == nil {
				t.Errorf("got %v, want to be sent away", outcome)
			}
		}
		if receipt, err := old.Invoke(t.Context(), add("late")); err != nil || receipt.GetMoved() == nil {
			t.Errorf("got %v, %v, want to be sent away", receipt, err)
		}
		acquire(t, next)
		for n, outcome := range await(t, next, calls)() {
			if outcome.GetTotal().GetTotal() != int64(n+1) {
				t.Errorf("%v isn't in the order in which it was accepted, %d", outcome, n)
			}
		}
		once(t, j, calls)
	})
}

func TestOfTwoOwnersOnlyTheLaterOneRecords(t *testing.T) {
	for _, oldFirst := range []bool{true, false} {
		both(t, func(t *testing.T, window int) {
			j := journal.New(1)
			slow := &components{gate: make(chan struct{}), asked: make(chan struct{}, 1)}
			slow2 := &components{gate: make(chan struct{}), asked: make(chan struct{}, 1)}
			old, next := start(t, j, slow, window), start(t, j, slow2, window)
			acquire(t, old)
			outcomes := await(t, old, 1)
			<-slow.asked
			acquire(t, next) // and nobody tells the old one
			<-slow2.asked
			later := await(t, next, 1)
			// The old one finishes, and learns from the journal that it is too late.
			finishes := []func(){
				func() {
					close(slow.gate)
					if outcome := outcomes()[0]; outcome.GetMoved() == nil {
						t.Errorf("the old owner's outcome is %v", outcome)
					}
				},
				func() {
					close(slow2.gate)
					if outcome := later()[0]; outcome.GetTotal().GetTotal() != 1 {
						t.Errorf("the next owner's outcome is %v", outcome)
					}
				},
			}
			if !oldFirst {
				slices.Reverse(finishes)
			}
			for _, finish := range finishes {
				finish()
			}
			once(t, j, 1)
		})
	}
}

func TestAnInvocationRunsOnceHoweverManyCallersAskForIt(t *testing.T) {
	both(t, func(t *testing.T, window int) {
		j := journal.New(1)
		e := start(t, j, &components{}, window)
		acquire(t, e)
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				outcome, err := e.InvokeAndAwait(t.Context(), add("same"))
				if err != nil || outcome.GetTotal().GetTotal() != 1 {
					t.Error(outcome, err)
				}
			})
		}
		group.Wait()
		once(t, j, 1)
	})
}

func TestAShardThatComesBackGoesOn(t *testing.T) {
	both(t, func(t *testing.T, window int) {
		j := journal.New(1)
		e := start(t, j, &components{}, window)
		for range 3 {
			acquire(t, e)
			for n, outcome := range await(t, e, 3)() {
				if outcome.GetTotal() == nil {
					t.Errorf("%d: got %v", n, outcome)
				}
			}
			e.Release(0)
		}
		acquire(t, e)
		acquire(t, e) // without a release
		await(t, e, 3)()
		once(t, j, 3)
	})
}

func TestACallersContextEndsItsWaitingAndNotTheInvocation(t *testing.T) {
	both(t, func(t *testing.T, window int) {
		j := journal.New(1)
		slow := &components{gate: make(chan struct{})}
		e := start(t, j, slow, window)
		acquire(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := e.InvokeAndAwait(ctx, add("0")); status.Code(err) != codes.Canceled {
			t.Errorf("got %v", err)
		}
		close(slow.gate)
		await(t, e, 1)()
		once(t, j, 1)
	})
}

func TestTheLatestVersionIsAskedForEveryTimeAndItsMetadataOnce(t *testing.T) {
	c := &components{}
	j := journal.New(1)
	e := start(t, j, c, 0)
	acquire(t, e)
	read := func(key string) *invokepb.Outcome {
		outcome, err := e.InvokeAndAwait(t.Context(), &invokepb.Invocation{
			Worker: "w", IdempotencyKey: key, Function: &invokepb.Invocation_Read{Read: &invokepb.Read{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	if outcome := read("a"); outcome.GetFailure().GetMessage() != `version 1 has no function "read"` {
		t.Errorf("got %v", outcome)
	}
	read("b")
	c.Publish()
	if outcome := read("c"); outcome.GetVersion() != 2 || outcome.GetText() == nil {
		t.Errorf("got %v", outcome)
	}
	read("d")
	if c.latest.Load() != 4 || c.versions.Load() != 2 {
		t.Errorf("%d questions for the latest version, want 4, and %d for metadata, want 2", c.latest.Load(), c.versions.Load())
	}
	if outcome := read("a"); outcome.GetFailure() == nil || c.latest.Load() != 4 {
		t.Errorf("the recorded outcome has become %v", outcome)
	}
}

func TestAComponentServiceThatFailsIsAskedAgain(t *testing.T) {
	c := &components{}
	c.failures.Store(2)
	j := journal.New(1)
	e := start(t, j, c, 0)
	acquire(t, e)
	await(t, e, 1)()
	once(t, j, 1)
}

func TestAnInvocationThatLacksSomethingIsRefused(t *testing.T) {
	e := start(t, journal.New(1), &components{}, 0)
	acquire(t, e)
	for want, invocation := range map[string]*invokepb.Invocation{
		"executor: an invocation needs a worker":           {},
		"executor: an invocation needs an idempotency key": {Worker: "w"},
		"executor: an invocation needs a function":         {Worker: "w", IdempotencyKey: "k"},
	} {
		_, err := e.Invoke(t.Context(), invocation)
		_, err2 := e.InvokeAndAwait(t.Context(), invocation)
		for _, err := range []error{err, err2} {
			if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
}

func TestAWindowThatMakesNoSenseIsAnError(t *testing.T) {
	e := start(t, journal.New(1), &components{}, -1)
	if _, err := e.Acquire(0); err == nil {
		t.Error("no error")
	}
}
