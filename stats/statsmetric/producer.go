package statsmetric

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/otelproto/otelproto-go/stats"
)

// ScopeName is the name of the instrumentation scope. Its version is that of this module, where the build tells it.
const ScopeName = "github.com/otelproto/otelproto-go/stats/statsmetric"

const modulePath = "github.com/otelproto/otelproto-go"

var errNilRegistry = errors.New("statsmetric: NewProducer: nil, expected a registry")

// Producer gives the metrics of a registry to readers of the SDK. Make it with [NewProducer]; its methods are safe for
// concurrent use.
type Producer struct {
	delta  bool
	reader *stats.Reader
	// empty has the scope and no metrics. The scope is of a type whose module this one doesn't require by itself.
	empty metricdata.ScopeMetrics

	// mu guards the fields below. It is held while the registry is read.
	mu     sync.Mutex
	closed bool
	attrs  *keyAttributes
	// Exactly one of the two is set.
	summed  *summed
	perConn *perConn
}

var _ metric.Producer = (*Producer)(nil)

// NewProducer makes a producer for go.opentelemetry.io/otel/sdk/metric.WithProducer: summed and cumulative by default. One producer
// belongs to one reader of the SDK. Without a registry it reports that to [otel.Handle] and produces nothing.
func NewProducer(reg *stats.Registry, opts ...Option) *Producer {
	var c config

	for _, o := range opts {
		if o != nil {
			o.apply(&c)
		}
	}

	p := &Producer{
		delta: c.delta,
		attrs: newKeyAttributes(),
	}

	p.empty.Scope.Name, p.empty.Scope.Version, p.empty.Scope.SchemaURL = ScopeName, version(), semconv.SchemaURL

	switch {
	case reg == nil:
		otel.Handle(errNilRegistry)

		p.closed = true
	case c.perConn:
		p.reader, p.perConn = reg.NewConnReader(), newPerConn()
		// The SDK has no Close for producers. In a goroutine, because it may wait for a snapshot that is under way.
		runtime.AddCleanup(p, func(rd *stats.Reader) { go rd.Close() }, p.reader)
	default:
		p.reader, p.summed = reg.NewReader(), newSummed()
	}

	return p
}

// Produce reads the registry. It takes as long as there are series to read and doesn't look at ctx in between; what it has read
// of closed connections is not read again, so a context that is done gives its error before anything is read.
func (p *Producer) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if p.closed {
		return nil, nil
	}

	reading := p.reader.Read()
	b := newPoints(p.delta, p.attrs, &reading)

	if p.perConn != nil {
		p.perConn.produce(b, &reading)
	} else {
		p.summed.produce(b, &reading)
	}

	produced := p.empty
	produced.Metrics = b.metrics()

	return []metricdata.ScopeMetrics{produced}, nil
}

// Close ends the producer: it produces nothing any more, and the registry keeps nothing for it. It waits for a Produce that
// is under way and may be called more than once.
func (p *Producer) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !p.closed {
		p.closed = true
		p.reader.Close()
	}
}

// version is this module's version in the program's build; empty where it is not known.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}

	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "(devel)" {
			return m.Version
		}
	}

	return ""
}
