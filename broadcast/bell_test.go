package broadcast

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestABellRungBeforeTheWaitEndsIt(t *testing.T) {
	var b bell
	b.init()
	for range 3 {
		b.ring()
		b.wait()
	}
}

func TestABellEndsOneWaitForEachRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bell
		b.init()
		waits := 0
		go func() {
			for range 3 {
				b.wait()
				waits++
			}
		}()
		for want := range 4 {
			synctest.Wait()
			if waits != want {
				t.Fatalf("%d waits have ended after %d rings", waits, want)
			}
			if want < 3 {
				b.ring()
			}
		}
	})
}

// Signal wakes nobody who hasn't taken a place in the Cond's line yet. Whoever rings in that moment would be missed.
func TestABellRungWhileTheWaiterLiesDownIsHeard(t *testing.T) {
	var b bell
	b.cond.L = &ringing{&b}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.wait()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the ring was missed")
		b.ring()
		<-done
	}
}

// ringing is the Locker of a bell that is rung before the waiter looks for the last time, with a Signal that nobody hears.
type ringing struct{ b *bell }

func (*ringing) Lock() {}

func (r *ringing) Unlock() {
	r.b.rung.Store(true)
	r.b.Unlock()
}

// Run under the race detector this shows that what is written before ring may be read after wait.
func TestABellHandsOver(t *testing.T) {
	var there, back bell
	there.init()
	back.init()
	const rounds = 100_000
	ball := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			there.wait()
			ball++
			back.ring()
		}
	}()
	for i := range rounds {
		ball++
		there.ring()
		back.wait()
		if ball != 2*(i+1) {
			t.Fatalf("the ball was played %d times after round %d", ball, i)
		}
	}
	<-done
}
