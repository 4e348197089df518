package broadcast_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/otelproto/otelproto-go/broadcast"
)

func collect(t *testing.T, reader sdkmetric.Reader) (metrics []metricdata.Metrics) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	for _, scope := range rm.ScopeMetrics {
		if scope.Scope.Name != broadcast.ScopeName {
			t.Errorf("scope %q, want %q", scope.Scope.Name, broadcast.ScopeName)
		}
		metrics = append(metrics, scope.Metrics...)
	}
	return metrics
}

func TestTheMetricsFollowTheContract(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	topic := topicOf(t, broadcast.Options[int]{
		Window: 4, Name: "completions",
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	near, far := topic.Subscribe(t.Context()), topic.Subscribe(t.Context())
	cancelled, cancel := context.WithCancel(t.Context())
	gone := topic.Subscribe(cancelled)
	publishTo(t, topic, 10)
	wantResync(t, near, 1, 7)
	wantEvents(t, near, 7, 10)
	wantResync(t, far, 1, 7)
	cancel()

	attributes := attribute.NewSet(attribute.String("otelproto.broadcast.topic", "completions"))
	point := func(v int64) []metricdata.DataPoint[int64] {
		return []metricdata.DataPoint[int64]{{Attributes: attributes, Value: v}}
	}
	sum := func(v int64, monotonic bool) metricdata.Aggregation {
		return metricdata.Sum[int64]{Temporality: metricdata.CumulativeTemporality, IsMonotonic: monotonic, DataPoints: point(v)}
	}
	want := map[string]metricdata.Metrics{
		"otelproto.broadcast.published":   {Unit: "{event}", Data: sum(10, true)},
		"otelproto.broadcast.subscribers": {Unit: "{subscriber}", Data: sum(2, false)},
		"otelproto.broadcast.lag":         {Unit: "{event}", Data: metricdata.Gauge[int64]{DataPoints: point(4)}},
		"otelproto.broadcast.resyncs":     {Unit: "{resync}", Data: sum(2, true)},
	}
	got := collect(t, reader)
	if len(got) != len(want) {
		t.Errorf("%d metrics, want %d", len(got), len(want))
	}
	for _, m := range got {
		w := want[m.Name]
		w.Name, w.Description = m.Name, m.Description
		if m.Description == "" {
			t.Errorf("%s has no description", m.Name)
		}
		metricdatatest.AssertEqual(t, w, m, metricdatatest.IgnoreTimestamp())
	}
	gone.Close()

	topic.Close(nil)
	if got := collect(t, reader); len(got) != 0 {
		t.Errorf("a closed topic still exports %d metrics", len(got))
	}
}

type refusing struct{ noop.MeterProvider }

type refusingMeter struct{ noop.Meter }

var errRefused = errors.New("refused")

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

func (refusingMeter) Int64ObservableGauge(string, ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	return nil, errRefused
}

func TestAMeterProviderThatRefusesIsAnError(t *testing.T) {
	if _, err := broadcast.New(broadcast.Options[int]{MeterProvider: refusing{}}); !errors.Is(err, errRefused) {
		t.Errorf("New = %v, want the error of the meter", err)
	}
}

func TestStatsShowTheSlowestSubscriber(t *testing.T) {
	topic := topicOf(t, broadcast.Options[int]{Window: 100})
	if diff := cmp.Diff(broadcast.Stats{Oldest: 1}, topic.Stats()); diff != "" {
		t.Errorf("of an unused topic (-want +got):\n%s", diff)
	}
	fast, slow := topic.Subscribe(t.Context()), topic.Subscribe(t.Context())
	publishTo(t, topic, 150)
	wantResync(t, fast, 1, 51)
	wantEvents(t, fast, 51, 150)
	want := broadcast.Stats{Published: 150, Newest: 150, Oldest: 51, Subscribers: 2, Lag: 150, Slowest: 0, Resyncs: 1}
	if diff := cmp.Diff(want, topic.Stats()); diff != "" {
		t.Errorf("with a slow one (-want +got):\n%s", diff)
	}
	slow.Close()
	want.Subscribers, want.Lag, want.Slowest = 1, 0, 150
	if diff := cmp.Diff(want, topic.Stats()); diff != "" {
		t.Errorf("without it (-want +got):\n%s", diff)
	}
}
