package broadcast

import (
	"context"
	"errors"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// ScopeName is the instrumentation scope of the metrics.
const ScopeName = "github.com/otelproto/otelproto-go/broadcast"

// observe registers the topic's instruments. All are asynchronous: what they show is read off the topic when the reader
// collects, and publishing and receiving do nothing for them. The callback holds the topic weakly, since a meter provider
// never forgets a callback by itself.
func observe[T any](t *Topic[T], mp metric.MeterProvider) (metric.Registration, error) {
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	meter := mp.Meter(ScopeName)
	published, err1 := meter.Int64ObservableCounter("otelproto.broadcast.published",
		metric.WithUnit("{event}"), metric.WithDescription("Events published to the topic."))
	subscribers, err2 := meter.Int64ObservableUpDownCounter("otelproto.broadcast.subscribers",
		metric.WithUnit("{subscriber}"), metric.WithDescription("Live subscriptions."))
	lag, err3 := meter.Int64ObservableGauge("otelproto.broadcast.lag",
		metric.WithUnit("{event}"), metric.WithDescription("The slowest subscriber's distance from the newest event."))
	resyncs, err4 := meter.Int64ObservableCounter("otelproto.broadcast.resyncs",
		metric.WithUnit("{resync}"), metric.WithDescription("Lags past the window that were recovered from: "+
			"by a re-check, by a replay, or by the subscriber to whom they were reported."))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	attributes := attribute.NewSet()
	if t.name != "" {
		attributes = attribute.NewSet(attribute.String("otelproto.broadcast.topic", t.name))
	}
	option := metric.WithAttributeSet(attributes)
	topic := weak.Make(t)
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t := topic.Value()
		if t == nil {
			return nil
		}
		s := t.Stats()
		o.ObserveInt64(published, int64(s.Published), option)
		o.ObserveInt64(subscribers, int64(s.Subscribers), option)
		o.ObserveInt64(lag, int64(s.Lag), option)
		o.ObserveInt64(resyncs, int64(s.Resyncs), option)
		return nil
	}, published, subscribers, lag, resyncs)
}

func unregister(r metric.Registration) {
	if err := r.Unregister(); err != nil {
		otel.Handle(err)
	}
}
