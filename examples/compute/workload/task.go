package workload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
	"github.com/otelproto/otelproto-go/examples/compute/controller"
)

// question is the next peek: most are for a row or a few, some for a lot, and some are mistaken.
func (w *Workload) question() task {
	switch n := w.rand.IntN(100); {
	case n < 55:
		return w.peek(accounts, 1)
	case n < 70:
		return w.peek(accounts, 1+w.rand.Uint64N(200))
	case n < 85:
		return w.peek(orders, 1+w.rand.Uint64N(50))
	case n < 92:
		return w.peek(documents, 1+w.rand.Uint64N(4))
	case n < 95:
		return w.peek(blobs, 1)
	case n < 97:
		return w.mistake(orders, controller.Peek{EndKey: 1}) // at a time that is compacted away, unless the run is young
	default:
		return w.impatience(accounts)
	}
}

// peek asks for some rows of a table from a random key on.
func (w *Workload) peek(at int, rows uint64) task {
	t := w.tables[at]
	first := w.rand.Uint64N(t.keys)
	return func(ctx context.Context) error {
		_, err := w.instance.Peek(ctx, controller.Peek{
			Collection: t.id, Timestamp: controller.Newest, FirstKey: first, EndKey: first + rows,
		})
		return err
	}
}

// mistake asks for what a replica may refuse.
func (w *Workload) mistake(at int, p controller.Peek) task {
	p.Collection = w.tables[at].id
	return func(ctx context.Context) error {
		_, err := w.instance.Peek(ctx, p)
		if _, ok := errors.AsType[*controller.PeekError](err); ok {
			return nil
		}
		return err
	}
}

// impatience asks for rows as they will be in a while, and doesn't wait for them.
func (w *Workload) impatience(at int) task {
	t := w.tables[at]
	patience := time.Duration(w.rand.IntN(100)) * time.Millisecond
	return func(ctx context.Context) error {
		impatient, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := w.instance.Peek(impatient, controller.Peek{Collection: t.id, Timestamp: w.instance.Now() + 1000, EndKey: 100})
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	}
}

// chore is the nth thing that comes by the clock, one after the other, so that a short run has seen each.
func (w *Workload) chore(n int) task {
	switch n % 6 {
	case 0:
		return w.look()
	case 1:
		return w.watch()
	case 2:
		return w.save()
	case 3:
		return w.mistake(documents, controller.Peek{Timestamp: controller.Newest, EndKey: math.MaxUint64}) // too much at once
	case 4:
		return w.impatience(accounts)
	default:
		parameters := configuration(w.rand)
		return func(context.Context) error { return w.instance.Configure(parameters) }
	}
}

// look makes a view, reads all of it, and drops it.
func (w *Workload) look() task {
	return w.with(view(w.rand, w.tables[orders], index()), func(ctx context.Context, id uint64) error {
		_, err := w.instance.Peek(ctx, controller.Peek{Collection: id, Timestamp: controller.Newest, EndKey: math.MaxUint64})
		return err
	})
}

// watch subscribes to a view for some batches.
func (w *Workload) watch() task {
	batches := 2 + w.rand.IntN(10)
	return w.with(view(w.rand, w.tables[orders], subscribe()), func(ctx context.Context, id uint64) error {
		return w.read(ctx, id, batches)
	})
}

// save copies a view to the outside.
func (w *Workload) save() task {
	uri := fmt.Sprintf("mem://exports/%08x", w.rand.Uint32())
	return w.with(view(w.rand, w.tables[orders], copyTo(uri)), func(ctx context.Context, id uint64) error {
		_, err := w.instance.AwaitCopy(ctx, id)
		return err
	})
}

// with does something with a dataflow that is there for as long as that takes.
func (w *Workload) with(plan *computepb.Dataflow, do func(ctx context.Context, id uint64) error) task {
	return func(ctx context.Context) error {
		ids, err := w.instance.Install(plan)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, ids[0]), w.instance.Drop(ids[0]))
	}
}

// forever as a number of batches is all until the context ends.
const forever = math.MaxInt

// read takes a number of batches from a subscription.
func (w *Workload) read(ctx context.Context, id uint64, batches int) error {
	for range batches {
		if _, err := w.instance.Next(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
