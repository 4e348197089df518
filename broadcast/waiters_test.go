package broadcast_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/otelproto/otelproto-go/broadcast"
)

// Waiters 1. The waiter is registered before check runs, inside the call. A completion before, during or after the check
// is delivered in every interleaving.
func TestWaitersFindTheOutcomeWheneverItComes(t *testing.T) {
	for _, when := range []string{"before", "during", "after"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w broadcast.Waiters[int, string]
				done := false
				complete := func() (woken int) {
					done = true
					return w.Complete(7, "completed")
				}
				if when == "before" && complete() != 0 {
					t.Error("Complete woke somebody before anybody waits")
				}
				go func() {
					synctest.Wait()
					if when == "after" && complete() != 1 {
						t.Error("Complete woke nobody")
					}
				}()
				v, err := w.Await(t.Context(), 7, func(context.Context) (string, bool, error) {
					found := done
					if w.Len() != 1 {
						t.Errorf("%d are registered while check runs, want 1", w.Len())
					}
					if when == "during" && complete() != 1 { // after the state was looked at
						t.Error("Complete didn't find who checks")
					}
					return "state", found, nil
				})
				want := "completed"
				if when == "before" {
					want = "state"
				}
				if v != want || err != nil {
					t.Errorf("Await = %q, %v; want %q", v, err, want)
				}
				if w.Len() != 0 {
					t.Errorf("%d are left", w.Len())
				}
			})
		})
	}
}

// Waiters 2. Complete wakes exactly that key's waiters, all with the same value, and never blocks.
func TestCompleteWakesItsOwnWaitersAndNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, each = 100, 5
		var w broadcast.Waiters[int, string]
		var got [keys]atomic.Int32
		for key := range keys {
			for range each {
				go func() {
					if v, err := w.Await(t.Context(), key, missing); v != "done" || err != nil {
						t.Errorf("Await = %q, %v", v, err)
					}
					got[key].Add(1)
				}()
			}
		}
		synctest.Wait()
		for key := range keys {
			if n := w.Complete(key, "done"); n != each {
				t.Errorf("Complete woke %d, want %d", n, each)
			}
			synctest.Wait()
			for k := range keys {
				want := int32(0)
				if k <= key {
					want = each
				}
				if n := got[k].Load(); n != want {
					t.Fatalf("after key %d, %d of key %d returned, want %d", key, n, k, want)
				}
			}
		}
		if n := w.Complete(3, "again"); n != 0 {
			t.Errorf("a second Complete woke %d", n)
		}
	})
}

// Waiters 3. Fail and Close wake the matching waiters at once with the cause, without polling.
func TestFailAndCloseWakeTheMatchingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 1000
		moved := errors.New("shard moved")
		var w broadcast.Waiters[int, string]
		errs := make([]error, keys)
		var returned atomic.Int32
		for key := range keys {
			go func() {
				_, errs[key] = w.Await(t.Context(), key, missing)
				returned.Add(1)
			}()
		}
		synctest.Wait()
		n := w.Fail(func(key int) bool {
			w.Complete(-1, "Fail calls match without a lock")
			return key%10 == 3
		}, moved)
		synctest.Wait()
		if n != keys/10 || returned.Load() != keys/10 || w.Len() != keys-keys/10 {
			t.Fatalf("Fail woke %d; %d returned, %d are left", n, returned.Load(), w.Len())
		}
		w.Close(moved)
		w.Close(errors.New("another"))
		synctest.Wait()
		if returned.Load() != keys || w.Len() != 0 {
			t.Errorf("%d returned, %d are left", returned.Load(), w.Len())
		}
		for key, err := range errs {
			if !errors.Is(err, moved) {
				t.Errorf("Await(%d) = %v, want the cause", key, err)
			}
		}
		if _, err := w.Await(t.Context(), 1, missing); !errors.Is(err, moved) {
			t.Errorf("Await after Close = %v, want the cause", err)
		}
	})
}

func TestFailAndCloseWithoutACauseMeanErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w broadcast.Waiters[int, string]
		for _, end := range []func(){func() { w.Fail(nil, nil) }, func() { w.Close(nil) }} {
			go func() { synctest.Wait(); end() }()
			if _, err := w.Await(t.Context(), 1, missing); !errors.Is(err, broadcast.ErrClosed) {
				t.Errorf("Await = %v, want ErrClosed", err)
			}
		}
	})
}

// Waiters 4. After return or cancel no entry remains: memory is O(waiters).
func TestNoWaiterRemains(t *testing.T) {
	const n = 40_000
	var w broadcast.Waiters[int, string]
	for range scaled(8) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for key := range n {
			wg.Go(func() {
				if _, err := w.Await(ctx, key/2, missing); !errors.Is(err, context.Canceled) {
					t.Errorf("Await = %v", err)
				}
			})
		}
		until(t, "all wait", func() bool { return w.Len() == n })
		cancel()
		wg.Wait()
		if w.Len() != 0 || broadcast.Room(&w) != 0 {
			t.Fatalf("%d are left, and room for %d", w.Len(), broadcast.Room(&w))
		}
	}
}

// An outcome that is there wins over a context that has ended.
func TestACompletionBeatsTheCancellation(t *testing.T) {
	for range 1000 {
		var w broadcast.Waiters[int, string]
		ctx, cancel := context.WithCancel(t.Context())
		v, err := w.Await(ctx, 1, func(context.Context) (string, bool, error) {
			w.Complete(1, "done")
			cancel()
			return "", false, nil
		})
		if v != "done" || err != nil {
			t.Fatalf("Await = %q, %v", v, err)
		}
	}
}

// Waiters 5. An error from check is returned as it is; a panic in it leaves no entry behind. And bad input.
func TestWaitersEndWithTheErrorOfCheck(t *testing.T) {
	var w broadcast.Waiters[any, string]
	failed := errors.New("no database")
	fails := func(context.Context) (string, bool, error) { return "", false, failed }
	if _, err := w.Await(t.Context(), 1, fails); err != failed { //nolint:errorlint // as it is
		t.Errorf("Await = %v, want the error of check", err)
	}
	for _, f := range []func(){func() { panic("check") }, runtime.Goexit} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_, _ = w.Await(t.Context(), 1, func(context.Context) (string, bool, error) { f(); return "", false, nil })
		}()
		received(t, "the end of the call", done)
	}
	if _, err := w.Await(t.Context(), 1, nil); err == nil {
		t.Error("a nil check is accepted")
	}
	if _, err := w.Await(t.Context(), math.NaN(), missing); err == nil {
		t.Error("a key that no completion can find is accepted")
	}
	if w.Len() != 0 {
		t.Errorf("%d are left", w.Len())
	}
}
