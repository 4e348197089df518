package broadcast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/otelproto/otelproto-go/broadcast"
)

// The model is a topic in the plainest form: all events ever, the window found by counting back from the newest.
type model struct {
	topic    *broadcast.Topic[int]
	window   int
	maxBytes int // 0: no bound; the values are the sizes
	journal  *journal
	values   []int
	closed   error
	subs     []*modelSub
	dropped  []*modelSub // closed at the end: nothing is collected inside a bubble
	resyncs  uint64
	opened   int
}

type modelSub struct {
	s                  *broadcast.Subscription[int]
	cancel             context.CancelFunc
	start, cursor      uint64
	delivered, skipped uint64
	pinned             bool // the event after a reported gap is due, in or out of the window
	replaying, held    bool // held: what is pinned came from the source
	cancelled, closed  bool
	ended              bool // Next has said so
	waiting            chan result
}

type result struct {
	event broadcast.Event[int]
	err   error
}

var errModelClosed = errors.New("closed by the model")

func (m *model) oldest() uint64 {
	kept, bytes := 0, 0
	for _, size := range slices.Backward(m.values) {
		bytes += size
		if kept > 0 && (kept == m.window || m.maxBytes > 0 && bytes > m.maxBytes) {
			break
		}
		kept++
	}
	return uint64(len(m.values)-kept) + 1
}

func (m *model) newest() uint64 { return uint64(len(m.values)) }

// next is what Next must return, with ok false if it must wait. It moves the model's subscription.
func (m *model) next(s *modelSub) (want result, ok bool) {
	oldest := m.oldest()
	gap := !s.pinned && s.cursor+1 < oldest
	switch {
	case s.closed:
		return result{err: broadcast.ErrClosed}, true
	case s.cursor < m.newest() && gap && m.journal == nil:
		m.resyncs++
		return s.skip(oldest), true
	case s.cursor < m.newest() && gap:
		if !s.replaying {
			s.replaying = true
			m.resyncs++
		}
		if s.cancelled {
			s.ended, s.replaying = true, false
			return result{err: context.Canceled}, true
		}
		if lost := m.journal.oldest; s.cursor+1 < lost {
			s.held = lost < oldest
			return s.skip(min(lost, oldest)), true
		}
	case s.cursor < m.newest():
		s.replaying = s.replaying && s.held
	case m.closed != nil:
		s.ended = true
		return result{err: m.closed}, true
	case s.cancelled:
		s.ended = true
		return result{err: context.Canceled}, true
	default:
		s.replaying = false
		return result{}, false
	}
	s.pinned, s.held = false, false
	s.cursor++
	s.delivered++
	return result{event: broadcast.Event[int]{Seq: s.cursor, Value: m.values[s.cursor-1]}}, true
}

func (s *modelSub) skip(to uint64) result {
	err := &broadcast.ResyncError{From: s.cursor + 1, To: to}
	s.skipped += to - 1 - s.cursor
	s.cursor = to - 1
	s.pinned = true
	return result{err: err}
}

// compare says how got differs from what the model wants.
func (m *model) compare(got, want result) error {
	var gotGap, wantGap *broadcast.ResyncError
	switch {
	case errors.As(want.err, &wantGap):
		if !errors.As(got.err, &gotGap) || *gotGap != *wantGap {
			return fmt.Errorf("got %+v, want the gap %+v", got, *wantGap)
		}
		if errors.Is(got.err, broadcast.ErrTruncated) != (m.journal != nil) {
			return fmt.Errorf("with a source: %t, but the gap is %w", m.journal != nil, got.err)
		}
	case want.err != nil:
		if !errors.Is(got.err, want.err) {
			return fmt.Errorf("got %+v, want error %w", got, want.err)
		}
	case got.err != nil || got.event != want.event:
		return fmt.Errorf("got %+v, want %+v", got, want)
	}
	return nil
}

// settle checks what the waiting subscriptions do now, and then every invariant that can be asked for at rest.
func (m *model) settle() error {
	synctest.Wait()
	for i, s := range m.subs {
		if s.waiting == nil {
			continue
		}
		want, ok := m.next(s)
		select {
		case got := <-s.waiting:
			s.waiting = nil
			if !ok {
				return fmt.Errorf("subscription %d returned %+v, want it to wait", i, got)
			}
			if err := m.compare(got, want); err != nil {
				return fmt.Errorf("waiting subscription %d: %w", i, err)
			}
		default:
			if ok {
				return fmt.Errorf("subscription %d waits, want %+v", i, want)
			}
		}
	}
	live, slowest := 0, m.newest()
	for i, s := range m.subs {
		if lag := s.s.Lag(); lag != m.newest()-s.cursor {
			return fmt.Errorf("subscription %d has lag %d, want %d", i, lag, m.newest()-s.cursor)
		}
		if s.delivered+s.skipped != s.cursor-s.start {
			return fmt.Errorf("subscription %d: delivered %d + skipped %d ≠ %d − %d", i, s.delivered, s.skipped, s.cursor, s.start)
		}
		if !s.closed && !s.cancelled && !s.ended {
			live++
			slowest = min(slowest, s.cursor)
		}
	}
	got := m.topic.Stats()
	want := broadcast.Stats{
		Published: m.newest(), Newest: m.newest(), Oldest: m.oldest(),
		Subscribers: live, Slowest: slowest, Lag: m.newest() - slowest, Resyncs: m.resyncs,
	}
	if got != want {
		return fmt.Errorf("Stats() = %+v, want %+v", got, want)
	}
	return nil
}

func (m *model) subscribe(t *testing.T, s *modelSub, open func(context.Context) *broadcast.Subscription[int]) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	s.start = s.cursor
	s.s = open(ctx)
	m.subs = append(m.subs, s)
	m.opened++
}

// step does one random thing to the topic and to the model.
func (m *model) step(t *testing.T, r *rand.Rand) error {
	t.Helper()
	var s *modelSub
	if len(m.subs) > 0 {
		s = m.subs[r.IntN(len(m.subs))]
	}
	switch op := r.IntN(100); {
	case op < 40:
		for range 1 + r.IntN(1+r.IntN(2*m.window+2)) {
			v := r.IntN(20)
			if m.closed == nil {
				m.values = append(m.values, v)
				if m.journal != nil {
					m.journal.append(v)
				}
			}
			if seq, err := m.topic.Publish(v); m.closed == nil && (err != nil || seq != m.newest()) ||
				m.closed != nil && !errors.Is(err, broadcast.ErrClosed) {
				return fmt.Errorf("Publish = %d, %w; newest is %d", seq, err, m.newest())
			}
			if err := m.settle(); err != nil { // whoever waits gets this event; later, it might be a gap
				return err
			}
		}
	case op < 45 && len(m.subs) < 20:
		m.subscribe(t, &modelSub{cursor: m.newest()}, m.topic.Subscribe)
	case op < 50 && len(m.subs) < 20:
		at := r.Uint64N(m.newest() + 1)
		m.subscribe(t, &modelSub{cursor: at}, func(ctx context.Context) *broadcast.Subscription[int] {
			return m.topic.SubscribeAt(ctx, at)
		})
	case op < 85 && s != nil && s.waiting == nil:
		for range 1 + r.IntN(1+r.IntN(m.window+2)) {
			before := *s
			want, ok := m.next(s)
			if !ok {
				s.waiting = make(chan result, 1)
				go func() {
					e, err := s.s.Next()
					s.waiting <- result{e, err}
				}()
				break
			}
			var got result
			if r.IntN(3) > 0 {
				got.event, got.err = s.s.Next()
			} else if err := m.batch(r, s, before, want, &got); err != nil {
				return err
			}
			if err := m.compare(got, want); err != nil {
				return err
			}
		}
	case op < 92 && s != nil:
		s.cancelled = true
		s.cancel()
	case op < 98 && s != nil:
		s.closed = true
		s.s.Close()
	case op == 98 && s != nil && s.waiting == nil: // dropped: out of sight, without Close
		s.cancel()
		m.dropped = append(m.dropped, s)
		for i := range m.subs {
			if m.subs[i] == s {
				m.subs = append(m.subs[:i], m.subs[i+1:]...)
				break
			}
		}
	case op == 99 && r.IntN(10) == 0 && m.closed == nil:
		m.closed = errModelClosed
		m.topic.Close(errModelClosed)
	}
	return m.settle()
}

// batch reads with NextBatch: the first event must be what Next would have returned, the others what further calls would.
func (m *model) batch(r *rand.Rand, s *modelSub, before modelSub, want result, got *result) error {
	dst := make([]broadcast.Event[int], 1+r.IntN(100))
	n, err := s.s.NextBatch(dst)
	got.err = err
	if err != nil {
		if n != 0 {
			return fmt.Errorf("NextBatch = %d, %w", n, err)
		}
		return nil
	}
	if n == 0 {
		return errors.New("NextBatch = 0, nil")
	}
	got.event = dst[0]
	if most := m.newest() - before.cursor; want.err == nil && !before.pinned && !s.replaying && uint64(n) != min(most, uint64(len(dst))) {
		return fmt.Errorf("NextBatch = %d of %d events for room for %d", n, most, len(dst))
	}
	for _, e := range dst[1:n] {
		more, ok := m.next(s)
		if !ok {
			return fmt.Errorf("NextBatch delivered %+v, want it to stop", e)
		}
		if err := m.compare(result{event: e}, more); err != nil {
			return fmt.Errorf("NextBatch: %w", err)
		}
	}
	return nil
}

// Random operations against the model, every invariant after each. Windows from one event up, by events and by bytes,
// with and without a source, which may have lost its beginning.
func TestATopicBehavesLikeItsModel(t *testing.T) {
	r := random(t)
	rounds := scaled(160)
	if stressed {
		rounds = 2000
	}
	for round := range rounds {
		seed := r.Uint64()
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			m := &model{window: 1 + r.IntN(1+r.IntN(200))}
			o := broadcast.Options[int]{Window: m.window}
			if r.IntN(2) == 0 {
				m.maxBytes = 1 + r.IntN(1000)
				o.WindowBytes, o.Size = m.maxBytes, func(v int) int { return v }
			}
			if r.IntN(2) == 0 {
				m.journal = new(journal)
				o.Source = m.journal
			}
			m.topic = topicOf(t, o)
			defer func() {
				for _, s := range append(m.subs, m.dropped...) {
					s.s.Close()
				}
			}()
			for step := range 300 {
				if m.journal != nil && r.IntN(50) == 0 {
					m.journal.oldest = max(m.journal.oldest, r.Uint64N(m.newest()+1))
				}
				if err := m.step(t, r); err != nil {
					t.Fatalf("round %d, step %d, window %d, %d bytes, source %t: %v",
						round, step, m.window, m.maxBytes, m.journal != nil, err)
				}
				broadcast.Check(t, m.topic)
			}
		})
		if t.Failed() {
			return
		}
	}
}
