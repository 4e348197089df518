package traffic_test

import (
	"slices"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelproto/otelproto-go/e2e/traffic"
	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

func TestTheTrafficFeedsEveryMetricOfChannelAndTopic(t *testing.T) {
	reg := stats.NewRegistry()
	reader := sdkmetric.NewManualReader(sdkmetric.WithProducer(statsmetric.NewProducer(reg)))
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))

	app, err := traffic.Start(t.Context(), traffic.Options{Registry: reg, MeterProvider: provider})
	if err != nil {
		t.Fatal(err)
	}

	for n := range 60 {
		if err := app.Step(t.Context(), n); err != nil {
			t.Fatal(err)
		}

		if n%20 == 19 {
			if err := app.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}

	var (
		all   metricdata.ResourceMetrics
		names []string
	)

	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}

	for _, sm := range all.ScopeMetrics {
		for _, m := range sm.Metrics {
			names = append(names, m.Name)
		}
	}

	for _, want := range []string{
		"otelproto.client.message.size", "otelproto.server.message.wire_size",
		"otelproto.connection.io", "otelproto.connection.overhead", "otelproto.connections",
		"otelproto.channel.generations", "otelproto.channel.invalidations", "otelproto.channel.connect.duration",
		"otelproto.channel.outstanding", "otelproto.channel.retries",
		"otelproto.broadcast.published", "otelproto.broadcast.subscribers", "otelproto.broadcast.lag", "otelproto.broadcast.resyncs",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s among %q", want, names)
		}
	}

	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
}
