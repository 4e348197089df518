package channel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/otelproto/otelproto-go/channel"
)

func TestOneHandleAndOneConnectionPerTarget(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := tcpProxy(t, s.addr)
	cache := newCache(t)
	target := "passthrough:///" + p.Addr()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			c := cache.Conn(target)
			if c != cache.Conn(target) {
				t.Error("two handles for one target")
			}
			if err := do(withPatience(t), c, "x"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := p.Accepted(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
	if got := cache.Snapshot(); len(got) != 1 || got[0].Target != target || got[0].Connectivity != connectivity.Ready {
		t.Errorf("snapshot %+v", got)
	}
}

func targets(states []channel.State) string {
	var names []string
	for _, s := range states {
		names = append(names, strings.TrimPrefix(s.Target, "passthrough:///"))
	}
	return strings.Join(names, " ")
}

func TestLeastRecentlyUsedTargetGoesFirst(t *testing.T) {
	t.Parallel()
	cache := newCache(t, channel.WithMaxTargets(2))
	a := cache.Conn("passthrough:///a")
	cache.Conn("passthrough:///b")
	cache.Conn("passthrough:///a")
	cache.Conn("passthrough:///c")
	if got := targets(cache.Snapshot()); got != "a c" {
		t.Errorf("targets %q, want a and c", got)
	}
	if cache.Conn("passthrough:///a") != a {
		t.Error("the handle of a target that was kept changed")
	}
}

func TestCallsCountAsUseForTheOrderOfEviction(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	cache := newCache(t, channel.WithMaxTargets(2))
	used := cache.Conn("passthrough:///" + s.addr)
	cache.Conn("passthrough:///b")
	if err := do(withPatience(t), used, "x"); err != nil {
		t.Fatal(err)
	}
	cache.Conn("passthrough:///c")
	if got := targets(cache.Snapshot()); !strings.Contains(got, s.addr) || strings.Contains(got, "b") {
		t.Errorf("targets %q", got)
	}
}

func TestEvictionWithOpenStreamsDrainsAndTheHandleStaysUsable(t *testing.T) {
	t.Parallel()
	ctx := withPatience(t)
	cache := newCache(t, channel.WithMaxTargets(3))
	var streams []grpc.ClientStream
	var handles []*channel.Conn
	for range 8 {
		s := serve(t, "127.0.0.1:0")
		h := cache.Conn("passthrough:///" + s.addr)
		handles = append(handles, h)
		streams = append(streams, chat(ctx, t, h))
	}
	states := cache.Snapshot()
	draining := 0
	for _, s := range states {
		for _, n := range s.Connections {
			if n.Draining {
				draining++
			}
		}
	}
	if len(states) != 8 || draining != 5 {
		t.Errorf("%d targets of which %d drain, want 8 and 5", len(states), draining)
	}
	for _, cs := range streams {
		if err := exchange(cs, "still"); err != nil {
			t.Errorf("stream of an evicted target: %v", err)
		}
		finish(t, cs)
	}
	eventually(t, "evicted targets gone", func() bool { return len(cache.Snapshot()) == 3 })
	for _, h := range handles { // the first are evicted, and come back
		if err := do(ctx, h, "x"); err != nil {
			t.Errorf("evicted handle: %v", err)
		}
	}
	eventually(t, "maximum kept", func() bool { return len(cache.Snapshot()) == 3 })
}

func TestHandlesOfOneTargetFromBeforeAndAfterAnEvictionShareAConnection(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := tcpProxy(t, s.addr)
	cache := newCache(t)
	target := "passthrough:///" + p.Addr()
	before := cache.Conn(target)
	cache.Forget(target)
	after := cache.Conn(target)
	ctx := withPatience(t)
	if err := errors.Join(do(ctx, after, "x"), do(ctx, before, "y"), do(ctx, after, "z")); err != nil {
		t.Fatal(err)
	}
	if got := p.Accepted(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

func TestForgetAndRetainDrain(t *testing.T) {
	t.Parallel()
	ctx := withPatience(t)
	cache := newCache(t)
	a, b := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
	ha, hb := cache.Conn("passthrough:///"+a.addr), cache.Conn("passthrough:///"+b.addr)
	sa, sb := chat(ctx, t, ha), chat(ctx, t, hb)
	cache.Forget("passthrough:///" + a.addr)
	cache.Forget("passthrough:///never/seen")
	cache.Retain("passthrough:///" + a.addr) // b goes
	for _, cs := range []grpc.ClientStream{sa, sb} {
		if err := exchange(cs, "x"); err != nil {
			t.Errorf("stream of a forgotten target: %v", err)
		}
		finish(t, cs)
	}
	eventually(t, "both gone", func() bool { return len(cache.Snapshot()) == 0 })
	if err := do(ctx, ha, "again"); err != nil {
		t.Errorf("handle of a forgotten target: %v", err)
	}
}

func TestIdleTargetIsClosedAndDialledAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := tcpProxy(t, s.addr)
	ctx := withPatience(t)
	cache := newCache(t, channel.WithIdleTimeout(40*time.Millisecond))
	c := cache.Conn("passthrough:///" + p.Addr())
	stream := chat(ctx, t, c)
	single := dial(t, p.Addr(), channel.WithIdleTimeout(40*time.Millisecond))
	if err := do(ctx, single, "x"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "single closed", func() bool { return len(single.State().Connections) == 0 })
	if got := c.State(); got.Outstanding != 1 || got.Connectivity != connectivity.Ready {
		t.Errorf("a target with an open stream was taken for idle: %+v", got)
	}
	finish(t, stream)
	eventually(t, "target gone", func() bool { return len(cache.Snapshot()) == 0 })
	before := single.State().Generation
	if err := errors.Join(do(ctx, c, "x"), do(ctx, single, "x")); err != nil {
		t.Fatal(err)
	}
	if got := single.State().Generation; got <= before {
		t.Errorf("generation %d after %d", got, before)
	}
}

func TestCloseEndsCallsStreamsDialsAndDrainsAndNamesTheTarget(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	mute := tcpProxy(t, "127.0.0.1:1")
	mute.Mute(true)
	cache, err := channel.NewCache(channel.WithDialOptions(plaintext()), quick(),
		channel.WithUnavailableThreshold(1), suspectWhenAsked(s))
	if err != nil {
		t.Fatal(err)
	}
	ctx := withPatience(t)
	live, dead := cache.Conn("passthrough:///"+s.addr), cache.Conn("passthrough:///"+mute.Addr())
	draining := chat(ctx, t, live)
	replace(t, live)
	current := chat(ctx, t, live)
	errs := make(chan error, 2)
	go func() { errs <- do(ctx, live, "slow") }()
	eventually(t, "slow call", func() bool { return s.count("slow") == 1 })
	go func() { errs <- do(ctx, dead, "x") }()
	eventually(t, "dial", func() bool { return mute.Accepted() == 1 })

	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := cache.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	wg.Wait()
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, channel.ErrClosed) || codeOf(err) != codes.Canceled || !contains(err, "passthrough:///") {
			t.Errorf("%s: %v, want ErrClosed, Canceled, with the target", what, err)
		}
	}
	check("call under way", <-errs)
	check("call that waits for a connection", <-errs)
	for what, cs := range map[string]grpc.ClientStream{"draining stream": draining, "stream": current} {
		check(what, cs.RecvMsg(new(wrapperspb.StringValue)))
	}
	check("call on an old handle", do(ctx, live, "x"))
	check("call on a new handle", do(ctx, cache.Conn("passthrough:///late"), "x"))
	_, err = live.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, methodChat)
	check("stream on an old handle", err)
	if got := cache.Snapshot(); len(got) != 0 {
		t.Errorf("left behind: %+v", got)
	}
	if got := live.State(); !got.Closed || got.Connectivity != connectivity.Shutdown {
		t.Errorf("state after Close: %+v", got)
	}
}

func TestCloseOfASingleConnIsIdempotentAndFinal(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	c := dial(t, s.addr)
	ctx := withPatience(t)
	if err := do(ctx, c, "x"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := do(ctx, c, "x"); !errors.Is(err, channel.ErrClosed) || !contains(err, s.addr) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCloseOfACachedHandleIsForItsHoldersAndTheTargetCanBeHadAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	cache := newCache(t)
	ctx := withPatience(t)
	old := cache.Conn("passthrough:///" + s.addr)
	if err := errors.Join(do(ctx, old, "x"), old.Close(), old.Close()); err != nil {
		t.Fatal(err)
	}
	if err := do(ctx, old, "x"); !errors.Is(err, channel.ErrClosed) {
		t.Errorf("closed handle: %v", err)
	}
	fresh := cache.Conn("passthrough:///" + s.addr)
	if fresh == old {
		t.Fatal("the cache gave out a closed handle")
	}
	if err := do(ctx, fresh, "x"); err != nil {
		t.Error(err)
	}
}

func TestCloseUnderLoadLeavesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	for range 4 {
		cache, err := channel.NewCache(channel.WithDialOptions(plaintext()), channel.WithMaxTargets(2), quick())
		if err != nil {
			t.Fatal(err)
		}
		ctx := withPatience(t)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for {
					// The same server by several names, so that targets are evicted.
					c := cache.Conn(fmt.Sprintf("passthrough://%d/%s", i%4, s.addr))
					err := do(ctx, c, "x")
					if errors.Is(err, channel.ErrClosed) {
						return
					}
					if err != nil {
						t.Errorf("call: %v", err)
						return
					}
				}
			})
		}
		eventually(t, "load", func() bool { return s.total.Load() > 50 })
		s.total.Store(0)
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// 100 targets, 10,000 callers, the servers of 10 targets flapping. No
// goroutine may be left (goleak, in TestMain), no memory, and connects are
// bounded by the backoff.
func TestHundredTargetsTenThousandCallersTenFlapping(t *testing.T) {
	t.Parallel()
	const nTargets, flapping, callers = 100, 10, 10000
	s := serve(t, "127.0.0.1:0")
	cache, err := channel.NewCache(channel.WithDialOptions(plaintext()),
		channel.WithBackoff(channel.Backoff{Base: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Max: 500 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	var handles []*channel.Conn
	for i := range nTargets - flapping {
		handles = append(handles, cache.Conn(fmt.Sprintf("passthrough://%d/%s", i, s.addr)))
	}
	type flap struct {
		down, up func()
		accepted func() int
	}
	var flaps []flap
	for range flapping {
		p := tcpProxy(t, s.addr)
		handles = append(handles, cache.Conn("passthrough:///"+p.Addr()))
		flaps = append(flaps, flap{func() { p.HangUp(true); p.Reset() }, func() { p.HangUp(false) }, p.Accepted})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	begin := time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	cycles := 0
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				cycles++
				for _, f := range flaps {
					if cycles%2 == 0 {
						f.up()
					} else {
						f.down()
					}
				}
			case <-stop:
				return
			}
		}
	}()
	var wg sync.WaitGroup
	for i := range callers {
		h, steady := handles[i%nTargets], i%nTargets < nTargets-flapping
		wg.Go(func() {
			if err := do(ctx, h, "x"); err != nil && steady {
				t.Errorf("target that doesn't flap: %v", err)
			}
		})
	}
	wg.Wait()
	close(stop)
	<-stopped
	took := time.Since(begin)
	for _, f := range flaps {
		// Per cycle grpc's own reconnect of a transport that was lost and one
		// paced attempt, and what the backoff allows beyond.
		if got, most := f.accepted(), 3+2*cycles+int(took/(40*time.Millisecond)); got > most {
			t.Errorf("%d connections to a flapping target in %v and %d cycles, want at most %d", got, took, cycles, most)
		}
	}
	if err := cache.Close(); err != nil {
		t.Error(err)
	}
	if got := cache.Snapshot(); len(got) != 0 {
		t.Errorf("%d targets left", len(got))
	}
	t.Logf("%d callers in %v, %d flaps", callers, took, cycles)
}

func TestCacheThatSawManyTargetsKeepsNoMemoryOfThem(t *testing.T) {
	cache := newCache(t, channel.WithMaxTargets(10))
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	see := func(from, to int) {
		for i := from; i < to; i++ {
			cache.Conn(fmt.Sprintf("passthrough:///target-%d", i))
		}
	}
	see(0, 200)
	before := heap()
	see(200, 1200)
	if got := len(cache.Snapshot()); got != 10 {
		t.Errorf("%d targets, want 10", got)
	}
	// A thousand targets that are kept would be several megabytes.
	if after := heap(); after > before+1<<20 {
		t.Errorf("heap grew from %d to %d bytes", before, after)
	}
}
