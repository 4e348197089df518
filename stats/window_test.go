package stats_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/stats"
)

// messages gives the number of messages by type.
func messages(rows []stats.Row) map[string]uint64 {
	n := make(map[string]uint64)
	for _, r := range rows {
		n[r.Key.Type] += r.Messages
	}

	return n
}

func TestAWindowHasWhatWasCountedBetweenTwoSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stats.NewRegistry()
		stays, goes := r.Open(stats.ConnInfo{}), r.Open(stats.ConnInfo{Client: true, Authority: "a"})
		early := r.Open(stats.ConnInfo{})

		record(t.Context(), stays.Series(stats.Key{Type: "A"}), 10, 100)
		record(t.Context(), stays.Series(stats.Key{Type: "B"}), 3, 100)
		record(t.Context(), goes.Series(stats.Key{Type: "A"}), 20, 100)
		record(t.Context(), early.Series(stats.Key{Type: "A"}), 40, 100)
		early.Close()

		first := r.Snapshot()

		time.Sleep(2 * time.Second)

		comes, brief := r.Open(stats.ConnInfo{}), r.Open(stats.ConnInfo{})
		record(t.Context(), stays.Series(stats.Key{Type: "A"}), 1, 100)
		record(t.Context(), goes.Series(stats.Key{Type: "A"}), 2, 200)
		record(t.Context(), comes.Series(stats.Key{Type: "A"}), 4, 100)
		record(t.Context(), brief.Series(stats.Key{Type: "C"}), 8, 100)
		goes.Close()
		brief.Close()

		second := r.Snapshot()
		w := second.Sub(first)

		if w.Duration() != 2*time.Second || w.Start != first.Time || w.Time != second.Time {
			t.Errorf("the window is from %v to %v", w.Start, w.Time)
		}

		if diff := cmp.Diff(map[string]uint64{"A": 7, "C": 8}, messages(w.Total)); diff != "" {
			t.Errorf("total: %s", diff)
		}

		if diff := cmp.Diff(map[string]uint64{"A": 2, "C": 8}, messages(w.Closed)); diff != "" {
			t.Errorf("closed: %s", diff)
		}

		conns := make(map[uint64]map[string]uint64)
		for _, c := range w.Conns {
			conns[c.ID] = messages(c.Rows)
		}

		want := map[uint64]map[string]uint64{stays.ID(): {"A": 1}, comes.ID(): {"A": 4}}
		if diff := cmp.Diff(want, conns); diff != "" {
			t.Errorf("connections: %s", diff)
		}

		var a stats.Row

		for _, row := range w.Total {
			if row.Key.Type == "A" && row.Client {
				a = row
			}
		}

		if a.Size.Sum != 400 || a.Wire.Sum != 410 || a.Size.Count() != 2 {
			t.Errorf("the client's row is %+v, expected 2 messages of 200 bytes", a)
		}

		if got := w.PerSecond(a.Messages); got != 1 {
			t.Errorf("%v messages a second, expected 1", got)
		}

		// 5 × 105, 2 × 205, 8 × 105
		if got, want := w.Share(a), 410.0/(5*105+410+8*105); got != want {
			t.Errorf("share %v, expected %v", got, want)
		}

		// The snapshots themselves are as they were.
		if diff := cmp.Diff(map[string]uint64{"A": 77, "B": 3, "C": 8}, messages(second.Total)); diff != "" {
			t.Errorf("the second snapshot was changed: %s", diff)
		}

		if diff := cmp.Diff(map[string]uint64{"A": 70, "B": 3}, messages(first.Total)); diff != "" {
			t.Errorf("the first snapshot was changed: %s", diff)
		}
	})
}

func TestAWindowOfNothingIsEmpty(t *testing.T) {
	s := newTestSeries(t)
	record(t.Context(), s.Series, 3, 10)

	now := s.registry.Snapshot()
	w := now.Sub(now)

	if len(w.Total) != 0 || len(w.Closed) != 0 || len(w.Conns) != 1 || len(w.Conns[0].Rows) != 0 {
		t.Errorf("got %+v", w)
	}

	if w.PerSecond(5) != 0 || w.Share(now.Total[0]) != 0 {
		t.Error("rates or shares of nothing")
	}

	// The wrong way round there is nothing either, rather than numbers near 2^64.
	record(t.Context(), s.Series, 3, 10)

	if w := now.Sub(s.registry.Snapshot()); len(w.Total) != 0 {
		t.Errorf("got %+v", w.Total)
	}
}

func TestConnectionsWithoutNumberAreToldApartInAWindow(t *testing.T) {
	collectErrors(t)
	synctest.Test(t, func(t *testing.T) {
		r := stats.NewRegistry(stats.WithConnLimit(1))
		r.Open(stats.ConnInfo{})

		beyond := r.Open(stats.ConnInfo{})
		record(t.Context(), beyond.Series(stats.Key{Type: "A"}), 10, 1)
		first := r.Snapshot()

		time.Sleep(time.Second)
		beyond.Close()

		again := r.Open(stats.ConnInfo{})
		record(t.Context(), again.Series(stats.Key{Type: "A"}), 4, 1)

		w := r.Snapshot().Sub(first)
		if diff := cmp.Diff(map[string]uint64{"A": 4}, messages(w.Conns[0].Rows)); diff != "" || len(w.Closed) != 0 {
			t.Errorf("%s; closed %v", diff, w.Closed)
		}

		again.Close()
	})
}
