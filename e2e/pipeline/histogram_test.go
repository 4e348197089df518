package pipeline_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/otelproto/otelproto-go/e2e/pipeline"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// key is what tells apart the histograms that are compared; attributes beyond it are summed over.
type key struct {
	Metric, Method, Direction, Type, Variant, Retry string
}

// histogram is a size histogram, whoever reports it. Counts has one more than the default bounds.
type histogram struct {
	Count, Sum uint64
	Counts     []uint64
}

type histograms map[key]histogram

func (h histograms) add(k key, o histogram) {
	sum := h[k]
	if sum.Counts == nil {
		sum.Counts = make([]uint64, len(o.Counts))
	}

	sum.Count += o.Count
	sum.Sum += o.Sum

	for i, n := range o.Counts {
		sum.Counts[i] += n
	}

	h[k] = sum
}

// ofRows gives what a registry counted, under the names of the metrics.
func ofRows(rows []stats.Row) histograms {
	all := make(histograms)

	for _, r := range rows {
		side := "server"
		if r.Client {
			side = "client"
		}

		k := key{Method: r.Key.Method, Direction: r.Key.Direction.String(), Type: r.Key.Type, Variant: r.Key.Variant}
		if r.Key.Retry {
			k.Retry = "true"
		}

		for metric, h := range map[string]stats.Histogram{"wire_size": r.Wire, "size": r.Size} {
			k.Metric = "otelproto." + side + ".message." + metric
			all.add(k, histogram{r.Messages, h.Sum, h.Counts})
		}
	}

	return all
}

// ofBackend asks the backend for everything of one instance of a service, in one query. No instance stands for all.
func ofBackend(ctx context.Context, b *pipeline.Backend, instance string) (histograms, error) {
	labels := `__name__=~"otelproto_(client|server)_message_(wire_)?size_bytes_(count|sum|bucket)"`
	if instance != "" {
		labels += fmt.Sprintf(",%s=%q", b.Instance, instance)
	}

	samples, err := b.Query(ctx, "last_over_time({"+labels+"}[1h])")
	if err != nil {
		return nil, err
	}

	bounds := otelproto.DefaultBuckets()
	all := make(histograms)

	for _, s := range samples {
		name := s.Labels["__name__"]
		metric, part := name[:strings.LastIndexByte(name, '_')], name[strings.LastIndexByte(name, '_')+1:]
		k := key{
			Metric: strings.NewReplacer("otelproto_client_", "otelproto.client.", "otelproto_server_", "otelproto.server.",
				"message_", "message.", "_bytes", "").Replace(metric),
			Method: s.Labels["rpc_method"], Direction: s.Labels["network_io_direction"],
			Type: s.Labels["otelproto_message_type"], Variant: s.Labels["otelproto_message_variant"],
			Retry: s.Labels["otelproto_rpc_retry"],
		}
		h := histogram{Counts: make([]uint64, len(bounds)+1)}

		switch part {
		case "count":
			h.Count = uint64(s.Value)
		case "sum":
			h.Sum = uint64(s.Value)
		case "bucket": // at most le
			i := len(bounds)

			if le := s.Labels["le"]; le != "+Inf" {
				bound, err := strconv.ParseFloat(le, 64)
				if err != nil {
					return nil, err
				}

				if i = slices.Index(bounds, bound); i < 0 {
					return nil, fmt.Errorf("%s has a bound %s", name, le)
				}
			}

			h.Counts[i] += uint64(s.Value)
			if i < len(bounds) {
				h.Counts[i+1] -= uint64(s.Value) // of the sum, everything up to the bound below
			}
		}

		all.add(k, h)
	}

	return all, nil
}

// point is a data point of a histogram in OTLP's JSON.
type point struct {
	Attributes []struct {
		Key   string
		Value struct {
			StringValue, IntValue string
			BoolValue             bool
		}
	}
	StartTimeUnixNano, TimeUnixNano string
	Count                           string
	Sum                             float64
	BucketCounts                    []string
	ExplicitBounds                  []float64
	Exemplars                       []struct{ TraceID, SpanID, AsInt string }
}

// export is a line of the collector's file.
type export struct {
	ResourceMetrics []struct {
		ScopeMetrics []struct {
			Scope   struct{ Name string }
			Metrics []struct {
				Name, Unit string
				Histogram  *struct {
					AggregationTemporality int
					DataPoints             []point
				}
			}
		}
	}
}

// Values of OTLP's AggregationTemporality.
const (
	delta      = 1
	cumulative = 2
)

// required and optional are the attributes of docs/metrics.md, and those that examples/compute adds.
var (
	required = []string{"network.io.direction", "otelproto.message.type", "rpc.method", "rpc.system.name"}
	optional = []string{
		"otelproto.message.variant", "otelproto.rpc.retry", "server.address", "server.port", "compute.replica", "compute.process",
		"network.peer.address", "network.peer.port", "network.local.port",
	}
)

// ofFile reads what the collector wrote, checks each point against the contract and gives the sums of what was exported: the last
// value of cumulative series, the sum of delta series.
func ofFile(t *testing.T, path string, temporality int) (all histograms, exemplars int) {
	t.Helper()

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	type series struct {
		k          key
		attrs      string
		start, end uint64
		h          histogram
	}

	found := make(map[string]*series)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)

	for lines.Scan() {
		var e export
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil { //nolint:musttag // OTLP's names differ in the case only
			t.Fatal(err)
		}

		for _, rm := range e.ResourceMetrics {
			for _, sm := range rm.ScopeMetrics {
				for _, m := range sm.Metrics {
					if !strings.HasSuffix(m.Name, ".message.size") && !strings.HasSuffix(m.Name, ".message.wire_size") {
						continue
					}

					if m.Unit != "By" || m.Histogram == nil || m.Histogram.AggregationTemporality != temporality {
						t.Fatalf("%s: unit %q, %+v", m.Name, m.Unit, m.Histogram)
					}

					for _, p := range m.Histogram.DataPoints {
						k, attrs := p.key(t, m.Name)
						s := &series{k, attrs, p.number(t, p.StartTimeUnixNano), p.number(t, p.TimeUnixNano), p.histogram(t)}
						exemplars += len(p.Exemplars)

						if s.start == 0 || s.start > s.end {
							t.Errorf("%s: from %d to %d", m.Name, s.start, s.end)
						}

						id := m.Name + attrs
						before := found[id]

						switch {
						case before == nil:
						case temporality == cumulative && s.start != before.start:
							t.Errorf("%s{%s} starts anew", m.Name, attrs)
						case temporality == delta && s.start < before.end:
							t.Errorf("%s{%s} from %d overlaps what ended %d", m.Name, attrs, s.start, before.end)
						case temporality == delta:
							sum := histograms{s.k: s.h}
							sum.add(s.k, before.h)
							s.h = sum[s.k]
						}

						found[id] = s
					}
				}
			}
		}
	}

	all = make(histograms)
	for _, s := range found {
		all.add(s.k, s.h)
	}

	return all, exemplars
}

func (p point) number(t *testing.T, text string) uint64 {
	t.Helper()

	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	return n
}

func (p point) histogram(t *testing.T) histogram {
	t.Helper()

	if !slices.Equal(p.ExplicitBounds, otelproto.DefaultBuckets()) {
		t.Errorf("bounds %v", p.ExplicitBounds)
	}

	h := histogram{Count: p.number(t, p.Count), Sum: uint64(p.Sum)}
	for _, c := range p.BucketCounts {
		h.Counts = append(h.Counts, p.number(t, c))
	}

	return h
}

func (p point) key(t *testing.T, metric string) (k key, attrs string) {
	t.Helper()

	values := make(map[string]string)

	for _, a := range p.Attributes {
		values[a.Key] = a.Value.StringValue + a.Value.IntValue
		if a.Value.BoolValue {
			values[a.Key] = "true"
		}

		if !slices.Contains(required, a.Key) && !slices.Contains(optional, a.Key) {
			t.Errorf("%s has the attribute %s", metric, a.Key)
		}
	}

	for _, r := range required {
		if values[r] == "" {
			t.Errorf("%s has no %s", metric, r)
		}
	}

	return key{
		metric, values["rpc.method"], values["network.io.direction"],
		values["otelproto.message.type"], values["otelproto.message.variant"], values["otelproto.rpc.retry"],
	}, fmt.Sprint(values)
}
