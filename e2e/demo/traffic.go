package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/otelproto/otelproto-go/e2e/traffic"
	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

// running is the application of package traffic, at work.
type running struct {
	app      *traffic.App
	provider *sdkmetric.MeterProvider
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// startTraffic lets the application work and export until stop.
func startTraffic(ctx context.Context, endpoint string) (*running, error) {
	exporter, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpoint(endpoint), otlpmetricgrpc.WithInsecure())
	if err != nil {
		return nil, err
	}

	service, err := resource.New(ctx, resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, err
	}

	registry := stats.NewRegistry()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(service), sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter,
		sdkmetric.WithInterval(time.Second), sdkmetric.WithProducer(statsmetric.NewProducer(registry)))))

	app, err := traffic.Start(ctx, traffic.Options{Registry: registry, MeterProvider: provider})
	if err != nil {
		return nil, errors.Join(err, provider.Shutdown(ctx))
	}

	r := &running{app: app, provider: provider}
	ctx, r.cancel = context.WithCancel(ctx)
	r.wg.Go(func() {
		if err := r.work(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
		}
	})

	return r, nil
}

// work makes a step a few times a second, and a restart every few seconds.
func (r *running) work(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()

	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}

		if err := r.app.Step(ctx, n); err != nil {
			return err
		}

		if n%30 == 10 {
			if err := r.app.Restart(ctx); err != nil {
				return err
			}
		}
	}
}

// stop ends it. What wasn't exported by then isn't missed.
func (r *running) stop() {
	r.cancel()
	r.wg.Wait()

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	if err := errors.Join(r.app.Close(), r.provider.Shutdown(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
}
