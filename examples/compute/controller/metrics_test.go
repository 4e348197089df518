package controller_test

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
)

func TestTheGaugesFollowTheInstance(t *testing.T) {
	i := newInstance(t)
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	registration, err := i.Observe(provider)
	if err != nil {
		t.Fatal(err)
	}
	install(t, i, plan(index(), copyTo()))
	collect := func() []metricdata.Metrics {
		t.Helper()
		var got metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.ScopeMetrics) == 0 {
			return nil
		}
		return got.ScopeMetrics[0].Metrics
	}
	gauge := func(name, unit, description string, value int64) metricdata.Metrics {
		return metricdata.Metrics{Name: name, Unit: unit, Description: description, Data: metricdata.Gauge[int64]{
			DataPoints: []metricdata.DataPoint[int64]{{
				Attributes: attribute.NewSet(attribute.String("compute.instance", "default")),
				Value:      value,
			}},
		}}
	}
	want := []metricdata.Metrics{
		// create_timely, create_instance, create_dataflow, schedule, allow_writes
		gauge("compute.history.commands", "{command}", "Commands that the instance's history holds", 5),
		gauge("compute.dataflows", "{dataflow}", "Dataflows that the instance maintains", 1),
		gauge("compute.collections", "{collection}", "Collections that the instance's dataflows export", 2),
	}
	got := collect()
	if len(got) != len(want) {
		t.Fatalf("%d metrics, want %d: %v", len(got), len(want), got)
	}
	for n := range want {
		metricdatatest.AssertEqual(t, want[n], got[n], metricdatatest.IgnoreTimestamp())
	}
	if err := registration.Unregister(); err != nil {
		t.Fatal(err)
	}
	if got := collect(); got != nil {
		t.Errorf("after Unregister: %v", got)
	}
}
