package channel

import (
	"context"
	"sync"
	"testing"
)

// loose is a generation without a connection.
func loose(ctx context.Context) *generation {
	g := &generation{core: &core{}}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Acquire against the drain and the last release: what was acquired stays
// open until it is released, and what drains is closed in the end.
func TestAcquireAndTheLastReleaseDoNotRace(t *testing.T) {
	for range 5000 {
		g := loose(t.Context())
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range 3 {
			wg.Go(func() {
				<-begin
				for range 10 {
					if !g.acquire() {
						return
					}
					if g.ctx.Err() != nil {
						t.Error("acquired a generation that is closed")
					}
					g.release()
				}
			})
		}
		wg.Go(func() {
			<-begin
			g.drain()
		})
		close(begin)
		wg.Wait()
		if g.ctx.Err() == nil || !g.unused() || g.outstanding() != 0 {
			t.Fatalf("drained and released, but refs are %d and the context says %v", g.refs.Load(), g.ctx.Err())
		}
		if g.acquire() {
			t.Fatal("acquired what drains")
		}
	}
}

func TestStreamThatIsBeingOpenedCountsOnce(t *testing.T) {
	g := loose(t.Context())
	check := func(step string, want int64) {
		t.Helper()
		if got := g.outstanding(); got != want {
			t.Errorf("%s: %d outstanding, want %d", step, got, want)
		}
	}
	g.acquire()
	check("acquired", 1)
	g.hold(true) // the attempt
	check("attempt", 1)
	g.release() // which fails
	g.hold(false)
	check("an interceptor's second attempt", 1)
	g.releaseAgain() // NewStream returns
	check("open", 1)
	g.drain()
	if g.ctx.Err() != nil {
		t.Fatal("closed with an open stream")
	}
	g.release()
	check("ended", 0)
	if g.ctx.Err() == nil {
		t.Fatal("still open after the last stream")
	}
}
