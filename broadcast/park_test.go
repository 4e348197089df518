package broadcast

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
)

func quietLot() *lot {
	l := new(lot)
	l.init(func(uint64) bool { return false })
	return l
}

// lie puts n sleepers on the lot, without goroutines: their bells stay rung until somebody looks.
func lie(l *lot, n int) []*sleeper {
	sleepers := make([]*sleeper, n)
	for i := range sleepers {
		s := new(sleeper)
		l.place(s)
		if s.row.parked.Or(s.bit()|listed)&listed == 0 {
			l.list(s.row)
		}
		sleepers[i] = s
	}
	return sleepers
}

// pass does what a woken sleeper does before it returns, and reports whether that was anything.
func pass(l *lot, s *sleeper) bool {
	b := s.batch
	if b == nil {
		return false
	}
	s.batch = nil
	l.visit(b, s.visits)
	return true
}

// woken returns which of the sleepers' bells were rung, and wants each to have been rung once.
func woken(sleepers []*sleeper) (which []int) {
	for i, s := range sleepers {
		if s.rung.Swap(false) {
			which = append(which, i)
		}
	}
	return which
}

// Topic 5. Publish ... wakes at most one goroutine itself.
func TestWakingAllWakesOneAndEachOfThoseAtMostARow(t *testing.T) {
	for _, n := range []int{1, 2, rowLen, rowLen + 1, 2 * rowLen, 3 * rowLen, 1000, 10_000} {
		l := quietLot()
		sleepers := lie(l, n)
		l.wakeAll()
		queue := woken(sleepers)
		if len(queue) != 1 {
			t.Fatalf("%d parked: wakeAll woke %d itself, want 1", n, len(queue))
		}
		left := n - 1
		for ; len(queue) > 0; queue = queue[1:] {
			if !pass(l, sleepers[queue[0]]) {
				continue
			}
			now := woken(sleepers)
			if len(now) > rowLen {
				t.Fatalf("%d parked: a woken sleeper woke %d more, want at most %d", n, len(now), rowLen)
			}
			left -= len(now)
			queue = append(queue, now...)
		}
		if left != 0 {
			t.Fatalf("%d of %d were never woken", left, n)
		}
		if l.spare.Load() == nil {
			t.Errorf("the batch of %d was not given back", n)
		}
	}
}

// Sparse rows, whose only sleeper has to pass all that is below it on, are woken as well.
func TestWakingReachesRowsWithFewSleepers(t *testing.T) {
	for _, every := range []int{2, rowLen / 2, rowLen, 2 * rowLen} {
		l := quietLot()
		var asleep []*sleeper
		for i, s := range lie(l, 40*rowLen) {
			if i%every != 0 {
				l.cancel(s)
			} else {
				asleep = append(asleep, s)
			}
		}
		l.wakeAll()
		got := 0
		for queue := woken(asleep); len(queue) > 0; queue = queue[1:] {
			got++
			if pass(l, asleep[queue[0]]) {
				queue = append(queue, woken(asleep)...)
			}
		}
		if got != len(asleep) {
			t.Errorf("one sleeper in %d places: %d of %d were woken", every, got, len(asleep))
		}
	}
}

// The cancelled must not take their duty along: whatever part of a detached batch is cancelled, at whatever moment, all
// others are woken, and nobody is woken twice. Some of the woken lie down again, which a later waking must find.
func TestCancellationInsideADetachedBatchLosesNobody(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		n := 1 + r.IntN(8*rowLen)
		share := r.Float64()
		l := quietLot()
		sleepers := lie(l, n)
		asleep := make([]bool, n) // the model: who lies on the lot or in a batch
		for i := range asleep {
			asleep[i] = true
		}
		var queue []int
		look := func() {
			t.Helper()
			for _, i := range woken(sleepers) {
				if !asleep[i] {
					t.Fatalf("sleeper %d of %d was woken while it was awake", i, n)
				}
				asleep[i] = false
				queue = append(queue, i)
			}
		}
		cancelSome := func(p float64) {
			for _, s := range sleepers {
				if r.Float64() < p {
					l.cancel(s)
				}
			}
			look()
		}
		cancelSome(share / 4) // while attached
		for wakes := 1 + r.IntN(3); ; {
			if wakes > 0 && (len(queue) == 0 || r.IntN(20) == 0) {
				wakes--
				before := len(queue)
				l.wakeAll()
				look()
				if len(queue) > before+1 {
					t.Fatalf("wakeAll woke %d itself", len(queue)-before)
				}
				cancelSome(share / 2) // while detached
			}
			if len(queue) == 0 {
				break
			}
			pick := r.IntN(len(queue))
			i := queue[pick]
			queue[pick] = queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			if pass(l, sleepers[i]) {
				look()
				cancelSome(share / 20)
			}
			if s := sleepers[i]; wakes > 0 && !s.cancelled.Load() && r.IntN(4) == 0 {
				asleep[i] = true
				if s.row.parked.Or(s.bit()|listed)&listed == 0 {
					l.list(s.row)
				}
			}
		}
		for i, still := range asleep {
			if still {
				t.Fatalf("sleeper %d of %d (cancelled: %t) was never woken", i, n, sleepers[i].cancelled.Load())
			}
		}
		if err := checkRows(l); err != nil {
			t.Fatal(err)
		}
		for _, s := range sleepers {
			l.vacate(s)
		}
		if len(l.open) != 0 || len(l.current.rows) != 0 || l.occupied.Load() {
			t.Fatalf("%d open and %d listed rows are left, occupied: %t", len(l.open), len(l.current.rows), l.occupied.Load())
		}
	}
}

// Rows at the front whose sleepers were all cancelled don't cost the batch its way back.
func TestABatchWithoutFirstSleepersIsGivenBack(t *testing.T) {
	for _, gone := range []int{1, rowLen, 2*rowLen + 1, 3 * rowLen} {
		l := quietLot()
		sleepers := lie(l, 3*rowLen)
		for _, s := range sleepers[:gone] {
			l.cancel(s)
		}
		woken(sleepers)
		l.wakeAll()
		for queue := woken(sleepers); len(queue) > 0; queue = queue[1:] {
			if pass(l, sleepers[queue[0]]) {
				queue = append(queue, woken(sleepers)...)
			}
		}
		if l.spare.Load() == nil {
			t.Errorf("%d of %d cancelled: the batch was not given back", gone, len(sleepers))
		}
	}
}

func TestTheCancelledSleepNoMore(t *testing.T) {
	l := quietLot()
	var s sleeper
	l.place(&s)
	l.cancel(&s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.sleep(&s, 0)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it sleeps")
		s.ring()
		<-done
	}
	if parked := s.row.parked.Load(); parked != listed {
		t.Errorf("its row has %b parked", parked)
	}
}

// A place that was given back belongs to another sleeper, whom the end of the first one's context must not wake.
func TestALateCancellationLeavesTheNextInItsPlaceAlone(t *testing.T) {
	l := quietLot()
	both := lie(l, 2)
	l.cancel(both[0])
	l.vacate(both[0])
	next := lie(l, 1)[0]
	if next.row != both[1].row || next.place != 0 {
		t.Fatalf("the free place was not taken")
	}
	l.cancel(both[0])
	if next.rung.Load() || next.row.parked.Load()&next.bit() == 0 {
		t.Error("the sleeper that has the place now was woken")
	}
}

// A sleeper that finds its row listed looks for news only, and sleeps. If the one that is about to list the row finds news
// once it has, the publisher may have looked in between and found nobody.
func TestWhoListsARowWakesThoseWhoReliedOnIt(t *testing.T) {
	l := new(lot)
	var neighbour sleeper
	l.init(func(uint64) bool {
		neighbour.row.parked.Or(neighbour.bit() | listed)
		return true
	})
	var s sleeper
	l.place(&s)
	l.place(&neighbour)
	l.sleep(&s, 0)
	if !neighbour.rung.Load() {
		t.Error("the neighbour sleeps on")
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
		const n = 2*rowLen + 10
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
		row := topic.lot.current.rows[0]
		first := row.sleepers[0]
		var stand sleeper // the first one's stand-in never runs
		stand.init()
		row.sleepers[0] = &stand
		if _, err := topic.Publish(1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := done.Load(); got != 0 {
			t.Errorf("%d returned although the one that Publish woke has not run", got)
		}
		if !stand.rung.Load() {
			t.Error("Publish woke nobody")
		}
		row.sleepers[0] = first
		first.batch, first.visits = stand.batch, stand.visits
		first.ring()
		synctest.Wait()
		if got := done.Load(); got != n {
			t.Errorf("%d of %d returned", got, n)
		}
		topic.Close(nil)
	})
}
