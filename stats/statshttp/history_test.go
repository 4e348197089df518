package statshttp

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/otelproto/otelproto-go/stats"
)

// look reads for a window of ten seconds.
func look(t *testing.T, h *history) *reading {
	t.Helper()

	r, _, err := h.read(t.Context(), defaultWindow, 0)
	if err != nil {
		t.Fatal(err)
	}

	return r
}

// kept counts what the history holds.
func kept(h *history) int {
	<-h.turn
	defer func() { h.turn <- struct{}{} }()

	if h.last == nil {
		return len(h.baselines)
	}

	return len(h.baselines) + 1
}

func TestBaselinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := stats.NewRegistry()
		h := newHistory(reg)

		for range 10_000 {
			reg.Open(stats.ConnInfo{}).Series(stats.Key{}).Record(t.Context(), 10, 5)
		}

		for range 100 {
			look(t, h)
			time.Sleep(2 * time.Second)
		}

		if n, bytes := len(h.baselines), h.bytes(); n > maxBaselines || bytes > maxBaselineBytes || n < 20 {
			t.Errorf("%d baselines with %d bytes, want up to %d with up to %d", n, bytes, maxBaselines, maxBaselineBytes)
		}
	})
}

func TestNothingIsKeptOnceNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(stats.NewRegistry())

		for range 3 {
			look(t, h)
			time.Sleep(keepFor - time.Second)
		}

		if kept(h) == 0 {
			t.Fatal("forgotten too early")
		}

		time.Sleep(2 * time.Second)
		synctest.Wait()

		if n := kept(h); n != 0 {
			t.Errorf("%d readings are kept", n)
		}

		look(t, h)
	})
}

func TestReadersShareAReadingInProportionToItsCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := stats.NewRegistry()
		h := newHistory(reg)
		id := reg.Open(stats.ConnInfo{}).ID()

		first := look(t, h)
		first.cost = time.Second

		time.Sleep(restShare*time.Second - 1)

		if look(t, h) != first {
			t.Error("a reading that isn't shared")
		}

		r, _, err := h.read(t.Context(), 0, id)
		if err != nil || r == first {
			t.Errorf("a reading without the rows of the connection that is looked at, %v", err)
		}

		r.cost = time.Second

		time.Sleep(restShare * time.Second)

		if look(t, h) == r {
			t.Error("a reading that is shared for too long")
		}
	})
}

func TestOneReadsAtATimeAndTheOthersMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(stats.NewRegistry())
		<-h.turn

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		if _, _, err := h.read(ctx, 0, 0); err == nil {
			t.Error("read while another one does")
		}

		h.turn <- struct{}{}

		look(t, h)
	})
}

func TestAtMostEightConnectionsAreWatched(t *testing.T) {
	h := newHistory(stats.NewRegistry())
	for id := range uint64(20) {
		h.watch(id + 1)
		h.watch(1)
	}

	if n := len(h.watched); n != maxWatched || h.watched[n-1] != 1 || h.watched[0] != 14 {
		t.Errorf("watched %v", h.watched)
	}
}
