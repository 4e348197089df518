package broadcast

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrClosed is what Publish returns after Close, what Next returns after [Subscription.Close], and the cause of a
	// topic or of waiters that were closed without one.
	ErrClosed = errors.New("broadcast: closed")

	// ErrTruncated says that the [Source] has lost events too. The error that Next returns wraps it together with the
	// [ResyncError] that names them. A Source yields ErrTruncated to say so itself.
	ErrTruncated = errors.New("broadcast: truncated at the source")

	// ErrConcurrent is what Next returns when two goroutines call it on one subscription at once. Whatever the timing,
	// each event is delivered at most once and the cursor stays sound.
	ErrConcurrent = errors.New("broadcast: Next called by two goroutines at once; give each its own subscription")

	// ErrAhead is what Next returns, every time, on a subscription that was asked to resume after an event that has not
	// been published: its position belongs to another topic, or to an earlier run of this one.
	ErrAhead = errors.New("broadcast: position is ahead of the newest event")
)

// A ResyncError names events that a subscriber lost by lagging: those from From up to, but not including, To. It is
// returned once for each gap, and the next call delivers event To.
type ResyncError struct{ From, To uint64 }

// Error implements error.
func (e *ResyncError) Error() string {
	return fmt.Sprintf("broadcast: events [%d, %d) are no longer retained", e.From, e.To)
}

// truncatedError is a gap that the source could not fill.
type truncatedError struct{ gap ResyncError }

func (e *truncatedError) Error() string {
	return fmt.Sprintf("%v: events [%d, %d) are lost", ErrTruncated, e.gap.From, e.gap.To)
}

func (e *truncatedError) Unwrap() []error { return []error{ErrTruncated, &e.gap} }

// contextError is the error of an ended context. It matches both ctx.Err() and the cause, if the two differ: code that
// looks for context.Canceled goes on to work, and the log shows why.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
