package otelproto

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/otelproto/otelproto-go/internal/semattr"
	"github.com/otelproto/otelproto-go/stats"
)

// binder and finisher are what instruments may offer beyond the API: the interfaces Int64HistogramBinder and Finisher of
// go.opentelemetry.io/otel/metric/x v0.69, asserted by shape so that the experimental module isn't needed.
type (
	binder interface {
		Bind(attrs ...attribute.KeyValue) metric.Int64Histogram
	}
	finisher interface {
		Finish(ctx context.Context, attrs ...attribute.KeyValue)
	}
)

// instrumentSink records into two histograms of a MeterProvider.
type instrumentSink struct {
	wire, size metric.Int64Histogram
	connAttrs  []func(ConnInfo) []attribute.KeyValue
	limit      *seriesLimit
	// finish says that series end with their last connection: they have attributes of their own connection,
	// and the instruments can end series.
	finish bool

	// mu guards groups and what the groups say it guards. The instruments are finished while it is held, so that a series
	// that begins again can't be ended by the end of the one before.
	mu     sync.Mutex
	groups map[attribute.Distinct]*group
	// beyond has the series for what is beyond the limit.
	beyond map[stats.Key]*instrumentSeries
}

// group is the connections that add the same attributes to a series, and so share their series.
type group struct {
	sink  *instrumentSink
	attrs attribute.Set
	// conns counts the open connections. Guarded by instrumentSink.mu.
	conns int
	// known has the series that were asked for. Guarded by instrumentSink.mu.
	known map[groupKey]*instrumentSeries
}

type groupKey struct {
	key   stats.Key
	attrs attribute.Distinct
}

func newInstrumentSink(client bool, c config, limit *seriesLimit) *instrumentSink {
	meter := c.meterProvider.Meter(ScopeName, metric.WithSchemaURL(semconv.SchemaURL))

	wire, size := "otelproto.server.message.wire_size", "otelproto.server.message.size"
	if client {
		wire, size = "otelproto.client.message.wire_size", "otelproto.client.message.size"
	}

	s := &instrumentSink{
		connAttrs: c.connAttributes,
		limit:     limit,
		groups:    make(map[attribute.Distinct]*group),
		beyond:    make(map[stats.Key]*instrumentSeries),
		wire:      newHistogram(meter, wire, "Size of each message on the wire: compressed payload and gRPC's 5-byte prefix.", c.buckets),
		size:      newHistogram(meter, size, "Size of each message uncompressed, without prefix.", c.buckets),
	}

	_, ends := s.wire.(finisher)
	s.finish = ends && len(c.connAttributes) > 0

	return s
}

func newHistogram(meter metric.Meter, name, description string, buckets []float64) metric.Int64Histogram {
	h, err := meter.Int64Histogram(name, metric.WithUnit("By"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(buckets...))
	if err != nil {
		otel.Handle(err)
	}

	if h == nil {
		return noop.Int64Histogram{}
	}

	return h
}

func (s *instrumentSink) open(info ConnInfo) sinkConn {
	attrs := serverAttributes(info)
	for _, f := range s.connAttrs {
		attrs = append(attrs, f(info)...)
	}

	set := attribute.NewSet(attrs...)

	s.mu.Lock()
	defer s.mu.Unlock()

	g := s.groups[set.Equivalent()]
	if g == nil {
		g = &group{sink: s, attrs: set, known: make(map[groupKey]*instrumentSeries)}
		s.groups[set.Equivalent()] = g
	}

	g.conns++

	return g
}

// series gives the series of a key. RPC attributes and the connection's can't replace those of the key.
func (g *group) series(k stats.Key, rpc attribute.Set) recorder {
	s := g.sink
	own := append(rpc.ToSlice(), g.attrs.ToSlice()...)
	more := attribute.NewSet(own...)
	id := seriesID{k.Method, k.Type, k.Variant, more.Equivalent()}
	gk := groupKey{k, rpc.Equivalent()}

	s.mu.Lock()
	found := g.known[gk]
	over := found == nil && !s.limit.take(id)

	switch {
	case over:
		found = s.beyondLocked(beyond(k))
	case found == nil:
		found = s.newSeries(append(more.ToSlice(), semattr.Message(k)...))
		found.id = id
		g.known[gk] = found
	}
	s.mu.Unlock()

	if over {
		s.limit.report()
	}

	return found
}

// beyondLocked gives the series for what is beyond the limit. It has no attributes but those of the key: they may be what
// there are too many of.
func (s *instrumentSink) beyondLocked(k stats.Key) *instrumentSeries {
	found := s.beyond[k]
	if found == nil {
		found = s.newSeries(semattr.Message(k))
		s.beyond[k] = found
	}

	return found
}

// close ends a connection.
func (g *group) close() {
	s := g.sink

	s.mu.Lock()
	defer s.mu.Unlock()

	g.conns--
	if g.conns > 0 {
		return
	}

	delete(s.groups, g.attrs.Equivalent())

	if !s.finish {
		return
	}

	for _, series := range g.known {
		series.finish(s)
		s.limit.give(series.id)
	}
}

// instrumentSeries records with a set of attributes that is made once.
type instrumentSeries struct {
	wire, size metric.Int64Histogram
	// opts has the attributes; empty where the instruments are bound to them.
	opts []metric.RecordOption
	set  attribute.Set
	id   seriesID
}

func (s *instrumentSink) newSeries(attrs []attribute.KeyValue) *instrumentSeries {
	set := attribute.NewSet(attrs...)

	wire, isBinder := s.wire.(binder)
	size, areBinders := s.size.(binder)

	if isBinder && areBinders {
		return &instrumentSeries{wire: wire.Bind(set.ToSlice()...), size: size.Bind(set.ToSlice()...), set: set}
	}

	return &instrumentSeries{wire: s.wire, size: s.size, opts: []metric.RecordOption{metric.WithAttributeSet(set)}, set: set}
}

// Record records both sizes. ctx may carry a span, of which the SDK can make an exemplar.
func (s *instrumentSeries) Record(ctx context.Context, wire, size int) {
	s.wire.Record(ctx, int64(wire), s.opts...)
	s.size.Record(ctx, int64(size), s.opts...)
}

func (s *instrumentSeries) finish(sink *instrumentSink) {
	for _, h := range []metric.Int64Histogram{sink.wire, sink.size} {
		if f, ok := h.(finisher); ok {
			f.Finish(context.Background(), s.set.ToSlice()...)
		}
	}
}
