// Package workload plays the users of an instance: tables that are looked up and scanned, views that are made for one question,
// subscriptions, and copies.
//
// A [Workload] does what a seed says, in the same order whenever it is run; how the steps fall in time depends on the machine.
package workload

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/otelproto/otelproto-go/examples/compute/controller"
)

// maxConcurrent is how many questions may wait for their answers at once; those beyond are left out.
const maxConcurrent = 64

// chorePeriod is how often one of the chores is done.
const chorePeriod = 100 * time.Millisecond

// A Workload is the users of one instance. Set-up comes before Run.
type Workload struct {
	instance *controller.Instance
	rate     float64
	rand     *rand.Rand // of the goroutine that calls SetUp and Run
	tables   []*table
	users    sync.WaitGroup
	slots    chan struct{}

	// mu guards err, the first error that an instance which works doesn't give.
	mu  sync.Mutex
	err error
}

// New returns a workload that asks rate questions a second.
func New(instance *controller.Instance, rate float64, seed uint64) *Workload {
	return &Workload{
		instance: instance,
		rate:     rate,
		rand:     rand.New(rand.NewPCG(seed, 0)),
		slots:    make(chan struct{}, maxConcurrent),
	}
}

// SetUp installs the tables that are there from the beginning, and ends the instance's initialization.
func (w *Workload) SetUp() error {
	if err := w.instance.Configure(configuration(w.rand)); err != nil {
		return err
	}
	for _, t := range tables(w.rand) {
		ids, err := w.instance.Install(t.plan)
		if err != nil {
			return err
		}
		t.id = ids[0]
		if len(ids) > 1 {
			t.feed = ids[1]
		}
		w.tables = append(w.tables, t)
	}
	return w.instance.Initialize()
}

// Run uses the instance until the context ends, and returns when all that was begun has ended. It returns the first error that an
// instance which works doesn't give.
func (w *Workload) Run(ctx context.Context) error {
	for _, t := range w.tables {
		if t.feed != 0 {
			w.users.Go(func() { w.note(ctx, w.read(ctx, t.feed, forever)) })
		}
	}
	peeks := time.NewTicker(time.Duration(float64(time.Second) / w.rate))
	defer peeks.Stop()
	chores := time.NewTicker(chorePeriod)
	defer chores.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			w.users.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.err
		case <-peeks.C:
			w.start(ctx, w.question())
		case <-chores.C:
			w.start(ctx, w.chore(n))
			n++
		}
	}
}

// A task is one thing that a user does.
type task func(ctx context.Context) error

func (w *Workload) start(ctx context.Context, do task) {
	select {
	case w.slots <- struct{}{}:
	default:
		return
	}
	w.users.Go(func() {
		defer func() { <-w.slots }()
		w.note(ctx, do(ctx))
	})
}

// note keeps the error if it is the first and doesn't come from the end of the run.
func (w *Workload) note(ctx context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && ctx.Err() == nil && w.err == nil {
		w.err = err
	}
}
