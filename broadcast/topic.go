package broadcast

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// An Event is one published value and its position in the topic. Positions are dense: the next event has the next one.
type Event[T any] struct {
	Seq   uint64
	Value T
}

// A Topic hands each published event to every subscription. Create one with [New]. All methods may be called from any
// number of goroutines, under any lock of the caller's, and from code that consumes events.
type Topic[T any] struct {
	name   string
	size   func(T) int // nil without a byte bound
	source Source[T]

	log     eventLog[T]
	lot     lot
	members members
	sources sourceHealth
	resyncs atomic.Uint64

	closed atomic.Bool // set under mu after cause; no event is appended afterwards
	cause  error       // what Next returns once closed is set

	// mu guards appending to log, closing, and registration. Nothing blocks and no foreign code runs while it is held.
	mu           sync.Mutex
	registration metric.Registration
}

// New returns a topic. It fails if an option makes no sense or the meter provider refuses the instruments.
func New[T any](o Options[T]) (*Topic[T], error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	t := &Topic[T]{name: o.Name, source: o.Source}
	if o.WindowBytes > 0 {
		t.size = o.Size
	}
	t.log.init(max(o.First, 1), uint64(o.window()), o.WindowBytes)
	t.lot.init(func(seen uint64) bool { return t.log.newest.Load() > seen || t.closed.Load() })
	registration, err := observe(t, o.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("broadcast: registering the instruments of topic %q: %w", o.Name, err)
	}
	t.registration = registration
	// A topic that is dropped without Close takes its instruments along: the callback holds it weakly.
	runtime.AddCleanup(t, unregister, registration)
	return t, nil
}

// Publish appends v and returns its sequence number. It never waits for a subscriber: one that lags past the window loses
// its place, not the publisher its time. After Close it returns ErrClosed.
//
// With a byte bound, Publish calls Options.Size first, holding no lock. That is the only code of the user's it runs.
func (t *Topic[T]) Publish(v T) (seq uint64, err error) {
	size := 0
	if t.size != nil {
		if size = t.size(v); size < 0 {
			return 0, fmt.Errorf("broadcast: Options.Size returned %d; want 0 or more bytes", size)
		}
	}
	t.mu.Lock()
	if t.closed.Load() {
		t.mu.Unlock()
		return 0, ErrClosed
	}
	seq = t.log.appendLocked(v, size)
	t.mu.Unlock()
	t.lot.wakeAll()
	return seq, nil
}

// Subscribe returns a subscription to the events from the next one on: it covers every event whose Publish begins after
// Subscribe has returned, and none whose Publish had returned before Subscribe was called.
//
// ctx bounds the waiting of every Next. Close the subscription when done with it; one that is dropped without Close is
// collected all the same, and counts as a subscriber until then.
func (t *Topic[T]) Subscribe(ctx context.Context) *Subscription[T] {
	near := t.log.tail.Load() // before newest, so that the next event is in it or after it
	s := t.subscribe(ctx, t.log.newest.Load(), near)
	s.guard()
	return s
}

// SubscribeAt resumes after the event seq: the first event delivered is seq + 1, or, if that has left the window, the
// first Next reports or replays the gap like any other. SubscribeAt(ctx, 0) starts with the first.
// If seq has not been published yet, every Next returns an error that wraps ErrAhead.
func (t *Topic[T]) SubscribeAt(ctx context.Context, seq uint64) *Subscription[T] {
	newest := t.log.newest.Load()
	if seq == 0 && t.source == nil {
		seq = t.log.start - 1
	}
	s := t.subscribe(ctx, min(seq, newest), nil)
	if seq > newest {
		s.broken = fmt.Errorf("%w: SubscribeAt(%d), newest is %d", ErrAhead, seq, newest)
	}
	s.guard()
	return s
}

// Close ends the topic: Publish returns ErrClosed from now on, and each Next returns cause once its subscription has
// drained what was published. A nil cause stands for ErrClosed. Only the first call has an effect.
func (t *Topic[T]) Close(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	t.mu.Lock()
	if t.closed.Load() {
		t.mu.Unlock()
		return
	}
	t.cause = cause
	t.closed.Store(true)
	registration := t.registration
	t.mu.Unlock()
	t.lot.wakeAll()
	unregister(registration)
}

var errNilContext = errors.New("broadcast: nil context")
