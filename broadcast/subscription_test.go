package broadcast_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/otelproto/otelproto-go/broadcast"
)

func TestAllYieldsGapsBetweenEventsAndEndsWithTheLastError(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{Window: 2})
	s := topic.Subscribe(t.Context())
	publishTo(t, topic, 5)
	var got []int
	for e, err := range s.All() {
		if errors.As(err, new(*broadcast.ResyncError)) {
			got = append(got, -1)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Value)
		break // the loop can be resumed: nothing was taken that wasn't yielded
	}
	topic.Close(nil)
	ended := 0
	for e, err := range s.All() {
		if err != nil {
			if ended++; !errors.Is(err, broadcast.ErrClosed) {
				t.Errorf("ended with %v", err)
			}
			continue
		}
		got = append(got, e.Value)
	}
	if len(got) != 3 || got[0] != -1 || got[1] != 4 || got[2] != 5 || ended != 1 {
		t.Errorf("got %v, ended %d times; want a gap, 4, 5, ended once", got, ended)
	}
}

func TestNextBatchTakesWhatIsAtHand(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{Window: 300})
	s := topic.Subscribe(t.Context())
	if n, err := s.NextBatch(nil); n != 0 || err != nil {
		t.Errorf("NextBatch(nil) = %d, %v", n, err)
	}
	publishTo(t, topic, 300)
	dst := make([]broadcast.Event[int], 200)
	next := 1
	for _, want := range []int{200, 100} {
		n, err := s.NextBatch(dst)
		if n != want || err != nil {
			t.Fatalf("NextBatch = %d, %v; want %d", n, err, want)
		}
		for _, e := range dst[:n] {
			if int(e.Seq) != next || e.Value != next {
				t.Fatalf("got %+v, want event %d", e, next)
			}
			next++
		}
	}
}

// Next from two goroutines: a clear error rather than corruption.
func TestASecondReaderIsDetected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf(t, broadcast.Options[int]{})
		s := topic.Subscribe(t.Context())
		go func() {
			if e, err := s.Next(); e.Seq != 1 || err != nil {
				t.Errorf("the first reader got %+v, %v", e, err)
			}
		}()
		synctest.Wait()
		wantError(t, s, broadcast.ErrConcurrent)
		if _, err := s.NextBatch(make([]broadcast.Event[int], 1)); !errors.Is(err, broadcast.ErrConcurrent) {
			t.Errorf("NextBatch = %v, want ErrConcurrent", err)
		}
		publishTo(t, topic, 1)
		synctest.Wait()
		publishTo(t, topic, 2)
		wantEvents(t, s, 2, 2)
	})
}

// With two readers at full speed each event still arrives once at most, and none is lost but by an error that says so.
func TestStressTwoReadersDeliverNothingTwice(t *testing.T) {
	const events = 50_000
	topic := topicOf(t, broadcast.Options[int]{Window: events})
	s := topic.Subscribe(t.Context())
	seen := make([]atomic.Int32, events+1)
	var wg sync.WaitGroup
	for reader := range 2 {
		wg.Go(func() {
			dst := make([]broadcast.Event[int], 10)
			for {
				n, err := s.NextBatch(dst[:1])
				if reader == 1 {
					var e broadcast.Event[int]
					if e, err = s.Next(); err == nil {
						dst[n] = e
						n++
					}
				}
				for _, e := range dst[:n] {
					if int(e.Seq) != e.Value {
						t.Errorf("event %d has value %d", e.Seq, e.Value)
					}
					seen[e.Seq].Add(1)
				}
				if err != nil && !errors.Is(err, broadcast.ErrConcurrent) {
					return
				}
			}
		})
	}
	publishTo(t, topic, events)
	topic.Close(nil)
	wg.Wait()
	for seq := 1; seq <= events; seq++ {
		if n := seen[seq].Load(); n != 1 {
			t.Fatalf("event %d was delivered %d times", seq, n)
		}
	}
	broadcast.Check(t, topic)
}

func TestCloseOfASubscriptionIsIdempotentAndEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := topicOf(t, broadcast.Options[int]{})
		s := topic.Subscribe(t.Context())
		failed := make(chan error)
		go func() {
			_, err := s.Next()
			failed <- err
		}()
		synctest.Wait()
		s.Close()
		s.Close()
		if err := <-failed; !errors.Is(err, broadcast.ErrClosed) {
			t.Errorf("Next() = %v, want ErrClosed", err)
		}
		publishTo(t, topic, 1)
		wantError(t, s, broadcast.ErrClosed)
		if n := topic.Stats().Subscribers; n != 0 {
			t.Errorf("%d subscribers, want 0", n)
		}
		broadcast.Check(t, topic)
	})
}
