package broadcast

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

const defaultWindow = 1024

// Options configure a topic of events of type T. The zero value is a good default.
type Options[T any] struct {
	// Window is the number of events kept for subscribers that lag: one that lags by Window still gets every event, one
	// that lags by one more has a gap. 0 stands for 1,024; a negative number is an error.
	Window int

	// WindowBytes bounds the window by the sum of Size over its events as well, whichever is reached first; the newest
	// event is kept however large. 0: no such bound. A negative number, and a bound without Size, are errors.
	WindowBytes int

	// Size returns the size of an event in bytes, 0 or more. Publish calls it once for each event if WindowBytes is set,
	// holding no lock.
	Size func(T) int

	// Source is the authoritative log behind the topic, from which a subscriber that lagged past the window reads what it
	// missed. nil: a gap is reported, not filled.
	Source Source[T]

	// First is the sequence number of the first event published. 0 stands for 1. A topic that continues a Source which
	// is older than the process sets the source's next number.
	First uint64

	// Name is the attribute otelproto.broadcast.topic of the metrics; empty: no attribute. Two topics of one name share
	// their series, of which only one is seen.
	Name string

	// MeterProvider gets the instruments. nil: the global one when New is called.
	MeterProvider metric.MeterProvider
}

func (o Options[T]) validate() error {
	switch {
	case o.Window < 0:
		return fmt.Errorf("broadcast: Options.Window is %d; want 0 (for %d) or more events", o.Window, defaultWindow)
	case o.WindowBytes < 0:
		return fmt.Errorf("broadcast: Options.WindowBytes is %d; want 0 (for no bound) or more bytes", o.WindowBytes)
	case o.WindowBytes > 0 && o.Size == nil:
		return errors.New("broadcast: Options.WindowBytes is set without Options.Size; want a function that sizes an event")
	}
	return nil
}

func (o Options[T]) window() int {
	if o.Window == 0 {
		return defaultWindow
	}
	return o.Window
}
