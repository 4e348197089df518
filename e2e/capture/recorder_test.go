package capture_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// recorder is a MeterProvider that keeps every message whose two sizes a handler records.
type recorder struct {
	noop.MeterProvider

	mu sync.Mutex
	// wire has the wire sizes whose size hasn't come yet: the messages of an attempt come one by one in each direction.
	wire     map[attempt]int64
	messages []message
	faults   []string
}

type attempt struct {
	ctx   context.Context
	attrs attribute.Distinct
}

func (r *recorder) Meter(string, ...metric.MeterOption) metric.Meter { return recordingMeter{r: r} }

type recordingMeter struct {
	noop.Meter

	r *recorder
}

func (m recordingMeter) Int64Histogram(name string, _ ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return recordingHistogram{r: m.r, name: name}, nil
}

type recordingHistogram struct {
	noop.Int64Histogram

	r    *recorder
	name string
}

func (h recordingHistogram) Record(ctx context.Context, n int64, opts ...metric.RecordOption) {
	attrs := metric.NewRecordConfig(opts).Attributes()
	key := attempt{ctx, attrs.Equivalent()}

	h.r.mu.Lock()
	defer h.r.mu.Unlock()

	wire, half := h.r.wire[key]

	switch client := strings.HasPrefix(h.name, "otelproto.client."); {
	case strings.HasSuffix(h.name, ".message.wire_size") && !half:
		if h.r.wire == nil {
			h.r.wire = make(map[attempt]int64)
		}

		h.r.wire[key] = n
	case strings.HasSuffix(h.name, ".message.size") && half:
		delete(h.r.wire, key)
		h.r.messages = append(h.r.messages, newMessage(client, attrs, wire, n))
	default:
		h.r.faults = append(h.r.faults, fmt.Sprintf("%s: %d out of turn", h.name, n))
	}
}

func newMessage(client bool, attrs attribute.Set, wire, size int64) message {
	get := func(k attribute.Key) string {
		v, ok := attrs.Value(k)
		if !ok {
			return ""
		}

		return v.AsString()
	}

	return message{
		Method: get("rpc.method"), Request: client == (get("network.io.direction") == "transmit"),
		Type: get("otelproto.message.type"), Variant: get("otelproto.message.variant"),
		Wire: int(wire), Size: int(size), Compressed: wire != size+5,
	}
}

// seen gives what was recorded up to now.
func (r *recorder) seen() ([]message, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	return append([]message{}, r.messages...), append([]string{}, r.faults...)
}
