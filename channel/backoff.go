package channel

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff paces connection attempts (WithBackoff) and repeated RPCs
// (RetryPolicy). Attempt n is delayed by a random time in
// [d·(1−Jitter), d] with d = min(Max, Base·Factor^(n−1)); the first attempt
// after a success isn't delayed.
//
// A zero field means its default, which for WithBackoff is 1 s, 1.6, 1 and
// 10 s. Jitter 1, full jitter, is the default because the clients of one
// target usually lose it at the same instant.
type Backoff struct {
	Base   time.Duration // delay before jitter of the second attempt
	Factor float64       // growth per attempt, at least 1
	Jitter float64       // random share of each delay, in (0, 1]
	Max    time.Duration // cap before jitter, at least Base
}

// connectBackoff is the default of WithBackoff.
func connectBackoff() Backoff {
	return Backoff{Base: time.Second, Factor: 1.6, Jitter: 1, Max: 10 * time.Second}
}

// retryBackoff is the default of RetryPolicy.
func retryBackoff() Backoff {
	return Backoff{Base: 50 * time.Millisecond, Factor: 2, Jitter: 1, Max: time.Second}
}

// withDefaults fills in zero fields and reports the first bad one.
func (b Backoff) withDefaults(d Backoff) (Backoff, error) {
	if b.Base == 0 {
		b.Base = d.Base
		if b.Max > 0 {
			b.Base = min(b.Base, b.Max)
		}
	}
	if b.Factor == 0 {
		b.Factor = d.Factor
	}
	if b.Jitter == 0 {
		b.Jitter = d.Jitter
	}
	if b.Max == 0 {
		b.Max = max(d.Max, b.Base)
	}
	switch {
	case b.Base < 0:
		return b, fmt.Errorf("base is %v, want more than zero", b.Base)
	case !(b.Factor >= 1): // NaN too
		return b, fmt.Errorf("factor is %v, want 1 or more", b.Factor)
	case !(b.Jitter > 0 && b.Jitter <= 1):
		return b, fmt.Errorf("jitter is %v, want more than 0 and at most 1", b.Jitter)
	case b.Max < b.Base:
		return b, fmt.Errorf("max is %v, want at least the base of %v", b.Max, b.Base)
	}
	return b, nil
}

// delay is the time before the attempt that follows n attempts; random is in
// [0, 1).
func (b Backoff) delay(n int, random float64) time.Duration {
	if n <= 0 {
		return 0
	}
	d := float64(b.Base)
	for ; n > 1 && d < float64(b.Max); n-- {
		d *= b.Factor
	}
	d = min(d, float64(b.Max))
	return time.Duration(d * (1 - b.Jitter*random))
}

func (b Backoff) next(n int) time.Duration {
	return b.delay(n, rand.Float64())
}
