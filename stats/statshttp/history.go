package statshttp

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/otelproto/otelproto-go/stats"
)

const (
	// maxBaselines is how many earlier readings are kept. From a second to an hour that is one for each 27 % of age.
	maxBaselines = 32
	// maxBaselineBytes is about how much memory they may take; the newest two are kept in any case.
	maxBaselineBytes = 16 << 20
	// minAge is how old a reading must be to serve as a baseline: rates over less are noise.
	minAge = 500 * time.Millisecond
	// keepFor is how long a baseline is kept, and all of them once nobody looks any more.
	keepFor = maxWindow + maxWindow/4
	// maxWatched is how many single connections can be looked at with a window at the same time.
	maxWatched = 8
	// restShare bounds the processor time that readers can take by asking often: a reading is shared for so many times as
	// long as it took.
	restShare = 4
)

// history reads the registry when somebody looks, and keeps what it read as baselines for the windows of later readings. There is
// no goroutine: who doesn't look for a while finds only the readings from before.
type history struct {
	registry *stats.Registry

	// turn holds one token. Who has taken it may use the fields below; it isn't held while a page is made or written.
	turn chan struct{}
	last *reading
	// baselines are ordered by time.
	baselines []*baseline
	// watched are the connections that were looked at, the latest last.
	watched []uint64
	// forget drops it all when nobody has looked for long.
	forget *time.Timer
}

func newHistory(r *stats.Registry) *history {
	h := &history{registry: r, turn: make(chan struct{}, 1)}
	h.turn <- struct{}{}

	return h
}

// read gives a current reading and the baseline for a window (0: since counting began). For conn, if it isn't 0, both have
// its rows. Of concurrent calls one reads at a time: an error is that of ctx, which ended while it waited.
func (h *history) read(ctx context.Context, window time.Duration, conn uint64) (*reading, *baseline, error) {
	select {
	case <-h.turn:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}

	defer func() { h.turn <- struct{}{} }()

	if conn != 0 {
		h.watch(conn)
	}

	if !h.fresh(conn) {
		h.last = h.take()
	}

	r := h.last
	chosen := h.choose(r, window, conn)
	h.keep(r)

	return r, chosen, nil
}

// fresh is true while the last reading can be shared.
func (h *history) fresh(conn uint64) bool {
	if h.last == nil || time.Since(h.last.totals.Time) >= restShare*h.last.cost {
		return false
	}

	_, has := h.last.watched[conn]

	return conn == 0 || has
}

func (h *history) take() *reading {
	start := time.Now()
	r := newReading(h.registry.Snapshot(), h.watched, h.last)
	r.cost = time.Since(start)

	return r
}

func (h *history) watch(conn uint64) {
	h.watched = slices.DeleteFunc(h.watched, func(id uint64) bool { return id == conn })
	h.watched = append(h.watched, conn)
	h.watched = h.watched[max(0, len(h.watched)-maxWatched):]
}

// choose gives the baseline whose age is nearest to the window, by factor. Counting from zero is one too: it is as old as
// the registry, or as the connection that is looked at.
func (h *history) choose(r *reading, window time.Duration, conn uint64) *baseline {
	zero := &baseline{totals: stats.Snapshot{Start: r.totals.Start, Time: r.totals.Start}}

	if conn != 0 {
		if i, ok := r.conn(conn); ok {
			zero.totals.Time = r.conns[i].opened
		}
	}

	if window == 0 {
		return zero
	}

	best, off := zero, factor(r.totals.Time.Sub(zero.time()), window)

	for _, b := range h.baselines {
		age := r.totals.Time.Sub(b.time())
		_, watched := b.watched[conn]

		if age < minAge || conn != 0 && !watched {
			continue
		}

		if f := factor(age, window); f < off {
			best, off = b, f
		}
	}

	return best
}

// factor tells how far apart two durations are, as the logarithm of their ratio.
func factor(a, b time.Duration) float64 {
	return math.Abs(math.Log(max(a, 1).Seconds() / b.Seconds()))
}

// keep makes a baseline of r, unless there is one about as young, and lets go of those that are too old or too many.
func (h *history) keep(r *reading) {
	now := r.totals.Time
	if n := len(h.baselines); n > 0 && now.Sub(h.baselines[n-1].time()) < minAge {
		return
	}

	h.baselines = slices.DeleteFunc(h.baselines, func(b *baseline) bool { return now.Sub(b.time()) > keepFor })
	h.baselines = append(h.baselines, r.baseline())

	for len(h.baselines) > maxBaselines || len(h.baselines) > 2 && h.bytes() > maxBaselineBytes {
		i := h.spare(now)
		h.baselines = slices.Delete(h.baselines, i, i+1)
	}

	if h.forget == nil {
		h.forget = time.AfterFunc(keepFor, h.drop)
	} else {
		h.forget.Reset(keepFor)
	}
}

func (h *history) bytes() int {
	n := 0
	for _, b := range h.baselines {
		n += b.bytes
	}

	return n
}

// spare gives the baseline whose loss leaves the smallest gap in proportion to its age, neither the oldest nor the newest.
// So the young ones stand close together and the old ones far apart, and each window finds one that is about as old.
func (h *history) spare(now time.Time) int {
	best, least := 0, math.Inf(1)

	for i := 1; i < len(h.baselines)-1; i++ {
		before, after := h.baselines[i-1].time(), h.baselines[i+1].time()

		gap := after.Sub(before).Seconds() / (now.Sub(after).Seconds() + 1)
		if gap < least {
			best, least = i, gap
		}
	}

	return best
}

// drop is called when nobody has looked for long.
func (h *history) drop() {
	<-h.turn
	h.last, h.baselines, h.watched = nil, nil, nil
	h.turn <- struct{}{}
}
