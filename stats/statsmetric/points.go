package statsmetric

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelproto/otelproto-go/internal/semattr"
	"github.com/otelproto/otelproto-go/stats"
)

// rowID names a row of a reading.
type rowID struct {
	client bool
	server string
	key    stats.Key
}

func idOf(r *stats.Row) rowID { return rowID{r.Client, r.Server, r.Key} }

// keyAttributes has the attributes of rows, of which a registry has a limited number.
type keyAttributes struct {
	byRow map[rowID]*keyAttribute
	bySet map[sideSet]*keyAttribute
	// found is set when rows that share a set are found: the first of them may have a point already.
	found bool
}

type keyAttribute struct {
	attrs []attribute.KeyValue
	// set has them too.
	set attribute.Set
	// shared says that several rows have this set, because an attribute keeps less of a name than the registry does.
	shared bool
}

// sideSet names a series of a metric.
type sideSet struct {
	client bool
	set    attribute.Distinct
}

func newKeyAttributes() *keyAttributes {
	return &keyAttributes{byRow: make(map[rowID]*keyAttribute), bySet: make(map[sideSet]*keyAttribute)}
}

func (k *keyAttributes) of(r *stats.Row) *keyAttribute {
	id := idOf(r)
	if a := k.byRow[id]; a != nil {
		return a
	}

	attrs := semattr.Message(r.Key)
	if r.Client {
		attrs = append(attrs, semattr.Server(r.Server)...)
	}

	sortAttributes(attrs)
	set := attribute.NewSet(slices.Clone(attrs)...)
	name := sideSet{r.Client, set.Equivalent()}

	a := k.bySet[name]
	if a == nil {
		a = &keyAttribute{attrs: attrs, set: set}
		k.bySet[name] = a
	} else {
		a.shared, k.found = true, true
	}

	k.byRow[id] = a

	return a
}

// points collects the data points of one export.
type points struct {
	delta bool
	attrs *keyAttributes
	time  time.Time
	last  time.Time
	start time.Time
	// bounds is a copy, since an exporter may do with it as it likes.
	bounds []float64

	// By side: a server's at 0, a client's at 1.
	wire, size   [2][]metricdata.HistogramDataPoint[int64]
	expected     [2]int
	io, overhead []metricdata.DataPoint[int64]
	live         int
	// shared has the places of the points to which other rows may have to be added.
	shared map[sideSet]int
	buffer []attribute.KeyValue
}

func newPoints(delta bool, attrs *keyAttributes, r *stats.Reading) *points {
	attrs.found = false

	return &points{delta: delta, attrs: attrs, time: r.Time, last: r.Last, start: r.Start, live: r.Live}
}

// row adds the points of a row, with the attributes of its key and more. Its counts are handed on.
func (b *points) row(r *stats.Row, start time.Time, more ...attribute.KeyValue) {
	key := b.attrs.of(r)
	set := key.set

	if len(more) > 0 {
		set = b.join(key.attrs, more)
	}

	if key.shared && b.merged(r, set) {
		return
	}

	if b.bounds == nil {
		b.bounds = slices.Clone(r.Wire.Bounds)
	}

	side := sideOf(r)

	wire, size := b.histogram(r.Wire, set, start), b.histogram(r.Size, set, start)
	if e := r.Exemplar; e != nil {
		wire.Exemplars, size.Exemplars = exemplar(e, e.Wire), exemplar(e, e.Size)
	}

	if b.wire[side] == nil {
		b.wire[side] = make([]metricdata.HistogramDataPoint[int64], 0, b.expected[side])
		b.size[side] = make([]metricdata.HistogramDataPoint[int64], 0, b.expected[side])
	}

	b.wire[side] = append(b.wire[side], wire)
	b.size[side] = append(b.size[side], size)
}

// join makes a set of two lists that are sorted and have no key in common. Most of an export per connection is this, and a
// set is made of a sorted list in half the time.
func (b *points) join(one, two []attribute.KeyValue) attribute.Set {
	b.buffer = b.buffer[:0]

	for len(one) > 0 && len(two) > 0 {
		if one[0].Key < two[0].Key {
			b.buffer, one = append(b.buffer, one[0]), one[1:]
		} else {
			b.buffer, two = append(b.buffer, two[0]), two[1:]
		}
	}

	b.buffer = append(append(b.buffer, one...), two...)

	return attribute.NewSet(b.buffer...)
}

func sortAttributes(attrs []attribute.KeyValue) {
	slices.SortFunc(attrs, func(a, b attribute.KeyValue) int { return cmp.Compare(a.Key, b.Key) })
}

// expect makes room for points.
func (b *points) expect(rows []stats.Row) {
	for i := range rows {
		b.expected[sideOf(&rows[i])]++
	}
}

// merged adds a row to the points that have the same attributes, if there are any in this export.
func (b *points) merged(r *stats.Row, set attribute.Set) bool {
	side, name := sideOf(r), sideSet{r.Client, set.Equivalent()}

	at, ok := b.shared[name]
	if !ok {
		if b.shared == nil {
			b.shared = make(map[sideSet]int)
		}

		at = -1
		if b.attrs.found {
			at = slices.IndexFunc(b.wire[side], func(p metricdata.HistogramDataPoint[int64]) bool {
				return p.Attributes.Equivalent() == set.Equivalent()
			})
		}

		if at < 0 {
			b.shared[name] = len(b.wire[side])

			return false
		}

		b.shared[name] = at
	}

	addHistogram(&b.wire[side][at], r.Wire)
	addHistogram(&b.size[side][at], r.Size)

	return true
}

func addHistogram(p *metricdata.HistogramDataPoint[int64], h stats.Histogram) {
	p.Count += h.Count()
	p.Sum += int64(h.Sum)
	p.BucketCounts = slices.Clone(p.BucketCounts) // they may be those of a reading that is kept

	for i, n := range h.Counts {
		p.BucketCounts[i] += n
	}
}

func sideOf(r *stats.Row) int {
	if r.Client {
		return 1
	}

	return 0
}

func (b *points) histogram(h stats.Histogram, set attribute.Set, start time.Time) metricdata.HistogramDataPoint[int64] {
	return metricdata.HistogramDataPoint[int64]{
		Attributes: set, StartTime: start, Time: b.time,
		Count: h.Count(), Sum: int64(h.Sum), Bounds: b.bounds, BucketCounts: h.Counts,
	}
}

func exemplar(e *stats.Exemplar, value uint64) []metricdata.Exemplar[int64] {
	trace, span := e.TraceID, e.SpanID

	return []metricdata.Exemplar[int64]{{Time: e.Time, Value: int64(value), TraceID: trace[:], SpanID: span[:]}}
}

// socketPoints are what was exported of a socket, or of all.
type socketPoints struct {
	// By direction.
	io, overhead [2]uint64
	exported     bool
}

// sockets adds the points of sockets. s is what was exported before.
func (b *points) sockets(now stats.Sockets, s *socketPoints, start time.Time, attrs ...attribute.KeyValue) {
	if now == (stats.Sockets{}) && !s.exported {
		return
	}

	s.exported = true
	before := *s
	read, written := now.Overhead()
	s.io[stats.Receive], s.io[stats.Transmit] = now.Read, now.Written
	// While messages are under way the difference may go down, which a counter can't.
	s.overhead[stats.Receive] = max(s.overhead[stats.Receive], read)
	s.overhead[stats.Transmit] = max(s.overhead[stats.Transmit], written)

	for _, d := range []stats.Direction{stats.Transmit, stats.Receive} {
		set := attribute.NewSet(append(slices.Clone(attrs), semattr.Direction(d))...)

		b.io = b.count(b.io, set, start, s.io[d], before.io[d])
		b.overhead = b.count(b.overhead, set, start, s.overhead[d], before.overhead[d])
	}
}

func (b *points) count(
	to []metricdata.DataPoint[int64], set attribute.Set, start time.Time, now, before uint64,
) []metricdata.DataPoint[int64] {
	if b.delta {
		if now == before {
			return to
		}

		now -= before
	}

	return append(to, metricdata.DataPoint[int64]{Attributes: set, StartTime: start, Time: b.time, Value: int64(now)})
}

// metrics gives all that has points.
func (b *points) metrics() []metricdata.Metrics {
	temporality := metricdata.CumulativeTemporality
	if b.delta {
		temporality = metricdata.DeltaTemporality
	}

	var all []metricdata.Metrics

	for side, names := range [2]struct{ wire, size string }{
		{"otelproto.server.message.wire_size", "otelproto.server.message.size"},
		{"otelproto.client.message.wire_size", "otelproto.client.message.size"},
	} {
		if len(b.wire[side]) == 0 {
			continue
		}

		all = append(all, metricdata.Metrics{
			Name: names.wire, Unit: "By",
			Description: "Size of each message on the wire: compressed payload and gRPC's 5-byte prefix.",
			Data:        metricdata.Histogram[int64]{DataPoints: b.wire[side], Temporality: temporality},
		}, metricdata.Metrics{
			Name: names.size, Unit: "By",
			Description: "Size of each message uncompressed, without prefix.",
			Data:        metricdata.Histogram[int64]{DataPoints: b.size[side], Temporality: temporality},
		})
	}

	counter := func(name, description string, data []metricdata.DataPoint[int64]) {
		if len(data) > 0 {
			all = append(all, metricdata.Metrics{
				Name: name, Unit: "By", Description: description,
				Data: metricdata.Sum[int64]{DataPoints: data, Temporality: temporality, IsMonotonic: true},
			})
		}
	}

	counter("otelproto.connection.io", "Bytes that the sockets carried.", b.io)
	counter("otelproto.connection.overhead", "Bytes of the sockets less the messages' wire bytes: headers, frames, TLS.", b.overhead)

	// A number of live things is a total at any time; its change would be of no use. The SDK's selectors say so too.
	return append(all, metricdata.Metrics{
		Name: "otelproto.connections", Unit: "{connection}", Description: "Live connections.",
		Data: metricdata.Sum[int64]{
			DataPoints:  []metricdata.DataPoint[int64]{{StartTime: b.start, Time: b.time, Value: int64(b.live)}},
			Temporality: metricdata.CumulativeTemporality,
		},
	})
}
