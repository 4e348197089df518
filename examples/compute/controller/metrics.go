package controller

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Observe registers the instance's gauges with the provider, until the returned registration is undone:
//
//   - compute.history.commands {command}: how long the command history is
//   - compute.dataflows {dataflow}: how many there are
//   - compute.collections {collection}: how many there are
//
// each with the attribute compute.instance. They are read when they are exported and cost nothing otherwise.
func (i *Instance) Observe(provider metric.MeterProvider) (metric.Registration, error) {
	meter := provider.Meter("github.com/otelproto/otelproto-go/examples/compute/controller")
	history, err1 := meter.Int64ObservableGauge("compute.history.commands",
		metric.WithUnit("{command}"), metric.WithDescription("Commands that the instance's history holds"))
	dataflows, err2 := meter.Int64ObservableGauge("compute.dataflows",
		metric.WithUnit("{dataflow}"), metric.WithDescription("Dataflows that the instance maintains"))
	collections, err3 := meter.Int64ObservableGauge("compute.collections",
		metric.WithUnit("{collection}"), metric.WithDescription("Collections that the instance's dataflows export"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	instance := metric.WithAttributeSet(attribute.NewSet(attribute.String("compute.instance", i.Name())))
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := i.Stats()
		o.ObserveInt64(history, int64(s.History), instance)
		o.ObserveInt64(dataflows, int64(s.Dataflows), instance)
		o.ObserveInt64(collections, int64(s.Collections), instance)
		return nil
	}, history, dataflows, collections)
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	return registration, nil
}
