package broadcast_test

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/otelproto/otelproto-go/broadcast"
)

func journalOf(n int) *journal {
	j := new(journal)
	for v := 1; v <= n; v++ {
		j.append(v)
	}
	return j
}

// sourceFunc is a Source of one function.
type sourceFunc func(ctx context.Context, from uint64) iter.Seq2[broadcast.Event[int], error]

func (f sourceFunc) Read(ctx context.Context, from uint64) iter.Seq2[broadcast.Event[int], error] {
	return f(ctx, from)
}

// Topic 4. With a source no resync surfaces. (At full speed: stress_test.go.)
func TestAGapIsReadFromTheSource(t *testing.T) {
	for _, window := range []int{1, 2, 64, 100} {
		j := journalOf(1000)
		topic := topicOf(t, broadcast.Options[int]{Window: window, Source: j})
		s := topic.Subscribe(t.Context())
		publishTo(t, topic, 300)
		wantEvents(t, s, 1, 150)
		publishTo(t, topic, 1000)
		wantEvents(t, s, 151, 1000)
		if got := topic.Stats(); got.Resyncs != 1 || j.reads != 1 {
			t.Errorf("window %d: %d replays in %d reads, want one", window, got.Resyncs, j.reads)
		}
	}
}

func TestASourceThatIsOlderThanTheTopicServesWhatCameBefore(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{First: 501, Source: journalOf(600)})
	s := topic.SubscribeAt(t.Context(), 0)
	wantEvents(t, s, 1, 500)
	publishTo(t, topic, 600)
	wantEvents(t, s, 501, 600)
}

// Topic 4. ... only ErrTruncated may, and only if the source lost the range.
func TestErrTruncatedNamesWhatTheSourceLost(t *testing.T) {
	gap := func(t *testing.T, s *broadcast.Subscription[int], from, to uint64) {
		t.Helper()
		_, err := s.Next()
		var resync *broadcast.ResyncError
		if !errors.Is(err, broadcast.ErrTruncated) || !errors.As(err, &resync) || *resync != (broadcast.ResyncError{From: from, To: to}) {
			t.Fatalf("Next() = %v; want ErrTruncated for [%d, %d)", err, from, to)
		}
	}
	t.Run("its first event is a later one", func(t *testing.T) {
		j := journalOf(100)
		j.oldest = 40
		topic := topicOf(t, broadcast.Options[int]{Window: 10, Source: j})
		s := topic.Subscribe(t.Context())
		publishTo(t, topic, 100)
		gap(t, s, 1, 40)
		wantEvents(t, s, 40, 100)
	})
	t.Run("it has nothing before the window", func(t *testing.T) {
		j := journalOf(100)
		j.oldest = 95
		topic := topicOf(t, broadcast.Options[int]{Window: 10, Source: j})
		s := topic.Subscribe(t.Context())
		publishTo(t, topic, 100)
		gap(t, s, 1, 91)
		wantEvents(t, s, 91, 100)
	})
	t.Run("it says so and ends", func(t *testing.T) {
		topic := topicOf(t, broadcast.Options[int]{Window: 10, Source: sourceFunc(
			func(context.Context, uint64) iter.Seq2[broadcast.Event[int], error] {
				return func(yield func(broadcast.Event[int], error) bool) {
					yield(broadcast.Event[int]{}, broadcast.ErrTruncated)
				}
			})})
		s := topic.Subscribe(t.Context())
		publishTo(t, topic, 100)
		gap(t, s, 1, 91)
		publishTo(t, topic, 101)
		wantEvents(t, s, 91, 91)
		wantEvents(t, s, 92, 101)
	})
	t.Run("it says so and goes on", func(t *testing.T) {
		j := journalOf(100)
		topic := topicOf(t, broadcast.Options[int]{Window: 10, Source: sourceFunc(
			func(ctx context.Context, from uint64) iter.Seq2[broadcast.Event[int], error] {
				return func(yield func(broadcast.Event[int], error) bool) {
					if from > 50 || yield(broadcast.Event[int]{}, broadcast.ErrTruncated) {
						j.Read(ctx, max(from, 50))(yield)
					}
				}
			})})
		s := topic.Subscribe(t.Context())
		publishTo(t, topic, 100)
		gap(t, s, 1, 50)
		wantEvents(t, s, 50, 100)
	})
}

func TestEarlierAndRepeatedEventsOfASourceAreIgnored(t *testing.T) {
	j := journalOf(100)
	topic := topicOf(t, broadcast.Options[int]{Window: 10, Source: sourceFunc(
		func(ctx context.Context, from uint64) iter.Seq2[broadcast.Event[int], error] {
			return func(yield func(broadcast.Event[int], error) bool) {
				for e, err := range j.Read(ctx, max(from, 11)-10) { // it seeks to the block that from is in
					for range 2 {
						if !yield(e, err) {
							return
						}
					}
				}
			}
		})})
	s := topic.Subscribe(t.Context())
	publishTo(t, topic, 100)
	wantEvents(t, s, 1, 100)
}

// A source that fails is retried with backoff, and the error is visible: in Stats while it lasts, and from Next if the
// context ends first.
func TestASourceThatFailsIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("journal is down")
		j := journalOf(100)
		j.fail = func(read int, seq uint64) error {
			if read < 10 && seq == 20 {
				return down
			}
			return nil
		}
		topic := topicOf(t, broadcast.Options[int]{Window: 10, Source: j})
		s := topic.Subscribe(t.Context())
		publishTo(t, topic, 100)
		start := time.Now()
		reported := handled.Load()
		wantEvents(t, s, 1, 19)
		if d := time.Since(start); d != 0 {
			t.Errorf("reading took %v before there was a failure", d)
		}
		next := make(chan error)
		go func() {
			wantEvents(t, s, 20, 20)
			next <- nil
		}()
		time.Sleep(time.Millisecond)
		if got := topic.Stats(); got.SourceFailures != 1 || !errors.Is(got.SourceErr, down) {
			t.Errorf("Stats show %d failures, %v", got.SourceFailures, got.SourceErr)
		}
		<-next
		// 10 ms doubled from failure to failure, nine of them, is 5.11 s; jitter takes off up to half of each.
		if d := time.Since(start); d < 2500*time.Millisecond || d > 5110*time.Millisecond {
			t.Errorf("nine failures took %v", d)
		}
		if got := topic.Stats(); got.SourceFailures != 9 || got.SourceErr != nil {
			t.Errorf("Stats show %d failures, %v; want 9, nil", got.SourceFailures, got.SourceErr)
		}
		if n := handled.Load() - reported; n != 1 {
			t.Errorf("nine failures in a row were reported through otel.Handle %d times, want once", n)
		}
		wantEvents(t, s, 21, 100)
	})
}

func TestASourceThatStaysDownIsTriedUntilTheContextEnds(t *testing.T) {
	for name, source := range map[string]sourceFunc{
		"error": func(context.Context, uint64) iter.Seq2[broadcast.Event[int], error] {
			return func(yield func(broadcast.Event[int], error) bool) { yield(broadcast.Event[int]{}, errors.New("down")) }
		},
		"early end": func(context.Context, uint64) iter.Seq2[broadcast.Event[int], error] {
			return func(func(broadcast.Event[int], error) bool) {}
		},
		"nil": func(context.Context, uint64) iter.Seq2[broadcast.Event[int], error] { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads := 0
				topic := topicOf(t, broadcast.Options[int]{Window: 1, Source: sourceFunc(
					func(ctx context.Context, from uint64) iter.Seq2[broadcast.Event[int], error] {
						reads++
						return source(ctx, from)
					})})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s := topic.Subscribe(ctx)
				publishTo(t, topic, 2)
				start := time.Now()
				_, err := s.Next()
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "source") {
					t.Errorf("Next() = %v; want the deadline and what the source said", err)
				}
				if d := time.Since(start); d != time.Minute {
					t.Errorf("Next returned after %v, want one minute", d)
				}
				if reads < 15 || reads > 40 { // nine pauses up to 5 s, then 2.5 to 5 s each
					t.Errorf("%d reads in one minute", reads)
				}
			})
		})
	}
}

func TestCloseEndsAReadOfTheSourceAndItsPauses(t *testing.T) {
	for _, hang := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			topic := topicOf(t, broadcast.Options[int]{Window: 1, Source: sourceFunc(
				func(ctx context.Context, _ uint64) iter.Seq2[broadcast.Event[int], error] {
					return func(yield func(broadcast.Event[int], error) bool) {
						if hang {
							<-ctx.Done()
						}
						yield(broadcast.Event[int]{}, errors.New("down"))
					}
				})})
			s := topic.Subscribe(t.Context())
			publishTo(t, topic, 2)
			failed := make(chan error)
			go func() {
				_, err := s.Next()
				failed <- err
			}()
			time.Sleep(time.Second)
			synctest.Wait()
			start := time.Now()
			s.Close()
			if err := <-failed; !errors.Is(err, broadcast.ErrClosed) || time.Since(start) != 0 {
				t.Errorf("Next() = %v after %v; want ErrClosed at once", err, time.Since(start))
			}
		})
	}
}

// A panic of the source reaches the caller of Next, and the subscription goes on afterwards.
func TestAPanicOfTheSourceLeavesTheSubscriptionUsable(t *testing.T) {
	j := journalOf(100)
	panics := 0
	j.fail = func(_ int, seq uint64) error {
		if seq == 5 && panics == 0 {
			panics++
			panic("broken page")
		}
		return nil
	}
	topic := topicOf(t, broadcast.Options[int]{Window: 10, Source: j})
	s := topic.Subscribe(t.Context())
	publishTo(t, topic, 100)
	wantEvents(t, s, 1, 4)
	func() {
		defer func() {
			if got := recover(); got != "broken page" {
				t.Errorf("recovered %v", got)
			}
		}()
		_, _ = s.Next()
	}()
	wantEvents(t, s, 5, 100)
}

// Topic 6 with a source: dropped between two reads, the iterator it holds is stopped.
func TestASubscriptionDroppedInTheMiddleOfAReplayIsCollected(t *testing.T) {
	before := runtime.NumGoroutine()
	topic := topicOf(t, broadcast.Options[int]{Window: 1, Source: journalOf(100)})
	func() {
		s := topic.Subscribe(t.Context())
		publishTo(t, topic, 100)
		wantEvents(t, s, 1, 10)
	}()
	until(t, "the subscription and its iterator are gone", func() bool {
		runtime.GC()
		return topic.Stats().Subscribers == 0 && runtime.NumGoroutine() <= before
	})
}
