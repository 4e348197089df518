package broadcast_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"

	"github.com/otelproto/otelproto-go/broadcast"
)

// handled counts what was reported through otel.Handle.
var handled atomic.Int64

func TestMain(m *testing.M) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) { handled.Add(1) }))
	goleak.VerifyTestMain(m)
}

// stressed is whether the long forms of the stress tests run: OTELPROTO_STRESS=1 go test -run Stress ./broadcast.
var stressed = os.Getenv("OTELPROTO_STRESS") != ""

// scaled is n, or less of it where the race detector makes it slow.
func scaled(n int) int {
	if raced {
		return n / 8
	}
	return n
}

func topicOf[T any](tb testing.TB, o broadcast.Options[T]) *broadcast.Topic[T] {
	tb.Helper()
	if o.MeterProvider == nil {
		o.MeterProvider = noop.NewMeterProvider()
	}
	t, err := broadcast.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { t.Close(nil) })
	return t
}

func publish[T any](tb testing.TB, t *broadcast.Topic[T], values ...T) {
	tb.Helper()
	for _, v := range values {
		if _, err := t.Publish(v); err != nil {
			tb.Fatalf("Publish(%v): %v", v, err)
		}
	}
}

// publishTo publishes sequence numbers as values until the newest is to.
func publishTo(tb testing.TB, t *broadcast.Topic[int], to int) {
	tb.Helper()
	for v := int(t.Stats().Newest) + 1; v <= to; v++ {
		publish(tb, t, v)
	}
}

// wantEvents reads events whose values are their sequence numbers, from first to last.
func wantEvents(tb testing.TB, s *broadcast.Subscription[int], first, last int) {
	tb.Helper()
	for want := first; want <= last; want++ {
		if e, err := s.Next(); err != nil || e.Seq != uint64(want) || e.Value != want {
			tb.Fatalf("Next() = %+v, %v; want event %d", e, err, want)
		}
	}
}

func wantResync(tb testing.TB, s *broadcast.Subscription[int], from, to uint64) {
	tb.Helper()
	e, err := s.Next()
	var resync *broadcast.ResyncError
	if !errors.As(err, &resync) || resync.From != from || resync.To != to {
		tb.Fatalf("Next() = %+v, %v; want a resync [%d, %d)", e, err, from, to)
	}
}

func wantError[T any](tb testing.TB, s *broadcast.Subscription[T], want error) {
	tb.Helper()
	if e, err := s.Next(); !errors.Is(err, want) {
		tb.Fatalf("Next() = %+v, %v; want error %v", e, err, want)
	}
}

// until waits for the condition, and fails the test if it takes longer than a test should.
func until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			tb.Fatalf("timed out waiting until %s", what)
		case <-tick.C:
		}
	}
}

// received returns what is sent on c, and fails the test if nothing is.
func received[T any](tb testing.TB, what string, c <-chan T) (v T) {
	tb.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	select {
	case v = <-c:
	case <-deadline.C:
		tb.Fatalf("timed out waiting for %s", what)
	}
	return v
}

// random returns a generator whose seed a failing test shows.
func random(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := rand.Uint64()
	tb.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// heapAfterGC returns the live heap in bytes.
func heapAfterGC() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A journal is a Source over a slice: event i+1 is at index i. fail, if set, is asked before each event.
type journal struct {
	mu     sync.Mutex
	values []int
	oldest uint64 // events before it are lost; 0 and 1: none
	reads  int
	fail   func(read int, seq uint64) error
}

func (j *journal) append(v int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.values = append(j.values, v)
}

func (j *journal) at(seq uint64) (v int, ok bool, oldest uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if seq < j.oldest {
		return 0, true, j.oldest
	}
	if seq > uint64(len(j.values)) {
		return 0, false, j.oldest
	}
	return j.values[seq-1], true, j.oldest
}

func (j *journal) Read(ctx context.Context, from uint64) iter.Seq2[broadcast.Event[int], error] {
	return func(yield func(broadcast.Event[int], error) bool) {
		j.mu.Lock()
		j.reads++
		read, fail := j.reads, j.fail
		j.mu.Unlock()
		for seq := from; ; seq++ {
			if ctx.Err() != nil {
				yield(broadcast.Event[int]{}, ctx.Err())
				return
			}
			if fail != nil {
				if err := fail(read, seq); err != nil {
					yield(broadcast.Event[int]{}, err)
					return
				}
			}
			v, ok, oldest := j.at(seq)
			if !ok {
				return
			}
			if seq < oldest {
				seq = oldest - 1
				continue
			}
			if !yield(broadcast.Event[int]{Seq: seq, Value: v}, nil) {
				return
			}
		}
	}
}
