package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"

	"github.com/otelproto/otelproto-go/e2e/pipeline"
	"github.com/otelproto/otelproto-go/e2e/traffic"
	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

// Summed, the default of the producer, with an exemplar of each series, and connections that come and go.
func TestTheRegistrysProducerArrivesWithExemplars(t *testing.T) {
	b := backend(t)

	t.Parallel()

	for name, temporality := range map[string]int{"cumulative": cumulative, "delta": delta} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			a := address(t, b)
			collector := startCollector(t, a)
			ctx := t.Context()

			exporter, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpoint(a.GRPC), otlpmetricgrpc.WithInsecure())
			if err != nil {
				t.Fatal(err)
			}

			registry := stats.NewRegistry(stats.WithExemplars())

			var opts []statsmetric.Option
			if temporality == delta {
				opts = append(opts, statsmetric.Delta())
			}

			id := instance(t)
			provider := sdkmetric.NewMeterProvider(
				sdkmetric.WithResource(resource.NewSchemaless(attribute.String("service.instance.id", id))),
				sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithInterval(time.Hour),
					sdkmetric.WithProducer(statsmetric.NewProducer(registry, opts...)))))
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()))

			app, err := traffic.Start(ctx, traffic.Options{
				Registry: registry, MeterProvider: provider,
				Server: []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(tracer)))},
				Dial:   []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(tracer)))},
			})
			if err != nil {
				t.Fatal(err)
			}

			for n := range 40 {
				err := app.Step(ctx, n)
				if n%10 == 9 {
					err = errors.Join(err, app.Restart(ctx), provider.ForceFlush(ctx))
				}

				if err != nil {
					t.Fatal(err)
				}
			}

			if err := errors.Join(app.Close(), provider.Shutdown(context.WithoutCancel(ctx))); err != nil {
				t.Fatal(err)
			}

			want := ofRows(registry.Snapshot().Total)
			arrives(t, b, id, want)
			connectionsAddUp(t, b, id, registry.Snapshot())
			collector.Stop()

			got, exemplars := ofFile(t, a.File, temporality)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the collector's file (-program +file):\n%s", d)
			}

			if exemplars < len(want) {
				t.Errorf("%d exemplars of %d histograms", exemplars, len(want))
			}
		})
	}
}

// connectionsAddUp checks the sockets' bytes, whose total the registry has too.
func connectionsAddUp(t *testing.T, b *pipeline.Backend, id string, s stats.Snapshot) {
	t.Helper()

	for direction, want := range map[string]uint64{"transmit": s.Sockets.Written, "receive": s.Sockets.Read} {
		samples, err := b.Query(t.Context(), fmt.Sprintf(
			`sum(last_over_time(otelproto_connection_io_bytes_total{%s=%q,network_io_direction=%q}[1h]))`, b.Instance, id, direction))
		if err != nil {
			t.Fatal(err)
		}

		if len(samples) != 1 || uint64(samples[0].Value) != want || want == 0 {
			t.Errorf("%s: %v, expected %d bytes", direction, samples, want)
		}
	}
}
