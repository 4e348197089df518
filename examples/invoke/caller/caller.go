// Package caller invokes workers, many at once, and goes after every outcome until it has it or the time is up.
package caller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
	"github.com/otelproto/otelproto-go/examples/invoke/shards"
)

// Options say what to call.
type Options struct {
	Calls       int
	Workers     int
	Concurrency int // calls at once
	Shards      int
	Seed        uint64
	Timeout     time.Duration // of a call, however often it is retried

	// Conn returns the connection to an executor.
	Conn func(address string) grpc.ClientConnInterface
	// Route says where a shard is, see shards.Manager.
	Route func(ctx context.Context, shard int, after uint64) (shards.Route, error)
	// Begin is called before the call with this number, by its caller, and returns the oldest component version that it may run on.
	Begin func(n int) (version uint64)
	// Recorded returns the outcome that the journal has.
	Recorded func(shard int, key string) (*invokepb.Outcome, bool)
}

// A Result is what became of the calls. Each was completed, or timed out, or failed.
type Result struct {
	Completed uint64
	Retried   uint64 // attempts after the first, because a shard had moved or a connection was lost
	TimedOut  uint64
	Failed    uint64        // ended with another error
	Lost      uint64        // callers that have no outcome, or another than the journal has
	Stale     uint64        // outcomes of a version that was superseded before the call
	Slowest   time.Duration // of the completed calls
	FirstErr  error         // of those that timed out or failed
}

type caller struct {
	Options

	next                                               atomic.Int64
	completed, retried, timedOut, failed, lost, stales atomic.Uint64
	slowest                                            atomic.Int64
	firstErr                                           atomic.Pointer[error]
}

// Run makes the calls and returns what became of them. It ends early if ctx does; the calls under way then count as lost.
func Run(ctx context.Context, o Options) Result {
	c := &caller{Options: o}
	var group errgroup.Group
	for range o.Concurrency {
		group.Go(func() error {
			for ctx.Err() == nil {
				n := int(c.next.Add(1))
				if n > o.Calls {
					break
				}
				c.call(ctx, n)
			}
			return nil
		})
	}
	_ = group.Wait() // nobody returns an error
	result := Result{
		Completed: c.completed.Load(), Retried: c.retried.Load(), TimedOut: c.timedOut.Load(), Failed: c.failed.Load(),
		Lost: c.lost.Load(), Stale: c.stales.Load(), Slowest: time.Duration(c.slowest.Load()),
	}
	if err := c.firstErr.Load(); err != nil {
		result.FirstErr = *err
	}
	return result
}

// call makes one call and takes account of it.
func (c *caller) call(ctx context.Context, n int) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	oldest := c.Begin(n)
	begin := time.Now()
	invocation, twoSteps := c.invocation(n)
	shard := shards.Of(invocation.GetWorker(), c.Shards)
	outcome, err := c.outcome(ctx, shard, invocation, twoSteps)
	if err != nil {
		c.lost.Add(1)
		err = fmt.Errorf("caller: %s: %w", invocation.GetIdempotencyKey(), err)
		c.firstErr.CompareAndSwap(nil, &err)
		if ctx.Err() != nil {
			c.timedOut.Add(1)
		} else {
			c.failed.Add(1)
		}
		return
	}
	c.completed.Add(1)
	if outcome.GetVersion() < oldest {
		c.stales.Add(1)
	}
	if recorded, ok := c.Recorded(shard, invocation.GetIdempotencyKey()); !ok || !same(recorded, outcome) {
		c.lost.Add(1)
	}
	took := int64(time.Since(begin))
	for slowest := c.slowest.Load(); took > slowest && !c.slowest.CompareAndSwap(slowest, took); {
		slowest = c.slowest.Load()
	}
}

// outcome goes after one outcome.
func (c *caller) outcome(
	ctx context.Context, shard int, invocation *invokepb.Invocation, twoSteps bool,
) (outcome *invokepb.Outcome, err error) {
	if twoSteps {
		err = c.follow(ctx, shard, func(client invokepb.WorkerExecutorClient) (moved bool, err error) {
			receipt, err := client.Invoke(ctx, invocation)
			return receipt.GetMoved() != nil, err
		})
		if err != nil {
			return nil, err
		}
	}
	err = c.follow(ctx, shard, func(client invokepb.WorkerExecutorClient) (moved bool, err error) {
		outcome, err = client.InvokeAndAwait(ctx, invocation)
		return outcome.GetMoved() != nil, err
	})
	return outcome, err
}

// follow attempts something with the owner of a shard, and with the next owner if the shard has moved. The idempotency key makes
// it safe to attempt again what may have happened.
func (c *caller) follow(
	ctx context.Context, shard int, attempt func(invokepb.WorkerExecutorClient) (moved bool, err error),
) error {
	var epoch uint64
	for {
		route, err := c.Route(ctx, shard, epoch)
		if err != nil {
			return err
		}
		moved, err := attempt(invokepb.NewWorkerExecutorClient(c.Conn(route.Address)))
		switch {
		case err == nil && !moved:
			return nil
		case err == nil:
			epoch = route.Epoch // and wait for another
		case status.Code(err) != codes.Unavailable || ctx.Err() != nil:
			return err
		}
		c.retried.Add(1)
	}
}

// invocation is the call with this number, which follows from the seed, and whether to ask for its outcome separately.
func (c *caller) invocation(n int) (invocation *invokepb.Invocation, twoSteps bool) {
	random := rand.New(rand.NewPCG(c.Seed, uint64(n)))
	invocation = &invokepb.Invocation{
		Worker:         fmt.Sprintf("worker-%d", random.IntN(c.Workers)),
		IdempotencyKey: fmt.Sprintf("%016x-%d", c.Seed, n),
	}
	switch random.IntN(4) {
	case 0:
		invocation.Function = &invokepb.Invocation_Write{Write: &invokepb.Write{Text: fmt.Sprintf("%0*d", 20+random.IntN(200), n)}}
	case 1:
		invocation.Function = &invokepb.Invocation_Read{Read: &invokepb.Read{}}
	default:
		invocation.Function = &invokepb.Invocation_Add{Add: &invokepb.Add{Amount: 1 + random.Int64N(100)}}
	}
	return invocation, random.IntN(8) == 0
}

func same(a, b *invokepb.Outcome) bool {
	return a.GetVersion() == b.GetVersion() &&
		a.GetTotal().GetTotal() == b.GetTotal().GetTotal() &&
		a.GetWritten().GetBytes() == b.GetWritten().GetBytes() &&
		a.GetText().GetText() == b.GetText().GetText() &&
		a.GetFailure().GetMessage() == b.GetFailure().GetMessage()
}
