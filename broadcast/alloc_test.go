//go:build !race

package broadcast_test

import (
	"testing"

	"github.com/otelproto/otelproto-go/broadcast"
)

// raced is whether the race detector runs, under which the same work takes ten times as long.
const raced = false

// Publish allocates one chunk for 64 events, whoever subscribes, and Next nothing.
func TestPublishAllocatesOnceIn64EventsAndNextNever(t *testing.T) {
	for _, bytes := range []int{0, 1 << 20} {
		o := broadcast.Options[int]{WindowBytes: bytes}
		if bytes > 0 {
			o.Size = func(int) int { return 8 }
		}
		topic := topicOf(t, o)
		s := topic.Subscribe(t.Context())
		publishTo(t, topic, 5000) // the ring of sizes has its length
		if _, err := s.Next(); err == nil {
			t.Fatal("no gap")
		}
		wantEvents(t, s, 5000-1023, 5000)
		dst := make([]broadcast.Event[int], 64)
		if n := testing.AllocsPerRun(100, func() {
			for i := range 640 {
				_, _ = topic.Publish(i)
			}
		}); n > 10 {
			t.Errorf("%v allocations for 640 events, want 10", n)
		}
		for s.Lag() > 0 {
			_, _ = s.Next()
		}
		if n := testing.AllocsPerRun(100, func() {
			_, _ = topic.Publish(1)
			_, _ = topic.Publish(1)
			if _, err := s.Next(); err != nil {
				t.Fatal(err)
			}
			if n, err := s.NextBatch(dst); n == 0 || err != nil {
				t.Fatal(n, err)
			}
		}); n > 0 { // AllocsPerRun rounds down what chunks add
			t.Errorf("%v allocations for Next and NextBatch, want 0", n)
		}
	}
}

// Parking allocates nothing either, once a subscription has parked before.
func TestParkingAllocatesNothing(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{})
	s := topic.Subscribe(t.Context())
	got := make(chan struct{})
	go func() {
		for _, err := range s.All() {
			if err != nil {
				close(got)
				return
			}
			got <- struct{}{}
		}
	}()
	if n := testing.AllocsPerRun(1000, func() {
		_, _ = topic.Publish(1)
		<-got
	}); n > 0 {
		t.Errorf("%v allocations for a publish and a wake-up, want 0", n)
	}
	topic.Close(nil)
	<-got
}
