package broadcast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/otelproto/otelproto-go/broadcast"
)

// Topic 1 to 3 and 8 to 10 with real goroutines: publishers at full speed, subscribers that read, lag, cancel, close, drop
// and come again. Each checks its own stream: dense, or with the gap named, and with the values that were published.
func TestStressStreamsAreSoundWhileEverythingRunsAtOnce(t *testing.T) {
	r := random(t)
	events := scaled(20_000)
	if stressed {
		events = 2_000_000
	}
	for _, window := range []int{1, 2, 64, 1000} {
		const publishers, readers = 4, 16
		topic := topicOf(t, broadcast.Options[int64]{Window: window})
		values := make([]atomic.Int64, publishers*events+1) // by sequence number, once known
		var delivered, skipped atomic.Uint64
		var done atomic.Bool
		var pub, sub sync.WaitGroup
		for range readers {
			r := rand.New(rand.NewPCG(r.Uint64(), 0))
			sub.Go(func() {
				for stressReader(t, topic, r, values, &delivered, &skipped, &done) {
				}
			})
		}
		for p := range publishers {
			pub.Go(func() {
				for i := range events {
					v := int64(p)<<32 | int64(i) + 1
					seq, err := topic.Publish(v)
					if err != nil {
						t.Error(err)
						return
					}
					if old := values[seq].Swap(v); old != 0 && old != v {
						t.Errorf("event %d was delivered as %x, published as %x", seq, old, v)
					}
					if i%16 == 0 { // or on few cores the readers hardly come in between
						runtime.Gosched()
					}
				}
			})
		}
		pub.Wait()
		done.Store(true)
		topic.Close(nil)
		sub.Wait()
		if newest := topic.Stats().Newest; newest != uint64(publishers*events) {
			t.Errorf("newest is %d, want %d", newest, publishers*events)
		}
		broadcast.Check(t, topic)
		if n := broadcast.Parked(topic); n != 0 {
			t.Errorf("%d are still parked", n)
		}
		t.Logf("window %d: %d delivered, %d skipped", window, delivered.Load(), skipped.Load())
	}
}

// stressReader is one subscription's life. It returns false once the topic is closed.
func stressReader(
	t *testing.T, topic *broadcast.Topic[int64], r *rand.Rand,
	values []atomic.Int64, delivered, skipped *atomic.Uint64, done *atomic.Bool,
) (again bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	newest := topic.Stats().Newest
	s := topic.Subscribe(ctx)
	cursor := newest + s.Lag() // unknown until the first event; only bounded
	known := false
	dst := make([]broadcast.Event[int64], 1+r.IntN(100))
	for reads := r.IntN(5000); reads > 0; reads-- {
		if reads%1000 == 1 {
			switch r.IntN(3) {
			case 0:
				defer s.Close()
			case 1:
				go s.Close()
			case 2:
				go cancel()
			}
		}
		n, err := s.NextBatch(dst)
		var resync *broadcast.ResyncError
		switch {
		case errors.As(err, &resync):
			if known && resync.From != cursor+1 || resync.To <= resync.From {
				t.Errorf("after event %d: %v", cursor, err)
			}
			skipped.Add(resync.To - resync.From)
			cursor, known = resync.To-1, true
		case errors.Is(err, context.Canceled):
			return true
		case errors.Is(err, broadcast.ErrClosed):
			return !done.Load() // it was our own Close
		case err != nil:
			t.Error(err)
			return false
		}
		for _, e := range dst[:n] {
			if known && e.Seq != cursor+1 || e.Seq <= newest {
				t.Errorf("event %d after %d", e.Seq, cursor)
			}
			cursor, known = e.Seq, true
			if old := values[e.Seq].Swap(e.Value); old != 0 && old != e.Value {
				t.Errorf("event %d is %x, was %x", e.Seq, e.Value, old)
			}
		}
		delivered.Add(uint64(n))
	}
	return true
}

// Topic 7: the hunt for lost wake-ups. Each round is a race of one Publish with one or more Nexts that are about to park;
// the publisher does not go on before all have the event, so that a wake-up that is lost stands still for good and the
// test times out. Cancelled subscribers in between have the chance to take a wake-up along.
func TestStressNoWakeUpIsLost(t *testing.T) {
	races := scaled(100_000)
	if stressed {
		races = 10_000_000
	}
	for _, readers := range []int{1, 2, 20} {
		topic := topicOf(t, broadcast.Options[int]{Window: 1})
		var got atomic.Int64
		var wg sync.WaitGroup
		round := make(chan struct{}, 1)
		for range readers {
			s := topic.Subscribe(t.Context())
			wg.Go(func() {
				for e, err := range s.All() {
					if err != nil {
						if !errors.Is(err, broadcast.ErrClosed) {
							t.Error(err)
						}
						return
					}
					_ = e
					if got.Add(1)%int64(readers) == 0 {
						round <- struct{}{}
					}
				}
			})
		}
		stop := make(chan struct{})
		wg.Go(func() { // subscribers that are cancelled while they wait, parked or in a batch that was detached
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithCancel(context.Background())
				s := topic.Subscribe(ctx)
				go cancel()
				for _, err := range s.All() {
					if err != nil && !errors.As(err, new(*broadcast.ResyncError)) {
						break
					}
				}
				s.Close()
			}
		})
		for i := range races / readers {
			publish(t, topic, i)
			received(t, "an event that was published", round)
		}
		close(stop)
		topic.Close(nil)
		wg.Wait()
		broadcast.Check(t, topic)
	}
}

// Topic 8 and 9: an event that is ready beats the cancellation, and earlier events drain before the cause, also if both
// come while Next looks for the one and then for the other.
func TestStressAnEventBeforeTheEndIsDelivered(t *testing.T) {
	rounds := scaled(20_000)
	if stressed {
		rounds = 500_000
	}
	for _, end := range []string{"cancel", "close"} {
		shared := topicOf(t, broadcast.Options[int]{})
		for range rounds {
			ctx, cancel := context.WithCancel(t.Context())
			topic := shared
			if end == "close" {
				var err error
				if topic, err = broadcast.New(broadcast.Options[int]{MeterProvider: noop.NewMeterProvider()}); err != nil {
					t.Fatal(err)
				}
			}
			s := topic.Subscribe(ctx)
			var ready, wg sync.WaitGroup
			ready.Add(1)
			wg.Go(func() {
				ready.Done()
				if _, err := s.Next(); err != nil {
					t.Errorf("%s after an event: Next() = %v", end, err)
				}
			})
			ready.Wait()
			publish(t, topic, 1)
			if end == "close" {
				topic.Close(nil)
			}
			cancel()
			wg.Wait()
			s.Close()
		}
	}
}

// Topic 4. With a source no resync surfaces; only ErrTruncated may, and only if the source lost the range. The hand-over is
// free of gaps and duplicates while publishers run at full speed.
func TestStressTheHandOverFromTheSourceIsExact(t *testing.T) {
	events := 5000
	if stressed {
		events = 500_000
	}
	for _, window := range []int{1, 3, 64, 500} {
		j := new(journal)
		topic := topicOf(t, broadcast.Options[int]{Window: window, Source: j})
		var mu sync.Mutex // what keeps the journal and the topic in one order
		var pub, sub sync.WaitGroup
		for range 2 {
			pub.Go(func() {
				for range events {
					mu.Lock()
					v := int(topic.Stats().Newest) + 1
					j.append(v)
					publish(t, topic, v)
					mu.Unlock()
					if v%16 == 0 {
						runtime.Gosched()
					}
				}
			})
		}
		for range 8 {
			sub.Go(func() {
				wantEvents(t, topic.SubscribeAt(t.Context(), 0), 1, 2*events)
			})
		}
		pub.Wait()
		sub.Wait()
		t.Logf("window %d: %d replays, %d reads of the source", window, topic.Stats().Resyncs, j.reads)
		if window == 1 && topic.Stats().Resyncs == 0 {
			t.Error("nobody lagged: the test shows nothing")
		}
		broadcast.Check(t, topic)
	}
}

// Waiters 1 with real goroutines: completions race with waiters that are about to register, check or wait.
func TestStressNoCompletionIsLost(t *testing.T) {
	calls := 50_000
	if stressed {
		calls = 5_000_000
	}
	var w broadcast.Waiters[int, int]
	var state sync.Map
	work := make(chan int, 64)
	var callers, workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for key := range work {
				state.Store(key, -key)
				w.Complete(key, -key)
			}
		})
	}
	var next atomic.Int64
	for range 32 {
		callers.Go(func() {
			for {
				key := int(next.Add(1))
				if key > calls {
					return
				}
				work <- key
				v, err := w.Await(t.Context(), key, func(context.Context) (int, bool, error) {
					v, ok := state.Load(key)
					if !ok {
						return 0, false, nil
					}
					return v.(int), true, nil
				})
				if v != -key || err != nil {
					t.Errorf("Await(%d) = %d, %v", key, v, err)
				}
				state.Delete(key)
			}
		})
	}
	callers.Wait()
	close(work)
	workers.Wait()
	if n := w.Len(); n != 0 {
		t.Errorf("%d are registered, want none", n)
	}
}
