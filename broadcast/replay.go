package broadcast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
)

// A Source is the authoritative log behind a topic: a journal, a database cursor, a stream. With one, a subscriber that
// lags past the window reads the missing events from there.
//
// Its sequence numbers are the topic's: whoever publishes appends to the source first, in the same order. See
// Options.First for a topic that continues a source which is older than the process.
type Source[T any] interface {
	// Read yields the events from sequence number from on, in order, until there are no more; the topic stops it once it
	// has reached the events in the window. Earlier events and repetitions are ignored. If events are lost, Read goes on
	// with the oldest that is left, or yields ErrTruncated, alone or before that one. Any other error, and an end before
	// the window is reached, is a failure: the topic reads again after a pause, until ctx ends.
	//
	// It runs inside Next, on the subscriber's account. ctx ends with the context of the subscription, and with its Close.
	Read(ctx context.Context, from uint64) iter.Seq2[Event[T], error]
}

// Pauses between reads of a source that fails: doubled from the first to the last, the second half of each at random.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 5 * time.Second
)

// sourceHealth is what a topic remembers of its source's failures.
type sourceHealth struct {
	// mu guards the rest. No foreign code runs while it is held.
	mu       sync.Mutex
	failures uint64
	failing  bool
	err      error
}

// failed notes err and reports whether it is the first since the last success.
func (h *sourceHealth) failed(err error) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first = !h.failing
	h.failing, h.err = true, err
	h.failures++
	return first
}

func (h *sourceHealth) succeeded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing, h.err = false, nil
}

// A replay is one gap that is being filled. The source is pulled event by event, so that it holds one event in memory and
// the live log is asked after each whether it has been reached.
type replay[T any] struct {
	reading    *reading[T]
	held       Event[T] // the event after a gap in the source itself, while it is ahead of the cursor
	pause      time.Duration
	err        error // of the last read that failed, until one succeeds
	truncation bool  // the source said ErrTruncated
}

// A reading is one call of Source.Read.
type reading[T any] struct {
	next   func() (Event[T], error, bool)
	stop   func()
	cancel context.CancelFunc
}

func (r *reading[T]) end() {
	r.cancel()
	r.stop()
}

// read delivers the event after cursor from the source. It returns 0 and nil when the window has been reached.
func (s *Subscription[T]) read(dst []Event[T], cursor uint64) (int, error) {
	r := s.replay
	if r == nil {
		s.topic.resyncs.Add(1)
		s.chunk.Store(nil)
		r = &replay[T]{pause: firstPause}
		s.replay = r
	}
	for {
		if s.member.closed.Load() {
			return 0, ErrClosed
		}
		if cursor+1 >= s.topic.log.oldest(s.topic.log.newest.Load()) {
			return 0, nil
		}
		if s.member.ctx.Err() != nil && r.held.Seq <= cursor {
			return 0, s.readError(cursor)
		}
		e, ok, err := s.pull(cursor)
		switch {
		case errors.Is(err, ErrTruncated):
			r.truncation = true
		case err != nil || !ok && !r.truncation:
			s.readFailed(cursor, err)
		case !ok:
			// The source had nothing after the truncation either: go on with the window.
			s.endReading()
			r.truncation = false
			return 0, s.skip(cursor, 0)
		case e.Seq <= cursor:
		case e.Seq == cursor+1:
			if r.err != nil {
				s.topic.sources.succeeded()
			}
			r.err, r.pause, r.held, r.truncation = nil, firstPause, Event[T]{}, false
			if !s.member.cursor.CompareAndSwap(cursor, cursor+1) {
				return 0, ErrConcurrent
			}
			dst[0] = e
			return 1, nil
		default:
			r.held, r.truncation = e, false
			return 0, s.skip(cursor, e.Seq)
		}
	}
}

// pull returns the next event of the reading, or opens one.
func (s *Subscription[T]) pull(cursor uint64) (e Event[T], ok bool, err error) {
	r := s.replay
	if r.held.Seq > cursor {
		return r.held, true, nil
	}
	if r.reading == nil {
		ctx, cancel := context.WithCancel(s.member.ctx)
		s.member.endRead.Store(&cancel)
		if s.member.closed.Load() { // a Close that came before it could see cancel
			cancel()
		}
		seq := s.source.Read(ctx, cursor+1)
		if seq == nil {
			cancel()
			return e, false, errors.New("broadcast: Source.Read returned nil")
		}
		next, stop := iter.Pull2(seq)
		r.reading = &reading[T]{next, stop, cancel}
		s.member.endPull = r.reading.end
	}
	reading := r.reading
	panicked := true
	defer func() {
		if panicked { // the source's panic goes to the caller of Next; another Next begins another reading
			s.endReading()
		}
	}()
	e, err, ok = reading.next()
	panicked = false
	return e, ok, err
}

// readFailed notes the failure and pauses until it is worth another try, or the subscription ends.
func (s *Subscription[T]) readFailed(cursor uint64, err error) {
	s.endReading()
	if s.member.ctx.Err() != nil || s.member.closed.Load() {
		return // the failure is our own doing
	}
	if err == nil {
		err = fmt.Errorf("broadcast: source ended before event %d, which has left the window", cursor+1)
	}
	r := s.replay
	r.err = err
	if s.topic.sources.failed(err) {
		otel.Handle(fmt.Errorf("broadcast: topic %q: reading the source from event %d, trying again: %w", s.topic.name, cursor+1, err))
	}
	pause := r.pause/2 + rand.N(r.pause/2)
	r.pause = min(2*r.pause, lastPause)
	ctx, cancel := context.WithTimeout(s.member.ctx, pause)
	defer cancel()
	s.member.endRead.Store(&cancel)
	if !s.member.closed.Load() {
		<-ctx.Done()
	}
}

// readError is the error of a context that ended while the source was being read, with what the source said last.
func (s *Subscription[T]) readError(cursor uint64) error {
	err := contextError(s.member.ctx)
	if last := s.replay.err; last != nil {
		err = fmt.Errorf("broadcast: reading the source from event %d: %w: %w", cursor+1, last, err)
	}
	s.endReplay()
	s.member.retire()
	return err
}

func (s *Subscription[T]) endReading() {
	if r := s.replay; r != nil && r.reading != nil {
		r.reading.end()
		r.reading = nil
		s.member.endRead.Store(nil)
		s.member.endPull = nil
	}
}

func (s *Subscription[T]) endReplay() {
	s.endReading()
	s.replay = nil
}

func isGap(err error) bool {
	var gap *ResyncError
	return errors.As(err, &gap)
}
