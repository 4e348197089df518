package otelproto

import (
	"fmt"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
)

// seriesID is what the limit of series counts.
type seriesID struct {
	method, message, variant string
	// more stands for the attributes that the connection and the RPC add.
	more attribute.Distinct
}

// seriesLimit counts the different series of a handler.
type seriesLimit struct {
	max int

	// mu guards the map. Nothing is called while it is held.
	mu     sync.Mutex
	series map[seriesID]struct{}

	reported onlyOnce
}

func newSeriesLimit(n int) *seriesLimit {
	return &seriesLimit{max: n, series: make(map[seriesID]struct{})}
}

// take counts a series; false if there are too many, which the caller then reports.
func (l *seriesLimit) take(id seriesID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if _, ok := l.series[id]; ok {
		return true
	}

	if len(l.series) >= l.max {
		return false
	}

	l.series[id] = struct{}{}

	return true
}

// give takes back a series that has ended.
func (l *seriesLimit) give(id seriesID) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.series, id)
}

// report says once that the limit was reached. Nothing is locked meanwhile: the error handler is the user's.
func (l *seriesLimit) report() {
	l.reported.handlef("otelproto: more than %d series: further ones are counted as %s (WithSeriesLimit)", l.max, other)
}

// onlyOnce reports the first of many errors. A sync.Once would wait for ever if the error handler, which is the user's, comes
// back here: by a call of its own over gRPC, say.
type onlyOnce struct{ done atomic.Bool }

func (o *onlyOnce) handlef(format string, args ...any) {
	if o.done.CompareAndSwap(false, true) {
		otel.Handle(fmt.Errorf(format, args...))
	}
}
