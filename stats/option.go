package stats

import (
	"fmt"

	"go.opentelemetry.io/otel"
)

// Option sets up a [Registry]. Options come from this package's With functions only.
type Option interface{ apply(c *config) error }

type config struct {
	limits

	buckets   []float64
	exemplars bool
}

const (
	defaultConnLimit    = 20_000
	defaultSeriesLimit  = 4_000
	defaultWaitingLimit = 50_000
)

func newConfig(opts []Option) config {
	c := config{
		limits:  limits{conns: defaultConnLimit, series: defaultSeriesLimit, waiting: defaultWaitingLimit},
		buckets: DefaultBuckets(),
	}

	for _, o := range opts {
		if o == nil {
			continue
		}

		if err := o.apply(&c); err != nil {
			otel.Handle(fmt.Errorf("stats: %w", err))
		}
	}

	return c
}

type optionFunc func(c *config) error

func (f optionFunc) apply(c *config) error { return f(c) }

// WithBuckets sets the bounds of both size histograms, in bytes, increasing and finite. The default is [DefaultBuckets];
// no bounds keep count and sum only, which takes the least memory.
func WithBuckets(bounds ...float64) Option {
	return optionFunc(func(c *config) error {
		if err := CheckBuckets(bounds...); err != nil {
			return fmt.Errorf("WithBuckets: %w", err)
		}

		c.buckets = bounds

		return nil
	})
}

// WithConnLimit sets how many live connections are told apart, 20,000 by default, at least 1. Those beyond it are counted
// together and reported once to [otel.Handle].
func WithConnLimit(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 1 {
			return fmt.Errorf("WithConnLimit: %d, expected at least 1", n)
		}

		c.conns = n

		return nil
	})
}

// WithSeriesLimit sets how many different keys (method × direction × type × variant × retry, client and server apart) the
// registry tells apart, 4,000 by default, at least 1. Those beyond it are counted as [Other] and reported once to
// [otel.Handle]. A connection has at most so many series, each of at most 512 bytes with default buckets.
//
// A reader's sums tell apart, besides, the servers that this process is a client of: at most four times as many rows; the
// servers of those beyond are counted as [Other], reported once too.
func WithSeriesLimit(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 1 {
			return fmt.Errorf("WithSeriesLimit: %d, expected at least 1", n)
		}

		c.series = n

		return nil
	})
}

// WithWaitingLimit sets how many series of closed connections may wait for a reader that was made by [Registry.NewConnReader] and
// doesn't read, 50,000 by default (about 25 MB), at least 0. For such a reader those beyond it, the oldest first, are counted
// together under ID 0, and reported once to [otel.Handle]. Beside these, connections that it has read while they were live are
// kept for it: no more than were live at its last reading. No count is lost, and snapshots are not concerned.
func WithWaitingLimit(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 0 {
			return fmt.Errorf("WithWaitingLimit: %d, expected at least 0", n)
		}

		c.waiting = n

		return nil
	})
}

// WithExemplars keeps of each series the largest message that was recorded in a sampled span since the last reading by a [Reader], with
// its trace and span. Without a reader it is the largest since counting began. The default is off. It costs 64 bytes a series,
// and a look at the context for each message that is larger than those before.
func WithExemplars() Option {
	return optionFunc(func(c *config) error {
		c.exemplars = true

		return nil
	})
}
