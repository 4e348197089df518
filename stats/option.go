package stats

import (
	"fmt"

	"go.opentelemetry.io/otel"
)

// Option sets up a [Registry]. Options come from this package's With functions only.
type Option interface{ apply(c *config) error }

type config struct {
	buckets     []float64
	connLimit   int
	seriesLimit int
}

const (
	defaultConnLimit   = 20_000
	defaultSeriesLimit = 4_000
)

func newConfig(opts []Option) config {
	c := config{buckets: DefaultBuckets(), connLimit: defaultConnLimit, seriesLimit: defaultSeriesLimit}

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

		c.connLimit = n

		return nil
	})
}

// WithSeriesLimit sets how many different keys (method × direction × type × variant × retry, client and server apart) the
// registry tells apart, 4,000 by default, at least 1. Those beyond it are counted as [Other] and reported once to
// [otel.Handle]. A connection has at most so many series, each of at most 512 bytes with default buckets.
func WithSeriesLimit(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 1 {
			return fmt.Errorf("WithSeriesLimit: %d, expected at least 1", n)
		}

		c.seriesLimit = n

		return nil
	})
}
