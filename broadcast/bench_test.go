package broadcast_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/otelproto/otelproto-go/broadcast"
)

// The comparisons stand beside ours in one benchmark, because only figures of one run on one machine compare. "channels"
// is the usual way to fan out in Go: one buffered channel per subscriber, a receiver that selects on its context.
//
//	go test -run '^$' -bench . -count 6 ./broadcast

// A fan is the channels way.
type fan[T any] []chan T

func newFan[T any](n, buffer int) fan[T] {
	f := make(fan[T], n)
	for i := range f {
		f[i] = make(chan T, buffer)
	}
	return f
}

func (f fan[T]) publish(v T) {
	for _, c := range f {
		c <- v
	}
}

// Publish while the given number of subscribers are behind and never read.
func BenchmarkPublishIdle(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("ours/subscribers=%d", n), func(b *testing.B) {
			t := topicOf(b, broadcast.Options[int]{})
			subs := make([]*broadcast.Subscription[int], n)
			for i := range subs {
				subs[i] = t.Subscribe(b.Context())
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = t.Publish(1)
			}
			runtime.KeepAlive(subs)
		})
	}
}

// The channels way has no subscribers that cost nothing: each needs its own send, and a buffer that drops what is too much.
func BenchmarkPublishIdleChannels(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("channels/subscribers=%d", n), func(b *testing.B) {
			f := newFan[int](n, 1)
			b.ReportAllocs()
			for b.Loop() {
				for _, c := range f {
					select {
					case c <- 1:
					default: // full: the event is lost, silently
					}
				}
			}
		})
	}
}

// Publish from several goroutines at once, with one idle subscriber.
func BenchmarkPublishers(b *testing.B) {
	for _, publishers := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("publishers=%d", publishers), func(b *testing.B) {
			t := topicOf(b, broadcast.Options[int]{})
			s := t.Subscribe(b.Context())
			var wg sync.WaitGroup
			for p := range publishers {
				wg.Go(func() {
					for range (b.N + p) / publishers {
						_, _ = t.Publish(p)
					}
				})
			}
			wg.Wait()
			runtime.KeepAlive(s)
		})
	}
}

// One publish to subscribers that all wait. "inline-ns" is what the publisher pays, ns/op what it takes until the last
// subscriber has the event and stands waiting again. "first-send-ns" is the first of the publisher's sends, which wakes one
// goroutine: on a machine with nothing else to do, most of it is the system call that wakes a processor up.
func BenchmarkWake(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("ours/parked=%d", n), func(b *testing.B) {
			t := topicOf(b, broadcast.Options[int]{})
			ctx, cancel := context.WithCancel(b.Context())
			var got atomic.Int64
			var wg sync.WaitGroup
			for range n {
				s := t.Subscribe(ctx)
				wg.Go(func() {
					for {
						if _, err := s.Next(); err != nil {
							return
						}
						got.Add(1)
					}
				})
			}
			benchmarkWake(b, n, &got, func() time.Time {
				_, _ = t.Publish(1)
				return time.Time{}
			})
			cancel()
			wg.Wait()
		})
		// In the order in which they were made the channels lie one behind the other in memory, which the publisher's loop
		// and the caches like; subscribers that come and go, or stand in a map, don't stay in such an order.
		for _, order := range []string{"made", "random"} {
			b.Run(fmt.Sprintf("channels/order=%s/parked=%d", order, n), func(b *testing.B) {
				f := newFan[int](n, 1)
				ctx, cancel := context.WithCancel(b.Context())
				var got atomic.Int64
				var wg sync.WaitGroup
				for _, c := range f {
					wg.Go(func() {
						for {
							select {
							case <-c:
								got.Add(1)
							case <-ctx.Done():
								return
							}
						}
					})
				}
				if order == "random" {
					rand.Shuffle(n, func(i, j int) { f[i], f[j] = f[j], f[i] })
				}
				benchmarkWake(b, n, &got, func() time.Time {
					f[0] <- 1
					first := time.Now()
					f[1:].publish(1)
					return first
				})
				cancel()
				wg.Wait()
			})
		}
	}
}

// benchmarkWake takes a publish that returns when its first send was done, if that is to be measured.
func benchmarkWake(b *testing.B, n int, got *atomic.Int64, publish func() (first time.Time)) {
	b.Helper()
	settle()
	inline := make([]time.Duration, 0, 1<<20)
	var firsts []time.Duration
	b.ReportAllocs()
	rounds := int64(0)
	cpu := cpuTime()
	for b.Loop() {
		start := time.Now()
		first := publish()
		inline = append(inline, time.Since(start))
		if !first.IsZero() {
			firsts = append(firsts, first.Sub(start))
		}
		rounds++
		for got.Load() != rounds*int64(n) {
			runtime.Gosched()
		}
		// Everybody has it; now let everybody lie down again.
		runtime.Gosched()
	}
	b.ReportMetric(median(inline), "inline-ns")
	if firsts != nil {
		b.ReportMetric(median(firsts), "first-send-ns")
	}
	b.ReportMetric(float64(cpuTime()-cpu)/float64(rounds), "cpu-ns")
}

// cpuTime is what the process has used so far. On a machine that others use too it says more than the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// median is in nanoseconds. The mean of what takes microseconds is that of the few times the thread was taken away.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds())
}

// settle gives goroutines that were just started the time to get to where they wait.
func settle() {
	for range 1000 {
		runtime.Gosched()
	}
}

// A stream of events to subscribers that keep up: the publisher stays within the window. One op is one delivery.
func BenchmarkStream(b *testing.B) {
	const lead = 4096
	for _, n := range []int{1, 100} {
		for _, way := range []string{"next", "batch", "all"} {
			b.Run(fmt.Sprintf("ours/%s/subscribers=%d", way, n), func(b *testing.B) {
				t := topicOf(b, broadcast.Options[int]{Window: 2 * lead})
				events := max(b.N/n, 1)
				subs := make([]*broadcast.Subscription[int], n)
				for i := range subs {
					subs[i] = t.Subscribe(b.Context())
				}
				stream(b, events, lead, n, func(i, events int) {
					s := subs[i]
					switch way {
					case "next":
						for range events {
							if _, err := s.Next(); err != nil {
								b.Error(err)
								return
							}
						}
					case "batch":
						dst := make([]broadcast.Event[int], 256)
						for events > 0 {
							got, err := s.NextBatch(dst[:min(len(dst), events)])
							if err != nil {
								b.Error(err)
								return
							}
							events -= got
						}
					case "all":
						for _, err := range s.All() {
							if err != nil {
								b.Error(err)
							}
							if events--; events == 0 {
								break
							}
						}
					}
				}, func(v int) { _, _ = t.Publish(v) })
			})
		}
		b.Run(fmt.Sprintf("channels/subscribers=%d", n), func(b *testing.B) {
			f := newFan[int](n, lead)
			events := max(b.N/n, 1)
			ctx := b.Context()
			stream(b, events, lead, n, func(i, events int) {
				for range events {
					select {
					case <-f[i]:
					case <-ctx.Done():
						return
					}
				}
			}, f.publish)
		})
	}
}

// stream runs n receivers of the given number of events and publishes those in rounds of lead, each begun when all
// receivers have finished the last: the same bound on the lag for every way, and no event is ever lost.
func stream(b *testing.B, events, lead, n int, receive func(i, events int), publish func(int)) {
	b.Helper()
	b.ResetTimer()
	rounds := make([]chan int, n)
	var wg, round sync.WaitGroup
	for i := range n {
		rounds[i] = make(chan int, 1)
		wg.Go(func() {
			for k := range rounds[i] {
				receive(i, k)
				round.Done()
			}
		})
	}
	for left := events; left > 0; {
		k := min(left, lead)
		left -= k
		round.Add(n)
		for _, c := range rounds {
			c <- k
		}
		for v := range k {
			publish(v)
		}
		round.Wait()
	}
	for _, c := range rounds {
		close(c)
	}
	wg.Wait()
}

// One completion with many waiting for other keys, until the waiter has it and waits again. "stream" is Await over a topic
// that all share, in which every completion wakes everybody.
func BenchmarkComplete(b *testing.B) {
	const n = 10_000
	ctx := b.Context()
	none := func(context.Context) (int, bool, error) { return 0, false, nil }
	b.Run("waiters", func(b *testing.B) {
		ctx, cancel := context.WithCancel(ctx)
		var w broadcast.Waiters[int, int]
		var wg sync.WaitGroup
		got := make(chan int, 1)
		for key := range n {
			wg.Go(func() {
				for {
					if _, err := w.Await(ctx, key, none); err != nil {
						return
					}
					got <- key
				}
			})
		}
		for w.Len() < n {
			runtime.Gosched()
		}
		benchmarkComplete(b, n, got, func(key int) bool { return w.Complete(key, 1) == 1 })
		cancel()
		wg.Wait()
	})
	b.Run("stream", func(b *testing.B) {
		ctx, cancel := context.WithCancel(ctx)
		t := topicOf(b, broadcast.Options[int]{})
		var wg sync.WaitGroup
		got := make(chan int, 1)
		for key := range n {
			wg.Go(func() {
				for {
					if _, err := broadcast.Await(ctx, t, none, func(v int) (int, bool) { return v, v == key }); err != nil {
						return
					}
					got <- key
				}
			})
		}
		for t.Stats().Subscribers < n {
			runtime.Gosched()
		}
		benchmarkComplete(b, n, got, func(key int) bool { _, _ = t.Publish(key); return true })
		cancel()
		wg.Wait()
	})
}

// benchmarkComplete completes each key in turn; complete reports false if nobody waits for it yet.
func benchmarkComplete(b *testing.B, n int, got <-chan int, complete func(key int) bool) {
	b.Helper()
	settle()
	inline := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	key := 0
	for b.Loop() {
		for {
			start := time.Now()
			ok := complete(key)
			if d := time.Since(start); ok {
				inline = append(inline, d)
				break
			}
			runtime.Gosched()
		}
		<-got
		key = (key + 7) % n
	}
	b.ReportMetric(median(inline), "inline-ns")
}
