package broadcast

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/metric/noop"
)

// lie puts n sleepers on the lot, without goroutines: what is sent to each stands in its channel.
func lie(l *lot, n int) []*sleeper {
	sleepers := make([]*sleeper, n)
	for i := range sleepers {
		s := &sleeper{wake: make(chan bool, 1), index: i}
		s.state.Store(sleeping)
		sleepers[i] = s
		l.current.sleepers = append(l.current.sleepers, s)
	}
	l.occupied.Store(n > 0)
	return sleepers
}

// pass does what a woken sleeper does before it returns.
func pass(l *lot, s *sleeper) {
	if b := s.batch; b != nil {
		s.batch = nil
		l.visited(b, l.rouse(b, s.low, s.top))
	}
}

// woken returns the positions of the sleepers that have been sent something they haven't received, and receives it.
func woken(t *testing.T, sleepers []*sleeper) (by map[bool][]int) {
	t.Helper()
	by = map[bool][]int{}
	for i, s := range sleepers {
		select {
		case batch := <-s.wake:
			by[batch] = append(by[batch], i)
		default:
		}
	}
	return by
}

// Topic 5. Publish ... wakes at most one goroutine itself. Here: whoever is cancelled, at whatever position.
func TestWakingAllWakesOneAndEachOfThoseAtMostEight(t *testing.T) {
	for _, n := range []int{1, 2, 8, 9, 10, 73, 74, 1000} {
		l := new(lot)
		l.init(func(uint64) bool { return false })
		sleepers := lie(l, n)
		l.wakeAll()
		left := n
		for first := true; left > 0; first = false {
			now := woken(t, sleepers)[true]
			if first && len(now) != 1 {
				t.Fatalf("%d parked: wakeAll woke %d itself, want 1", n, len(now))
			}
			if len(now) == 0 {
				t.Fatalf("%d of %d were never woken", left, n)
			}
			left -= len(now)
			for _, i := range now {
				if share := sleepers[i].top - sleepers[i].low; share > fanOut {
					t.Fatalf("a woken sleeper has to wake %d more", share)
				}
				pass(l, sleepers[i])
			}
		}
		if l.spare.Load() == nil {
			t.Errorf("the batch of %d was not given back", n)
		}
	}
}

// The cancelled must not take their duty along: whatever part of a detached batch is cancelled, at whatever moment, all
// others are woken, once each, and nobody is sent to twice.
func TestCancellationInsideADetachedBatchLosesNobody(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		n := 1 + r.IntN(200)
		share := r.Float64()
		l := new(lot)
		l.init(func(uint64) bool { return false })
		sleepers := lie(l, n)
		got := make([]int, n)
		wasCancelled := make([]bool, n)
		cancelSome := func(p float64) {
			for i, s := range sleepers {
				if r.Float64() < p {
					wasCancelled[i] = true
					l.cancel(s)
				}
			}
		}
		cancelSome(share / 4) // while attached
		l.wakeAll()
		if now := woken(t, sleepers); len(now[true]) > 1 {
			t.Fatalf("wakeAll woke %d itself", len(now[true]))
		} else {
			count(got, now)
			cancelSome(share / 2) // while detached
			for queue := now[true]; len(queue) > 0; {
				pick := r.IntN(len(queue))
				i := queue[pick]
				queue = append(queue[:pick], queue[pick+1:]...)
				pass(l, sleepers[i])
				cancelSome(share / 20)
				now := woken(t, sleepers)
				count(got, now)
				queue = append(queue, now[true]...)
			}
		}
		count(got, woken(t, sleepers))
		for i := range sleepers {
			if got[i] != 1 {
				t.Fatalf("sleeper %d of %d (cancelled: %t) was woken %d times", i, n, wasCancelled[i], got[i])
			}
		}
		if len(l.current.sleepers) != 0 || l.occupied.Load() {
			t.Fatalf("%d are left on the lot, occupied %t", len(l.current.sleepers), l.occupied.Load())
		}
	}
}

func count(got []int, by map[bool][]int) {
	for _, positions := range by {
		for _, i := range positions {
			got[i]++
		}
	}
}

// A sleeper that was cancelled in a batch which is in use again must not disturb who lies there now.
func TestALateCancellationLeavesTheNextBatchAlone(t *testing.T) {
	l := new(lot)
	l.init(func(uint64) bool { return false })
	old := lie(l, 3)
	old[1].state.Store(cancelled) // the first half of cancel
	l.wakeAll()
	pass(l, old[0])
	l.wakeAll() // nothing to do
	l.current = l.spare.Swap(nil)
	if l.current == nil {
		t.Fatal("the batch was not given back")
	}
	now := lie(l, 3)
	l.remove(old[1]) // the second half
	for i, s := range l.current.sleepers {
		if s != now[i] {
			t.Errorf("position %d was disturbed", i)
		}
	}
}

// Topic 5, end to end: Publish to goroutines that are parked for real readies one of them. Here the parked are held up
// behind it: all but the first come through it.
func TestPublishReadiesOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic, err := New(Options[int]{MeterProvider: noop.NewMeterProvider()})
		if err != nil {
			t.Fatal(err)
		}
		const n = 100
		var done atomic.Int32
		for range n {
			s := topic.Subscribe(context.Background())
			go func() {
				defer s.Close()
				if _, err := s.Next(); err != nil {
					t.Error(err)
				}
				done.Add(1)
			}()
		}
		synctest.Wait()
		first := topic.lot.current.sleepers[0]
		stand := &sleeper{wake: make(chan bool, 1)} // the first one's stand-in never runs
		stand.state.Store(sleeping)
		topic.lot.current.sleepers[0] = stand
		if _, err := topic.Publish(1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := done.Load(); got != 0 {
			t.Errorf("%d returned although the one that Publish woke has not run", got)
		}
		first.batch, first.low, first.top = stand.batch, stand.low, stand.top
		first.state.Store(awake)
		first.wake <- <-stand.wake
		synctest.Wait()
		if got := done.Load(); got != n {
			t.Errorf("%d of %d returned", got, n)
		}
		topic.Close(nil)
	})
}
