package channel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// ScopeName is the instrumentation scope of the package's metrics.
const ScopeName = "github.com/otelproto/otelproto-go/channel"

// Values of otelproto.channel.reason.
const (
	reasonProxyUnavailable = "proxy_unavailable"
	reasonClosed           = "closed"
	reasonIdle             = "idle"
	reasonMaxTargets       = "max_targets"
	reasonForgotten        = "forgotten"
	reasonMaxAge           = "max_age"

	reasonNeverSent  = "never_sent"
	reasonIdempotent = "idempotent"
)

const (
	keyAddress attribute.Key = "server.address"
	keyState   attribute.Key = "otelproto.channel.state"
	keyReason  attribute.Key = "otelproto.channel.reason"
	keyError   attribute.Key = "error.type"
	keyMethod  attribute.Key = "rpc.method"
)

// instruments are those of one Cache or one Conn from New. What changes with
// every RPC is observed from the counts that exist anyway, so an RPC records
// nothing.
type instruments struct {
	invalidations metric.Int64Counter
	duration      metric.Float64Histogram
	retries       metric.Int64Counter
	registration  metric.Registration
}

func newInstruments(mp metric.MeterProvider, each func(func(*core))) (*instruments, error) {
	m := mp.Meter(ScopeName)
	var errs [6]error
	in := &instruments{}
	in.invalidations, errs[0] = m.Int64Counter("otelproto.channel.invalidations",
		metric.WithUnit("{invalidation}"), metric.WithDescription("Connections that were let go of."))
	in.duration, errs[1] = m.Float64Histogram("otelproto.channel.connect.duration",
		metric.WithUnit("s"), metric.WithDescription("Time from the start of a connection attempt to its outcome."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30))
	in.retries, errs[2] = m.Int64Counter("otelproto.channel.retries",
		metric.WithUnit("{retry}"), metric.WithDescription("RPCs that were sent again."))
	generations, err := m.Int64ObservableUpDownCounter("otelproto.channel.generations",
		metric.WithUnit("{connection}"), metric.WithDescription("Connections, by whether they take RPCs or drain."))
	errs[3] = err
	outstanding, err := m.Int64ObservableUpDownCounter("otelproto.channel.outstanding",
		metric.WithUnit("{rpc}"), metric.WithDescription("RPCs under way on connections."))
	errs[4] = err
	in.registration, errs[5] = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for address, c := range count(each) {
			a := keyAddress.String(address)
			o.ObserveInt64(generations, c.active, metric.WithAttributes(a, keyState.String("active")))
			o.ObserveInt64(generations, c.draining, metric.WithAttributes(a, keyState.String("draining")))
			o.ObserveInt64(outstanding, c.outstanding, metric.WithAttributes(a))
		}
		return nil
	}, generations, outstanding)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("channel: instruments: %w", err)
	}
	return in, nil
}

type counts struct{ active, draining, outstanding int64 }

// count sums over the targets of one address, which would otherwise observe
// the same series more than once.
func count(each func(func(*core))) map[string]counts {
	sums := make(map[string]counts)
	each(func(co *core) {
		address := serverAddress(co.target)
		c := sums[address]
		co.mu.Lock()
		for g := range co.all {
			switch {
			case g.draining():
				c.draining++
			case co.currentLocked(g):
				c.active++
			}
			c.outstanding += g.outstanding()
		}
		co.mu.Unlock()
		sums[address] = c
	})
	return sums
}

func (in *instruments) invalidated(co *core, reason string) {
	in.invalidations.Add(context.Background(), 1, co.attrs, metric.WithAttributes(keyReason.String(reason)))
}

func (in *instruments) retried(co *core, method, reason string) {
	in.retries.Add(context.Background(), 1, co.attrs,
		metric.WithAttributes(keyMethod.String(method), keyReason.String(reason)))
}

func (in *instruments) connected(co *core, took time.Duration, ok, cancelled bool) {
	opts := []metric.RecordOption{co.attrs}
	switch {
	case ok:
	case cancelled:
		opts = append(opts, metric.WithAttributes(keyError.String("cancelled")))
	default:
		opts = append(opts, metric.WithAttributes(keyError.String("unavailable")))
	}
	in.duration.Record(context.Background(), took.Seconds(), opts...)
}

func (in *instruments) close() error {
	if err := in.registration.Unregister(); err != nil {
		return fmt.Errorf("channel: unregister metrics: %w", err)
	}
	return nil
}

func addressOption(target string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(keyAddress.String(serverAddress(target))))
}

// serverAddress is the host of a target; of a socket path or a name without
// a port, all of it.
func serverAddress(target string) string {
	endpoint := target
	if scheme, rest, ok := strings.Cut(target, ":"); ok {
		switch {
		case strings.HasPrefix(rest, "//"):
			_, endpoint, _ = strings.Cut(rest[2:], "/")
		case scheme == "unix" || scheme == "unix-abstract" || scheme == "dns" || scheme == "passthrough":
			endpoint = rest
		}
		if scheme == "unix" && strings.HasPrefix(rest, "//") {
			endpoint = "/" + endpoint
		}
	}
	if host, _, err := net.SplitHostPort(endpoint); err == nil && host != "" {
		return host
	}
	return endpoint
}
