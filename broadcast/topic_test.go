package broadcast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/broadcast"
)

// Topic 1. Sequence numbers are dense. After cursor c, Next yields event c+1, or one ResyncError [c+1, m) and then event m.
func TestSequenceNumbersAreDenseAndAGapIsNamedOnce(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{Window: 3})
	s := topic.Subscribe(t.Context())
	for want := uint64(1); want <= 10; want++ {
		if seq, err := topic.Publish(int(want)); seq != want || err != nil {
			t.Fatalf("Publish = %d, %v; want %d", seq, err, want)
		}
	}
	wantResync(t, s, 1, 8)
	wantEvents(t, s, 8, 10)
	publishTo(t, topic, 13)
	wantEvents(t, s, 11, 13)
	publishTo(t, topic, 17)
	wantResync(t, s, 14, 15)
	wantEvents(t, s, 15, 17)
	broadcast.Check(t, topic)
}

// Topic 1, "and then event m": the event after the gap is delivered even if the window has moved past it meanwhile, or a
// subscriber of a fast publisher would see gaps and no events.
func TestTheEventAfterAGapIsDeliveredHoweverFastThePublisher(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{Window: 1})
	s := topic.Subscribe(t.Context())
	last := 0
	for newest := 200; newest <= 2000; newest += 200 {
		publishTo(t, topic, newest)
		wantResync(t, s, uint64(last+1), uint64(newest))
		publishTo(t, topic, newest+100)
		wantEvents(t, s, newest, newest)
		last = newest
	}
}

// Topic 2. An event whose Publish began after Subscribe returned is covered; one whose Publish returned before Subscribe
// began is not delivered.
func TestASubscriptionCoversWhatIsPublishedAfterIt(t *testing.T) {
	for _, before := range []int{0, 1, 63, 64, 65, 127, 128, 129, 5000} {
		t.Run(fmt.Sprintf("after %d events", before), func(t *testing.T) {
			topic := topicOf(t, broadcast.Options[int]{Window: 100})
			publishTo(t, topic, before)
			s := topic.Subscribe(t.Context())
			if lag := s.Lag(); lag != 0 {
				t.Errorf("Lag() = %d, want 0", lag)
			}
			publishTo(t, topic, before+100)
			wantEvents(t, s, before+1, before+100)
		})
	}
}

// Topic 3. No resync while the lag is within the window, and the window is exactly what was asked for (no rounding).
func TestTheWindowIsExact(t *testing.T) {
	for _, window := range []int{1, 2, 3, 63, 64, 65, 100, 127, 128, 129, 1000} {
		t.Run(fmt.Sprintf("window %d", window), func(t *testing.T) {
			for _, start := range []int{0, 1, 62, 63, 64, 65, 200} {
				topic := topicOf(t, broadcast.Options[int]{Window: window})
				publishTo(t, topic, start)
				fits, lags := topic.Subscribe(t.Context()), topic.Subscribe(t.Context())
				publishTo(t, topic, start+window)
				if fits.Lag() != uint64(window) {
					t.Errorf("Lag() = %d, want %d", fits.Lag(), window)
				}
				wantEvents(t, fits, start+1, start+window)
				publishTo(t, topic, start+window+1)
				wantResync(t, lags, uint64(start+1), uint64(start+2))
				wantEvents(t, lags, start+2, start+window+1)
				wantEvents(t, fits, start+window+1, start+window+1)
				broadcast.Check(t, topic)
			}
		})
	}
	t.Run("1,024 by default", func(t *testing.T) {
		topic := topicOf(t, broadcast.Options[int]{})
		s, late := topic.Subscribe(t.Context()), topic.Subscribe(t.Context())
		publishTo(t, topic, 1024)
		wantEvents(t, s, 1, 1024)
		publishTo(t, topic, 1025)
		wantResync(t, late, 1, 2)
	})
}

// Topic 3 for a subscriber in the middle of a chunk: it has read before and looks where it left off first.
func TestTheWindowIsExactForAReaderThatStopsHalfway(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{Window: 5})
	s := topic.Subscribe(t.Context())
	publishTo(t, topic, 3)
	wantEvents(t, s, 1, 2)
	publishTo(t, topic, 7)
	wantEvents(t, s, 3, 3)
	publishTo(t, topic, 9)
	wantResync(t, s, 4, 5)
	wantEvents(t, s, 5, 9)
}

// Topic 3 with bytes: the window is the longest suffix of events that fits both bounds, and the newest event always.
func TestTheByteWindowIsExact(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{Window: 4, WindowBytes: 10, Size: func(v int) int { return v }})
	tests := []struct {
		publish int
		oldest  uint64 // afterwards
	}{
		{3, 1},
		{3, 1},
		{4, 1},  // 3+3+4 fits exactly
		{1, 2},  // 3+4+1
		{2, 2},  // 3+4+1+2
		{0, 3},  // four events at most
		{11, 7}, // alone, and above the bound
		{1, 8},
		{10, 9},
		{0, 9},
		{0, 9},
		{0, 9},
		{0, 10},
	}
	for i, test := range tests {
		publish(t, topic, test.publish)
		broadcast.Check(t, topic)
		got := topic.Stats()
		if want := uint64(i + 1); got.Oldest != test.oldest || got.Newest != want {
			t.Fatalf("after event %d of %d bytes: window [%d, %d], want [%d, %d]",
				i+1, test.publish, got.Oldest, got.Newest, test.oldest, want)
		}
		s := topic.SubscribeAt(t.Context(), 0)
		if test.oldest > 1 {
			wantResync(t, s, 1, test.oldest)
		}
		for seq := test.oldest; seq <= uint64(i+1); seq++ {
			if e, err := s.Next(); err != nil || e.Seq != seq || e.Value != tests[seq-1].publish {
				t.Fatalf("Next() = %+v, %v; want event %d", e, err, seq)
			}
		}
		s.Close()
	}
}

func TestAWindowOfLargeEventsRetainsLittleMoreThanItsBytes(t *testing.T) {
	const bound, size = 8 << 20, 256 << 10
	topic := topicOf(t, broadcast.Options[[]byte]{WindowBytes: bound, Size: func(b []byte) int { return len(b) }})
	before := heapAfterGC()
	for range 1023 { // were chunks not closed early, 63 events would be in the last one
		publish(t, topic, make([]byte, size))
	}
	if used := heapAfterGC() - before; used > bound*5/4 {
		t.Errorf("a window of %d bytes retains %d", bound, used)
	}
	runtime.KeepAlive(topic)
}

// Topic 5. Publish never waits for a subscriber, runs no user code, and wakes at most one goroutine itself. (That it wakes
// one is in park_test.go.)
func TestPublishDoesNotWaitForSubscribersThatDoNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf(t, broadcast.Options[int]{Window: 1})
		inside := make(chan struct{})
		subs := make([]*broadcast.Subscription[int], 10)
		for i := range subs {
			subs[i] = topic.Subscribe(t.Context())
			go func() { // a subscriber whose code hangs
				if _, err := subs[i].Next(); err == nil {
					<-inside
				}
			}()
		}
		synctest.Wait()
		for v := range 1000 { // would deadlock the bubble if it waited
			publish(t, topic, v)
		}
		synctest.Wait()
		close(inside)
	})
}

// Topic 6. Memory: the window plus one chunk per laggard.
func TestStalledSubscribersHoldOneChunkEach(t *testing.T) {
	const laggards, window, size, limit = 1000, 4096, 100, 16 << 20
	events := scaled(1_000_000)
	type event [size]byte
	before := heapAfterGC()
	topic := topicOf(t, broadcast.Options[event]{Window: window})
	var subs []*broadcast.Subscription[event]
	for i := range events {
		stalls := i%64 == 0 && len(subs) < laggards
		if stalls {
			subs = append(subs, topic.Subscribe(t.Context()))
		}
		publish(t, topic, event{byte(i)})
		if stalls { // each in a chunk of its own
			if e, err := subs[len(subs)-1].Next(); err != nil || e.Seq != uint64(i+1) {
				t.Fatalf("Next() = event %d, %v; want %d", e.Seq, err, i+1)
			}
		}
	}
	used := heapAfterGC() - before
	t.Logf("%d stalled subscribers, window %d, %d events of %d bytes: %.1f MB", laggards, window, events, size, float64(used)/(1<<20))
	if used > limit {
		t.Errorf("the heap has grown by %d bytes, want at most %d", used, limit)
	}
	if n := broadcast.Chunks(topic); n > window/64+2 {
		t.Errorf("the topic retains %d chunks for a window of %d events", n, window)
	}
	for i, s := range subs {
		resyncs := 0
		for s.Lag() > 0 {
			if _, err := s.Next(); err != nil {
				if resyncs++; !errors.As(err, new(*broadcast.ResyncError)) {
					t.Fatal(err)
				}
			}
		}
		if resyncs != 1 {
			t.Errorf("subscriber %d had %d resyncs, want 1", i, resyncs)
		}
	}
}

// Topic 6. A subscription that is dropped without Close is collectable.
func TestASubscriptionDroppedWithoutCloseIsCollected(t *testing.T) {
	for _, test := range []struct {
		name string
		use  func(ctx context.Context, topic *broadcast.Topic[int], s *broadcast.Subscription[int])
	}{
		{"unused", func(context.Context, *broadcast.Topic[int], *broadcast.Subscription[int]) {}},
		{"lagging", func(_ context.Context, topic *broadcast.Topic[int], s *broadcast.Subscription[int]) {
			_, _ = topic.Publish(1)
			_, _ = s.Next()
			_, _ = topic.Publish(1)
		}},
		{"after it was parked", func(_ context.Context, topic *broadcast.Topic[int], s *broadcast.Subscription[int]) {
			done := make(chan struct{})
			go func() { _, _ = s.Next(); close(done) }()
			for broadcast.Parked(topic) == 0 {
				runtime.Gosched()
			}
			_, _ = topic.Publish(1)
			<-done
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context()) // outlives the subscription, and must not hold it
			defer cancel()
			topic := topicOf(t, broadcast.Options[int]{})
			var collected sync.WaitGroup
			collected.Add(1)
			func() {
				s := topic.Subscribe(ctx)
				runtime.AddCleanup(s, func(int) { collected.Done() }, 0)
				test.use(ctx, topic, s)
			}()
			until(t, "the subscription is forgotten", func() bool {
				runtime.GC()
				return topic.Stats().Subscribers == 0
			})
			collected.Wait()
			broadcast.Check(t, topic)
		})
	}
}

func TestATopicDroppedWithoutCloseIsCollected(t *testing.T) {
	collected := make(chan struct{})
	func() {
		topic, err := broadcast.New(broadcast.Options[int]{})
		if err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(topic, func(int) { close(collected) }, 0)
		publish(t, topic, 1)
	}()
	until(t, "the topic is collected", func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	})
}

// Topic 7. If Publish(s) returned and the cursor is before s, Next returns without a further publish. No spurious returns,
// no lost wake-up. (The hunt for lost wake-ups is in stress_test.go.)
func TestNextWaitsForTheNextEventAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf(t, broadcast.Options[int]{})
		const n = 100
		var mu sync.Mutex
		got := make([]uint64, n) // the newest event of each
		var wg sync.WaitGroup
		for i := range n {
			s := topic.Subscribe(t.Context())
			wg.Go(func() {
				for e, err := range s.All() {
					if err != nil {
						if !errors.Is(err, broadcast.ErrClosed) {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					if e.Seq != got[i]+1 {
						t.Errorf("subscriber %d got event %d after %d", i, e.Seq, got[i])
					}
					got[i] = e.Seq
					mu.Unlock()
				}
			})
		}
		for newest := range uint64(20) {
			synctest.Wait()
			if p := broadcast.Parked(topic); p != n {
				t.Fatalf("%d of %d are parked", p, n)
			}
			mu.Lock()
			for i, seq := range got {
				if seq != newest {
					t.Fatalf("subscriber %d has event %d, the newest is %d", i, seq, newest)
				}
			}
			mu.Unlock()
			publish(t, topic, 1)
		}
		topic.Close(nil)
		wg.Wait()
		broadcast.Check(t, topic)
	})
}

// Topic 8. A cancelled Next consumes nothing, and an event that is ready beats the cancellation.
func TestACancelledNextConsumesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf(t, broadcast.Options[int]{})
		ctx, cancel := context.WithCancelCause(t.Context())
		s := topic.Subscribe(ctx)
		failed := make(chan error)
		go func() {
			_, err := s.Next()
			failed <- err
		}()
		synctest.Wait()
		cause := errors.New("enough")
		cancel(cause)
		if err := <-failed; !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Errorf("Next() = %v; want context.Canceled and its cause", err)
		}
		publishTo(t, topic, 2)
		wantEvents(t, s, 1, 2)
		wantError(t, s, context.Canceled)
		broadcast.Check(t, topic)
	})
}

// Topic 8. 100,000 cancelled waits leave nothing.
func TestCancelledWaitsLeaveNothing(t *testing.T) {
	const rounds = 10
	n := scaled(10_000)
	topic := topicOf(t, broadcast.Options[int]{})
	before := runtime.NumGoroutine()
	var heap int
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				if _, err := topic.Subscribe(ctx).Next(); !errors.Is(err, context.Canceled) {
					t.Errorf("Next() = %v, want context.Canceled", err)
				}
			})
		}
		until(t, "all are parked", func() bool { return broadcast.Parked(topic) == n })
		cancel()
		wg.Wait()
		if s := topic.Stats(); s.Subscribers != 0 || broadcast.Parked(topic) != 0 {
			t.Fatalf("%d subscribers, %d parked; want none", s.Subscribers, broadcast.Parked(topic))
		}
		if open, occupied := broadcast.Rows(topic); open != 0 || occupied != 0 {
			t.Errorf("the parking lot keeps %d open and %d occupied rows", open, occupied)
		}
		until(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
		if round == 1 {
			heap = heapAfterGC()
		}
	}
	// The runtime keeps the descriptors of goroutines that have ended, which vary; anything kept for each wait is more, but
	// for the few waits that the race detector leaves time for.
	if grown := heapAfterGC() - heap; !raced && grown > (rounds-2)*n*64 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	broadcast.Check(t, topic)
}

// Topic 9. Close(cause) is idempotent; earlier events drain first, then every Next returns the cause; Publish returns
// ErrClosed; the goroutine count returns to where it was.
func TestCloseDrainsThenReturnsTheCause(t *testing.T) {
	before := runtime.NumGoroutine()
	cause := errors.New("moved away")
	topic := topicOf(t, broadcast.Options[int]{Window: 2})
	pending, lagging := topic.Subscribe(t.Context()), topic.Subscribe(t.Context())
	publishTo(t, topic, 1)
	wantEvents(t, pending, 1, 1)
	publishTo(t, topic, 3)
	parked := topic.Subscribe(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := parked.Next()
		failed <- err
	}()
	until(t, "Next is parked", func() bool { return broadcast.Parked(topic) == 1 })

	topic.Close(cause)
	topic.Close(errors.New("another"))
	if err := received(t, "the parked Next", failed); !errors.Is(err, cause) {
		t.Errorf("parked: Next() = %v, want the cause", err)
	}
	if _, err := topic.Publish(4); !errors.Is(err, broadcast.ErrClosed) {
		t.Errorf("Publish = %v, want ErrClosed", err)
	}
	wantEvents(t, pending, 2, 3)
	wantResync(t, lagging, 1, 2)
	wantEvents(t, lagging, 2, 3)
	late := topic.Subscribe(t.Context())
	for range 2 {
		for _, s := range []*broadcast.Subscription[int]{pending, lagging, parked, late} {
			wantError(t, s, cause)
		}
	}
	if s := topic.Stats(); s.Subscribers != 0 {
		t.Errorf("%d subscribers of a closed topic, want 0", s.Subscribers)
	}
	until(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}

func TestCloseWithoutACauseMeansErrClosed(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{})
	s := topic.Subscribe(t.Context())
	topic.Close(nil)
	wantError(t, s, broadcast.ErrClosed)
}

// Topic 10. Publish, Subscribe and Close may be called from consumer code and under any user lock.
func TestConsumersMayPublishSubscribeAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf(t, broadcast.Options[int]{Window: 4096, WindowBytes: 1 << 20, Size: func(int) int { return 8 }})
		var mu sync.Mutex // held around every call except waiting; a topic that took a lock of its own for longer would deadlock
		var wg sync.WaitGroup
		const n, rounds = 10, 50
		seen, newest := 0, 1
		for range n {
			s := topic.Subscribe(t.Context())
			wg.Go(func() {
				for e, err := range s.All() {
					if err != nil {
						return
					}
					mu.Lock()
					seen++
					if e.Value == newest { // the first to see it
						if newest++; newest > rounds {
							topic.Close(nil)
						} else {
							publish(t, topic, newest)
						}
						topic.Subscribe(t.Context()).Close()
						_ = topic.Stats()
					}
					mu.Unlock()
				}
			})
		}
		publish(t, topic, 1)
		wg.Wait()
		if seen < rounds {
			t.Errorf("saw %d events, want at least %d", seen, rounds)
		}
	})
}

func TestBadOptionsAreRefusedByName(t *testing.T) {
	size := func(int) int { return 1 }
	tests := []struct {
		options broadcast.Options[int]
		want    string
	}{
		{broadcast.Options[int]{Window: -1}, "Options.Window is -1"},
		{broadcast.Options[int]{WindowBytes: -5, Size: size}, "Options.WindowBytes is -5"},
		{broadcast.Options[int]{WindowBytes: 5}, "without Options.Size"},
	}
	for _, test := range tests {
		topic, err := broadcast.New(test.options)
		if topic != nil || err == nil || !strings.HasPrefix(err.Error(), "broadcast: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("New(%+v) = %v, %v; want an error with %q", test.options, topic, err, test.want)
		}
	}
	if _, err := broadcast.New(broadcast.Options[int]{Size: size}); err != nil {
		t.Errorf("Size without a bound: %v", err)
	}
}

func TestANegativeSizeIsRefusedAndTheTopicGoesOn(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{WindowBytes: 10, Size: func(v int) int {
		if v == 13 {
			panic("unlucky")
		}
		return v
	}})
	if seq, err := topic.Publish(-3); seq != 0 || err == nil || !strings.Contains(err.Error(), "-3") {
		t.Errorf("Publish = %d, %v; want an error with the size", seq, err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of Size was swallowed")
			}
		}()
		_, _ = topic.Publish(13)
	}()
	if seq, err := topic.Publish(1); seq != 1 || err != nil {
		t.Errorf("Publish = %d, %v; want 1", seq, err)
	}
}

func TestSubscribeAtResumesAfterAPosition(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{Window: 100})
	publishTo(t, topic, 300)
	for at := 200; at <= 300; at++ {
		s := topic.SubscribeAt(t.Context(), uint64(at))
		if want := uint64(300 - at); s.Lag() != want {
			t.Errorf("Lag() = %d, want %d", s.Lag(), want)
		}
		wantEvents(t, s, at+1, 300)
		s.Close()
	}
	t.Run("before the oldest", func(t *testing.T) {
		s := topic.SubscribeAt(t.Context(), 42)
		wantResync(t, s, 43, 201)
		wantEvents(t, s, 201, 300)
	})
	t.Run("from the first", func(t *testing.T) {
		s := topic.SubscribeAt(t.Context(), 0)
		wantResync(t, s, 1, 201)
		wantEvents(t, s, 201, 300)
	})
	t.Run("beyond the newest", func(t *testing.T) {
		s := topic.SubscribeAt(t.Context(), 301)
		publishTo(t, topic, 305)
		for range 2 {
			wantError(t, s, broadcast.ErrAhead)
		}
		s.Close()
		wantError(t, s, broadcast.ErrClosed)
	})
}

func TestATopicCanContinueTheNumbersOfAnEarlierRun(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{First: 1000, Window: 10})
	resumed, known := topic.SubscribeAt(t.Context(), 989), topic.SubscribeAt(t.Context(), 999)
	if seq, err := topic.Publish(1000); seq != 1000 || err != nil {
		t.Fatalf("Publish = %d, %v; want 1000", seq, err)
	}
	wantResync(t, resumed, 990, 1000)
	wantEvents(t, resumed, 1000, 1000)
	wantEvents(t, known, 1000, 1000)
	first := topic.SubscribeAt(t.Context(), 0)
	wantEvents(t, first, 1000, 1000)
	want := broadcast.Stats{Published: 1, Newest: 1000, Oldest: 1000, Subscribers: 3, Slowest: 1000, Resyncs: 1}
	if diff := cmp.Diff(want, topic.Stats()); diff != "" {
		t.Errorf("Stats (-want +got):\n%s", diff)
	}
	broadcast.Check(t, topic)
}

func TestANilContextIsRefusedAtOnce(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{})
	defer func() {
		if err, ok := recover().(error); !ok || !strings.HasPrefix(err.Error(), "broadcast: ") {
			t.Error("no panic that says what is wrong")
		}
	}()
	topic.Subscribe(nil) //nolint:staticcheck // that is what is tested
}
