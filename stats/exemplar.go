package stats

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Exemplar is one message of a [Row], recorded in a sampled span.
type Exemplar struct {
	// Time is when it was recorded.
	Time time.Time
	// Wire and Size are its bytes on the wire and uncompressed.
	Wire, Size uint64
	// TraceID and SpanID name the span.
	TraceID trace.TraceID
	SpanID  trace.SpanID
}

// observe keeps a message if it is the largest of a sampled span since the last reading.
func (s *Series) observe(ctx context.Context, wire, size int) {
	r := s.row.registry

	for {
		current := s.exemplar.Load()
		if current != nil && uint64(size) <= current.Size && r.fresh(current) {
			return
		}

		span := trace.SpanContextFromContext(ctx)
		if !span.IsValid() || !span.IsSampled() {
			return
		}

		e := &Exemplar{
			Time: time.Now(), Wire: uint64(wire), Size: uint64(size), TraceID: span.TraceID(), SpanID: span.SpanID(),
		}
		if s.exemplar.CompareAndSwap(current, e) {
			return
		}
	}
}
