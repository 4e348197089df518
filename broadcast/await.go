package broadcast

import (
	"context"
	"errors"
)

var (
	errNoCheck = errors.New("broadcast: Await needs a check; without one an outcome from before the call is missed")
	errNoMatch = errors.New("broadcast: Await needs a match; without one no event can bring the outcome")
)

// Await returns the outcome of one thing whose completion is recorded in some state and then published to t.
//
// It subscribes, calls check once, which looks the outcome up in the state, and if it isn't there passes events to match
// until that recognises it. After a gap it calls check again instead of replaying, so that the outcome is found with a
// window of one event. The state must be written before the event is published.
//
// It returns an error of check as it is, the topic's cause if that is closed first, and the context's error if that ends
// first. check and match run on the caller's goroutine.
func Await[T, V any](
	ctx context.Context, t *Topic[T],
	check func(context.Context) (V, bool, error), match func(T) (V, bool),
) (V, error) {
	var none V
	if check == nil {
		return none, errNoCheck
	}
	if match == nil {
		return none, errNoMatch
	}
	near := t.log.tail.Load()
	s := t.subscribe(ctx, t.log.newest.Load(), near)
	defer s.Close()
	s.source = nil
	for {
		if v, ok, err := check(ctx); err != nil {
			return none, err
		} else if ok {
			return v, nil
		}
		for {
			e, err := s.Next()
			if isGap(err) {
				break
			}
			if err != nil {
				return none, err
			}
			if v, ok := match(e.Value); ok {
				return v, nil
			}
		}
	}
}
