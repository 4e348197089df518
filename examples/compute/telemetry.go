package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"google.golang.org/grpc"

	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

// A telemetry is where sizes go: always to registries of this process, which the table shows, and to a collector if the
// environment names one.
type telemetry struct {
	// One registry for each side, as if controller and replicas were programs of their own: in a common one every message would
	// be there twice, once as it leaves and once as it arrives.
	controller, replicas *stats.Registry

	provider *sdkmetric.MeterProvider // nil: nothing is exported
	producer *statsmetric.Producer    // nil: the handlers' instruments are exported, not the registry
}

// What -export may be.
const (
	exportInstruments = "instruments"
	exportRegistry    = "registry"
)

func newTelemetry(ctx context.Context, export string) (*telemetry, error) {
	t := &telemetry{controller: stats.NewRegistry(), replicas: stats.NewRegistry()}
	if !exporterConfigured() {
		return t, nil
	}
	if export == exportRegistry {
		// The controller's: a replica in a program of its own would export its own. The peers are the replicas' processes.
		t.producer = statsmetric.NewProducer(t.controller, statsmetric.PerConnection())
	}
	autoexport.WithFallbackMetricProducer(func(context.Context) (sdkmetric.Producer, error) {
		if t.producer == nil {
			return noProducer{}, nil
		}
		return t.producer, nil
	})
	reader, err := autoexport.NewMetricReader(ctx)
	if err != nil {
		return nil, fmt.Errorf("compute: setting up the export: %w", err)
	}
	service, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "compute")),
		resource.WithTelemetrySDK(),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("compute: setting up the export: %w", err), reader.Shutdown(ctx))
	}
	t.provider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(service))
	return t, nil
}

// exporterConfigured reports whether the environment asks for an export. Without these variables autoexport would send to a
// collector on this host, and complain that there is none.
func exporterConfigured() bool {
	exporter := os.Getenv("OTEL_METRICS_EXPORTER")
	return exporter != "none" && (exporter != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") != "")
}

// dialOptions are those of the controller's connection to a process.
func (t *telemetry) dialOptions(replica string, process int) []grpc.DialOption {
	opts := append(otelproto.DialOptions(otelproto.WithRegistry(t.controller)), grpc.WithContextDialer(t.controller.DialContext))
	if t.provider != nil && t.producer == nil {
		opts = append(opts, otelproto.DialOptions(
			otelproto.WithMeterProvider(t.provider),
			otelproto.WithConnAttributes(constant(replica, process)),
		)...)
	}
	return opts
}

// serverOptions are those of a process.
func (t *telemetry) serverOptions(replica string, process int) []grpc.ServerOption {
	opts := []grpc.ServerOption{grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(t.replicas)))}
	if t.provider != nil && t.producer == nil {
		opts = append(opts, grpc.StatsHandler(otelproto.NewServerHandler(
			otelproto.WithMeterProvider(t.provider),
			otelproto.WithConnAttributes(constant(replica, process)),
		)))
	}
	return opts
}

// constant gives every connection of a handler the same attributes, so that sizes are told apart by replica and process.
func constant(replica string, process int) func(otelproto.ConnInfo) []attribute.KeyValue {
	attributes := []attribute.KeyValue{attribute.String("compute.replica", replica), attribute.Int("compute.process", process)}
	return func(otelproto.ConnInfo) []attribute.KeyValue { return attributes }
}

// exportTimeout is how long the last export may take, whether or not ctx has ended.
const exportTimeout = 5 * time.Second

// shutdown exports what there is and ends the export. A second call does nothing.
func (t *telemetry) shutdown(ctx context.Context) error {
	provider := t.provider
	t.provider = nil
	if provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTimeout)
	defer cancel()
	// Shutdown alone would break off an export that is on its way, and the values of a delta export are in no later one.
	if err := errors.Join(provider.ForceFlush(ctx), provider.Shutdown(ctx)); err != nil {
		return fmt.Errorf("compute: exporting: %w", err)
	}
	return nil
}

// noProducer takes the place of a producer that an earlier run in this program has set: autoexport keeps one for all.
type noProducer struct{}

func (noProducer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) { return nil, nil }
