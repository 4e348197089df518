package channel

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

const (
	defaultThreshold      = 3
	defaultIdleTimeout    = 30 * time.Minute
	defaultConnectTimeout = 20 * time.Second
	// The default enforcement of grpc-go, grpc-java and the C core closes a
	// connection that is pinged more often than every five minutes.
	defaultKeepaliveTime    = 6 * time.Minute
	defaultKeepaliveTimeout = 20 * time.Second
)

// Option configures New and NewCache. The values come from this package's
// With functions only.
type Option interface{ apply(c *config) error }

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

// config is read-only once newConfig has returned it.
type config struct {
	userDial       []grpc.DialOption
	dial           []grpc.DialOption // userDial between ours
	backoff        Backoff
	threshold      int32
	classifier     func(Failure) Class // nil: Classify
	retry          retryConfig
	drainTimeout   time.Duration
	idleTimeout    time.Duration
	connectTimeout time.Duration
	maxAge         time.Duration
	maxTargets     int
	minConns       int
	maxConns       int
	keepalive      keepalive.ClientParameters
	provider       metric.MeterProvider
	logger         *slog.Logger
}

// WithDialOptions adds options for grpc.NewClient, in order, after those of
// the package: what is given here wins (connect parameters, keepalive).
// Transport credentials are required, as grpc.NewClient requires them.
func WithDialOptions(opts ...grpc.DialOption) Option {
	return optionFunc(func(c *config) error {
		for i, o := range opts {
			if o == nil {
				return fmt.Errorf("WithDialOptions: option %d is nil", i+1)
			}
		}
		c.userDial = append(c.userDial, opts...)
		return nil
	})
}

// WithBackoff paces the connection attempts to one target. Default: 1 s,
// times 1.6, full jitter, at most 10 s. The count starts again with the first
// RPC that a connection serves.
func WithBackoff(b Backoff) Option {
	return optionFunc(func(c *config) error {
		b, err := b.withDefaults(connectBackoff())
		if err != nil {
			return fmt.Errorf("WithBackoff: %w", err)
		}
		c.backoff = b
		return nil
	})
}

// WithUnavailableThreshold sets how many suspect failures in a row, without a
// success or an answer of the application between them, make a connection be
// replaced. Default: 3. With 1 every RPC also reads the response header (three
// allocations more), since there is no second failure to confirm the first.
func WithUnavailableThreshold(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 1 || n > 1<<20 {
			return fmt.Errorf("WithUnavailableThreshold: %d, want 1 to %d", n, 1<<20)
		}
		c.threshold = int32(n)
		return nil
	})
}

// WithClassifier replaces Classify for failures that the RPC's own context
// didn't cause. It decides what counts against a connection, never whether an
// RPC may be sent again: that depends on what was sent. It must be fast and
// safe for concurrent use. With it every RPC also reads the response header
// (three allocations more).
func WithClassifier(f func(Failure) Class) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return errors.New("WithClassifier: the function is nil")
		}
		c.classifier = f
		return nil
	})
}

// WithRetry sets the retry policy. Default: the zero RetryPolicy, see there.
func WithRetry(p RetryPolicy) Option {
	return optionFunc(func(c *config) error {
		r, err := newRetryConfig(p)
		if err != nil {
			return fmt.Errorf("WithRetry: %w", err)
		}
		c.retry = r
		return nil
	})
}

// WithDrainTimeout bounds how long a connection that was let go of waits for
// its RPCs; those that are left then end with UNAVAILABLE or CANCELED.
// Default: 0, without limit, since ending an RPC is the application's
// business.
func WithDrainTimeout(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("WithDrainTimeout: %v, want 0 (no limit) or more", d)
		}
		c.drainTimeout = d
		return nil
	})
}

// WithIdleTimeout closes a target's connections when no RPC ran for d (up to
// a quarter longer); the next RPC dials again. A cache lets go of the target.
// Default: 30 minutes. 0: never.
func WithIdleTimeout(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("WithIdleTimeout: %v, want 0 (never) or more", d)
		}
		c.idleTimeout = d
		return nil
	})
}

// WithConnectTimeout bounds one connection attempt, handshake and HTTP/2
// settings included (grpc's MinConnectTimeout). An RPC waits at most this long
// for its turn in the backoff, and then fails. Default: 20 s.
func WithConnectTimeout(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("WithConnectTimeout: %v, want more than zero", d)
		}
		c.connectTimeout = d
		return nil
	})
}

// WithMaxAge replaces a connection, make-before-break, when it is between
// 90 % and 100 % of d old, at random, so that backends that were added behind
// a load balancer get their share. Default: 0, never.
func WithMaxAge(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("WithMaxAge: %v, want 0 (never) or more", d)
		}
		c.maxAge = d
		return nil
	})
}

// WithMaxTargets bounds the targets that a Cache holds; the least recently
// used beyond it drains, and dials again if one of its handles is used.
// Default: 0, no limit (idle targets go by WithIdleTimeout). New ignores it.
func WithMaxTargets(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 0 {
			return fmt.Errorf("WithMaxTargets: %d, want 0 (no limit) or more", n)
		}
		c.maxTargets = n
		return nil
	})
}

// WithConnections sets how many connections one target has at least, once it
// is in use, and at most. Another is opened when an RPC waits for a stream
// because the server's limit of concurrent streams is reached; RPCs then go
// to the connection with the fewest. Default: 1, 1.
func WithConnections(minimum, maximum int) Option {
	return optionFunc(func(c *config) error {
		switch {
		case minimum < 1:
			return fmt.Errorf("WithConnections: minimum is %d, want 1 or more", minimum)
		case maximum < minimum:
			return fmt.Errorf("WithConnections: maximum is %d, want at least the minimum of %d", maximum, minimum)
		}
		c.minConns, c.maxConns = minimum, maximum
		return nil
	})
}

// WithKeepalive sets grpc's client keepalive. Default: a ping after six
// minutes without a frame while RPCs run, and 20 s for its answer, which
// servers accept that enforce the usual five minutes. A zero Time turns it
// off.
func WithKeepalive(p keepalive.ClientParameters) Option {
	return optionFunc(func(c *config) error {
		if p.Time < 0 || p.Timeout < 0 {
			return fmt.Errorf("WithKeepalive: Time %v and Timeout %v, want 0 or more", p.Time, p.Timeout)
		}
		c.keepalive = p
		return nil
	})
}

// WithMeterProvider sets where the metrics go. Default: the global provider
// at the time of construction.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return optionFunc(func(c *config) error {
		if mp == nil {
			return errors.New("WithMeterProvider: the provider is nil")
		}
		c.provider = mp
		return nil
	})
}

// WithLogger logs state changes of connections, at Info and, for failed
// attempts, at Warn. Default: nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(c *config) error {
		if l == nil {
			return errors.New("WithLogger: the logger is nil")
		}
		c.logger = l
		return nil
	})
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		backoff:        connectBackoff(),
		threshold:      defaultThreshold,
		retry:          defaultRetryConfig(),
		idleTimeout:    defaultIdleTimeout,
		connectTimeout: defaultConnectTimeout,
		minConns:       1,
		maxConns:       1,
		keepalive:      keepalive.ClientParameters{Time: defaultKeepaliveTime, Timeout: defaultKeepaliveTimeout},
		logger:         slog.New(slog.DiscardHandler),
	}
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("channel: option %d is nil", i+1)
		}
		if err := o.apply(c); err != nil {
			return nil, fmt.Errorf("channel: %w", err)
		}
	}
	if c.provider == nil {
		c.provider = otel.GetMeterProvider()
	}
	c.dial = append(c.dial,
		grpc.WithConnectParams(grpc.ConnectParams{
			// What grpc-go does by itself while RPCs are bound to a connection
			// that can't be made. It spreads a delay over d·(1±jitter). Not
			// before a second, so that a failed attempt isn't repeated while
			// its callers fetch their errors.
			Backoff: grpcbackoff.Config{
				BaseDelay:  min(max(c.backoff.Base, time.Second), c.backoff.Max),
				Multiplier: c.backoff.Factor,
				Jitter:     c.backoff.Jitter / (2 - c.backoff.Jitter),
				MaxDelay:   time.Duration(float64(c.backoff.Max) * (1 - c.backoff.Jitter/2)),
			},
			MinConnectTimeout: c.connectTimeout,
		}),
		grpc.WithIdleTimeout(0), // ours closes the whole ClientConn
	)
	if c.keepalive.Time > 0 {
		c.dial = append(c.dial, grpc.WithKeepaliveParams(c.keepalive))
	}
	c.dial = append(c.dial, c.userDial...)
	// Chained last, so innermost: they see each attempt that the user's own
	// interceptors make, with the options that reach grpc.
	c.dial = append(c.dial,
		grpc.WithChainUnaryInterceptor(interceptUnary),
		grpc.WithChainStreamInterceptor(interceptStream),
	)
	// What is wrong with the dial options for every target shows here.
	if err := tryDial("passthrough:///check", c.dial); err != nil {
		return nil, fmt.Errorf("channel: dial options: %w", err)
	}
	return c, nil
}

// tryDial reports what grpc.NewClient, which does no I/O, has against the
// target or the options.
func tryDial(target string, dial []grpc.DialOption) error {
	cc, err := grpc.NewClient(target, dial...)
	if err != nil {
		return err
	}
	return cc.Close()
}

// alwaysHeader reports whether every RPC has to read the response header.
func (c *config) alwaysHeader() bool { return c.classifier != nil || c.threshold == 1 }
