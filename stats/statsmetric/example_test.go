package statsmetric_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

func ExampleNewProducer() {
	registry := stats.NewRegistry()
	// With an exporter it would be a metric.NewPeriodicReader.
	reader := metric.NewManualReader(metric.WithProducer(statsmetric.NewProducer(registry)))
	provider := metric.NewMeterProvider(metric.WithReader(reader))

	conn := registry.Open(stats.ConnInfo{})
	conn.Series(stats.Key{Method: "kv/Put", Direction: stats.Receive, Type: "kv.PutRequest"}).Record(context.Background(), 105, 100)
	conn.Close()

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		fmt.Println(err)
	}

	for _, m := range collected.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name, m.Unit)
	}

	_ = provider.Shutdown(context.Background())
	// Output:
	// otelproto.server.message.wire_size By
	// otelproto.server.message.size By
	// otelproto.connections {connection}
}
