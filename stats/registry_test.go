package stats_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/stats"
)

func TestASnapshotHasLiveAndClosedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stats.NewRegistry()
		start := time.Now()

		time.Sleep(time.Second)

		info := stats.ConnInfo{
			Client: true, Local: &net.TCPAddr{Port: 1}, Remote: &net.TCPAddr{Port: 2}, Authority: "server:1",
		}
		c := r.Open(info)
		record(t.Context(), c.Series(stats.Key{Type: "A"}), 2, 10)
		record(t.Context(), r.Open(stats.ConnInfo{}).Series(stats.Key{Type: "A"}), 3, 10)
		time.Sleep(time.Second)

		s := r.Snapshot()
		if s.Start != start || s.Duration() != 2*time.Second {
			t.Errorf("from %v to %v, expected 2 s from %v", s.Start, s.Time, start)
		}

		if len(s.Conns) != 2 || s.Conns[0].ID != c.ID() || s.Conns[0].Info != info || !s.Conns[0].Opened.Equal(start.Add(time.Second)) {
			t.Errorf("connections %+v", s.Conns)
		}

		if got := s.Conns[0].Rows[0].Server; got != "server:1" {
			t.Errorf("server %q", got)
		}

		if len(s.Total) != 2 || s.Total[0].Server != "" || len(s.Closed) != 0 {
			t.Errorf("total %+v, closed %+v", s.Total, s.Closed)
		}

		c.Close()

		s = r.Snapshot()
		if len(s.Conns) != 1 || len(s.Closed) != 1 || s.Closed[0].Messages != 2 || s.Closed[0].Server != "" || len(s.Total) != 2 {
			t.Errorf("after Close: %+v", s)
		}
	})
}

func TestClosingTwiceIsClosingOnce(t *testing.T) {
	r := stats.NewRegistry()
	c, other := r.Open(stats.ConnInfo{}), r.Open(stats.ConnInfo{})
	record(t.Context(), c.Series(stats.Key{}), 7, 1)

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(c.Close)
	}
	wg.Wait()

	s := r.Snapshot()
	if len(s.Conns) != 1 || s.Conns[0].ID != other.ID() || s.Closed[0].Messages != 7 {
		t.Errorf("got %+v", s)
	}
}

func TestWhatIsRecordedAfterCloseCountsAsClosed(t *testing.T) {
	r := stats.NewRegistry()
	c := r.Open(stats.ConnInfo{Client: true, Authority: "a"})
	known := c.Series(stats.Key{Type: "A"})
	record(t.Context(), known, 2, 100)
	c.Close()

	record(t.Context(), known, 3, 100)
	known.Record(t.Context(), 17, 1_000) // compressed
	record(t.Context(), c.Series(stats.Key{Type: "A"}), 4, 100)
	record(t.Context(), c.Series(stats.Key{Type: "B"}), 5, 100)

	s := r.Snapshot()
	if diff := cmp.Diff(map[string]uint64{"A": 10, "B": 5}, messages(s.Closed)); diff != "" || len(s.Conns) != 0 {
		t.Errorf("%s; %d live", diff, len(s.Conns))
	}

	if got := s.Closed[0]; got.Size.Sum != 1900 || got.Wire.Sum != 9*105+17 || got.Size.Count() != 10 {
		t.Errorf("got %+v", got)
	}
}

func TestConnectionsBeyondTheLimitAreCountedTogetherAndReportedOnce(t *testing.T) {
	errs := collectErrors(t)
	r := stats.NewRegistry(stats.WithConnLimit(2))
	first, _ := r.Open(stats.ConnInfo{}), r.Open(stats.ConnInfo{})

	var beyond []*stats.Conn
	for i := range 5 {
		c := r.Open(stats.ConnInfo{Client: i%2 == 0, Authority: "a"})
		beyond = append(beyond, c)
		record(t.Context(), c.Series(stats.Key{Type: "A"}), 1, 10)

		if c.ID() != 0 {
			t.Errorf("ID %d beyond the limit", c.ID())
		}
	}

	s := r.Snapshot()
	if len(s.Conns) != 4 || s.Conns[0].ID != 0 || s.Conns[0].Info.Authority != "" {
		t.Errorf("%d connections, expected 2 and one for each side: %+v", len(s.Conns), s.Conns)
	}

	if n := r.NewReader().Read().Live; n != 7 {
		t.Errorf("%d live, expected 7", n)
	}

	for i, c := range beyond {
		c.Close()

		if n := r.NewReader().Read().Live; n != 6-i {
			t.Errorf("%d live, expected %d", n, 6-i)
		}
	}

	s = r.Snapshot()
	if len(s.Conns) != 2 || messages(s.Closed)["A"] != 5 {
		t.Errorf("%d live, %v closed", len(s.Conns), messages(s.Closed))
	}

	first.Close()

	if c := r.Open(stats.ConnInfo{}); c.ID() == 0 {
		t.Error("no number, though there is room again")
	}

	want := []string{"stats: more than 2 live connections: further ones are counted together (WithConnLimit)"}
	if diff := cmp.Diff(want, errs.all()); diff != "" {
		t.Error(diff)
	}
}

func TestKeysBeyondTheLimitAreOtherAndReportedOnce(t *testing.T) {
	errs := collectErrors(t)
	r := stats.NewRegistry(stats.WithSeriesLimit(3))

	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			c := r.Open(stats.ConnInfo{})
			for i := range 50 {
				record(t.Context(), c.Series(stats.Key{
					Method: strconv.Itoa(i), Direction: stats.Direction(i % 2), Type: strconv.Itoa(g), Variant: "v", Retry: i%4 > 1,
				}), 1, 10)
			}
		})
	}
	wg.Wait()

	var all, other uint64

	s := r.Snapshot()
	for _, row := range s.Total {
		all += row.Messages

		if row.Key.Type == stats.Other {
			other += row.Messages

			if row.Key.Method != stats.Other || row.Key.Variant != "" {
				t.Errorf("got %+v", row.Key)
			}
		}
	}

	if all != 400 || len(s.Total) != 3+4 || other < 400-3*8 {
		t.Errorf("%d messages, %d of them other, in %d rows", all, other, len(s.Total))
	}

	want := []string{"stats: more than 3 series: further ones are counted as _OTHER (WithSeriesLimit)"}
	if diff := cmp.Diff(want, errs.all()); diff != "" {
		t.Error(diff)
	}
}

func TestServersBeyondTheLimitAreOtherAndReportedOnce(t *testing.T) {
	errs := collectErrors(t)
	r := stats.NewRegistry(stats.WithSeriesLimit(2))

	for i := range 20 {
		c := r.Open(stats.ConnInfo{Client: true, Authority: fmt.Sprintf("server-%d:1", i)})
		record(t.Context(), c.Series(stats.Key{Type: "A"}), 1, 10)
		c.Close()
	}

	servers := make(map[string]uint64)
	for _, row := range r.NewReader().Read().Sums {
		servers[row.Server] += row.Messages
	}

	if len(servers) != 9 || servers[stats.Other] != 12 || servers["server-7:1"] != 1 {
		t.Errorf("got %v, expected 8 servers and 12 messages of others", servers)
	}

	if s := r.Snapshot(); len(s.Closed) != 1 || s.Closed[0].Messages != 20 {
		t.Errorf("got %+v, expected one row", s.Closed)
	}

	if got := errs.all(); len(got) != 1 || !strings.Contains(got[0], "more than 8 series by server") {
		t.Errorf("reported %q", got)
	}
}

func TestWrongOptionsAreReportedAndLeftOut(t *testing.T) {
	errs := collectErrors(t)
	r := stats.NewRegistry(stats.WithConnLimit(0), stats.WithSeriesLimit(-1), stats.WithBuckets(2, 1), nil, stats.WithWaitingLimit(-1))
	want := []string{
		"stats: WithConnLimit: 0, expected at least 1",
		"stats: WithSeriesLimit: -1, expected at least 1",
		"stats: WithBuckets: bound 1 (1) is not above bound 0 (2), expected increasing bounds",
		"stats: WithWaitingLimit: -1, expected at least 0",
	}

	if diff := cmp.Diff(want, errs.all()); diff != "" {
		t.Error(diff)
	}

	c := r.Open(stats.ConnInfo{})
	record(t.Context(), c.Series(stats.Key{}), 1, 1)

	if diff := cmp.Diff(stats.DefaultBuckets(), r.Snapshot().Total[0].Wire.Bounds); diff != "" || c.ID() != 1 {
		t.Error(diff)
	}
}

func TestABoundSliceMayBeChangedAfterwards(t *testing.T) {
	bounds := []float64{1, 2}
	r := stats.NewRegistry(stats.WithBuckets(bounds...))
	bounds[0] = 100
	s := r.Open(stats.ConnInfo{}).Series(stats.Key{})
	s.Record(t.Context(), 1, 1)

	if got := r.Snapshot().Total[0].Wire; got.Counts[0] != 1 || got.Bounds[0] != 1 {
		t.Errorf("got %+v", got)
	}
}
