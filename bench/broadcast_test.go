package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/otelproto/otelproto-go/broadcast"
)

// Publish while all subscribers are behind and never read. What waits for its subscribers has no figure here: it would stop.
// What drops loses nearly all of these events.
func BenchmarkBroadcastPublishIdle(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("subscribers=%d", n), func(b *testing.B) {
			eachWay(b, func(b *testing.B, w way) {
				if !w.keeps && !w.drops {
					b.Skip("a publish waits for ever")
				}
				f := w.start(64, drop)
				defer f.close()
				subs := subscribe(b.Context(), f, n)
				e := new(event)
				b.ReportAllocs()
				for b.Loop() {
					f.publish(e)
				}
				runtime.KeepAlive(subs)
			})
		})
	}
}

// Publish from several goroutines, with one subscriber that never reads.
func BenchmarkBroadcastPublishers(b *testing.B) {
	for _, n := range []int{1, 8} {
		b.Run(fmt.Sprintf("publishers=%d", n), func(b *testing.B) {
			eachWay(b, func(b *testing.B, w way) {
				if !w.keeps && !w.drops {
					b.Skip("a publish waits for ever")
				}
				f := w.start(64, drop)
				defer f.close()
				subs := subscribe(b.Context(), f, 1)
				e := new(event)
				var wg sync.WaitGroup
				for p := range n {
					wg.Go(func() {
						for range (b.N + p) / n {
							f.publish(e)
						}
					})
				}
				wg.Wait()
				runtime.KeepAlive(subs)
			})
		})
	}
}

// One publish to subscribers that all wait, until the last has the event. inline-ns is what the publisher pays of it; for what
// has a goroutine of its own that is the hand-over to it.
func BenchmarkBroadcastWake(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("parked=%d", n), func(b *testing.B) {
			eachWay(b, func(b *testing.B, w way) {
				f := w.start(4, wait)
				defer f.close()
				var wg sync.WaitGroup
				defer wg.Wait()
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				var got atomic.Int64
				var lost atomic.Bool
				for _, s := range subscribe(ctx, f, n) {
					wg.Go(func() {
						for s.receive(1) {
							got.Add(1)
						}
						lost.Store(ctx.Err() == nil)
					})
				}
				settle()
				e := new(event)
				inline := make([]time.Duration, 0, 1<<20)
				b.ReportAllocs()
				for b.Loop() {
					start := time.Now()
					f.publish(e)
					inline = append(inline, time.Since(start))
					for want := int64(len(inline) * n); got.Load() != want; {
						if lost.Load() {
							b.Fatal("an event was lost")
						}
						runtime.Gosched()
					}
					runtime.Gosched() // let everybody wait again
				}
				b.ReportMetric(median(inline), "inline-ns")
			})
		})
	}
}

// A stream of events to subscribers that keep up; one op is one delivery. All ways have the same bound on the lag: a round of
// events begins when everybody has finished the last.
func BenchmarkBroadcastStream(b *testing.B) {
	const lead = 4096
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("subscribers=%d", n), func(b *testing.B) {
			for _, w := range ways() {
				b.Run("by="+w.name, func(b *testing.B) {
					f := w.start(lead, wait)
					defer f.close()
					stream(b, f, n, lead)
				})
			}
		})
	}
}

func stream(b *testing.B, f fan, n, lead int) {
	b.Helper()
	rounds := make([]chan int, n)
	var wg, round sync.WaitGroup
	for i, s := range subscribe(b.Context(), f, n) {
		rounds[i] = make(chan int, 1)
		wg.Go(func() {
			for k := range rounds[i] {
				if !s.receive(k) {
					b.Error("an event was lost")
				}
				round.Done()
			}
		})
	}
	e := new(event)
	b.ReportAllocs()
	b.ResetTimer()
	for left := max(b.N/n, 1); left > 0; {
		k := min(left, lead)
		left -= k
		round.Add(n)
		for _, c := range rounds {
			c <- k
		}
		for range k {
			f.publish(e)
		}
		round.Wait()
	}
	b.StopTimer()
	for _, c := range rounds {
		close(c)
	}
	wg.Wait()
}

// A million events of 100 bytes to 1,000 subscribers that never read, with a window of 4,096: what is held in the end. Buffers
// are full after the window, and what comes then is dropped, so peers with buffers are spared most of the million: their time
// says nothing here. In short mode all get few, to see that it works.
func BenchmarkBroadcastStalled(b *testing.B) {
	const window, n = 4096, 1000
	eachWay(b, func(b *testing.B, w way) {
		events := 1_000_000
		switch {
		case !w.keeps && !w.drops:
			b.Skip("a publish waits for ever")
		case testing.Short():
			events = 1000
		case w.drops:
			events = 2 * window
		}
		var held int64
		for b.Loop() {
			before := heap()
			f := w.start(window, drop)
			subs := subscribe(b.Context(), f, n)
			for range events {
				f.publish(new(event))
			}
			held = max(held, heap()-before)
			runtime.KeepAlive(subs)
			f.close()
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(held), "held-B")
	})
}

// One completion while 10,000 others wait for theirs, each for a key of its own, until the waiter has it.
func BenchmarkBroadcastComplete(b *testing.B) {
	const n = 10_000
	for _, w := range []struct {
		name  string
		start func(n int) completer
	}{
		{"ours", newWaiters}, {"ours-topic", newSharedTopic}, {"map", newChanMap}, {"cond", newCondMap}, {"channels", newFiltered},
	} {
		b.Run("by="+w.name, func(b *testing.B) {
			c := w.start(n)
			var wg sync.WaitGroup
			defer wg.Wait()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			got := make(chan int, 1)
			for key := range n {
				wg.Go(func() {
					for ctx.Err() == nil {
						woken := key
						if !c.await(ctx, key) {
							woken = -1
						}
						select {
						case got <- woken:
						case <-ctx.Done():
						}
					}
				})
			}
			for c.waiting() < n {
				runtime.Gosched()
			}
			settle()
			inline := make([]time.Duration, 0, 1<<20)
			b.ReportAllocs()
			for key := 0; b.Loop(); key = (key + 7) % n {
				for {
					start := time.Now()
					if ok := c.complete(key); ok {
						inline = append(inline, time.Since(start))
						break
					}
					runtime.Gosched() // it isn't waiting again yet
				}
				if k := <-got; k != key {
					b.Fatalf("completed %d, and %d was woken", key, k)
				}
			}
			b.ReportMetric(median(inline), "inline-ns")
		})
	}
}

// A completer lets many wait for one thing each.
type completer interface {
	await(ctx context.Context, key int) bool
	complete(key int) bool // false if nobody waits for the key yet
	waiting() int
}

func unknown(context.Context) (int, bool, error) { return 0, false, nil }

type waiters struct{ broadcast.Waiters[int, int] }

func newWaiters(int) completer { return new(waiters) }

func (w *waiters) complete(key int) bool { return w.Complete(key, key) == 1 }
func (w *waiters) waiting() int          { return w.Len() }

func (w *waiters) await(ctx context.Context, key int) bool {
	_, err := w.Await(ctx, key, unknown)
	return err == nil
}

// sharedTopic is one topic for all keys: every completion wakes everybody.
type sharedTopic struct{ *broadcast.Topic[int] }

func newSharedTopic(int) completer {
	t, err := broadcast.New(broadcast.Options[int]{})
	if err != nil {
		panic(err)
	}
	return sharedTopic{t}
}

func (t sharedTopic) waiting() int { return t.Stats().Subscribers }

func (t sharedTopic) complete(key int) bool {
	_, err := t.Publish(key)
	return err == nil
}

func (t sharedTopic) await(ctx context.Context, key int) bool {
	_, err := broadcast.Await(ctx, t.Topic, unknown, func(k int) (int, bool) { return k, k == key })
	return err == nil
}

// chanMap is a map of channels behind a mutex, with one waiter for each key.
type chanMap struct {
	mu sync.Mutex // guards m
	m  map[int]chan int
}

func newChanMap(int) completer { return &chanMap{m: make(map[int]chan int)} }

func (c *chanMap) await(ctx context.Context, key int) bool {
	ch := make(chan int, 1)
	c.mu.Lock()
	c.m[key] = ch
	c.mu.Unlock()
	select {
	case <-ch:
		return true
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.m, key)
		c.mu.Unlock()
		return false
	}
}

func (c *chanMap) complete(key int) bool {
	c.mu.Lock()
	ch, ok := c.m[key]
	delete(c.m, key)
	c.mu.Unlock()
	if ok {
		ch <- key
	}
	return ok
}

func (c *chanMap) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.m)
}

// condMap is a map of results behind a mutex and a sync.Cond that everybody waits on.
type condMap struct {
	mu    sync.Mutex // guards done and waits
	done  map[int]bool
	waits int
	cond  sync.Cond
}

func newCondMap(int) completer {
	c := &condMap{done: make(map[int]bool)}
	c.cond.L = &c.mu
	return c
}

func (c *condMap) await(ctx context.Context, key int) bool {
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cond.Broadcast()
	})()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits++
	defer func() { c.waits-- }()
	for !c.done[key] {
		if ctx.Err() != nil {
			return false
		}
		c.cond.Wait()
	}
	delete(c.done, key)
	return true
}

func (c *condMap) complete(key int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[key] = true
	c.cond.Broadcast()
	return true
}

func (c *condMap) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits
}

// filtered is one channel for each waiter, who gets all keys and takes its own.
type filtered struct {
	all     []chan int
	started atomic.Int64
}

func newFiltered(n int) completer {
	f := &filtered{all: make([]chan int, n)}
	for i := range f.all {
		f.all[i] = make(chan int, 64)
	}
	return f
}

func (f *filtered) waiting() int { return int(f.started.Load()) }

func (f *filtered) await(ctx context.Context, key int) bool {
	f.started.Add(1)
	for {
		select {
		case k := <-f.all[key]:
			if k == key {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

func (f *filtered) complete(key int) bool {
	for _, c := range f.all {
		c <- key
	}
	return true
}

func subscribe(ctx context.Context, f fan, n int) []receiver {
	subs := make([]receiver, n)
	for i := range subs {
		subs[i] = f.subscribe(ctx)
	}
	return subs
}

// settle gives goroutines that were just started the time to get to where they wait.
func settle() {
	for range 1000 {
		runtime.Gosched()
	}
}

// median is in nanoseconds. The mean of what takes microseconds is that of the few times the thread was taken away.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
