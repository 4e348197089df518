package stats_test

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/stats"
)

// closedMessages gives the number of messages by connection.
func closedMessages(closed []stats.ClosedConn) map[uint64]uint64 {
	n := make(map[uint64]uint64)

	for _, c := range closed {
		n[c.ID] = 0
		for _, r := range c.Rows {
			n[c.ID] += r.Messages
		}
	}

	return n
}

func TestEveryReaderSeesAClosedConnectionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stats.NewRegistry()
		before := r.Open(stats.ConnInfo{})
		before.Close()

		one, two := r.NewConnReader(), r.NewConnReader()
		a, b := r.Open(stats.ConnInfo{}), r.Open(stats.ConnInfo{})
		record(t.Context(), a.Series(stats.Key{Type: "A"}), 3, 10)
		record(t.Context(), b.Series(stats.Key{Type: "A"}), 5, 10)

		if got := one.Read(); len(got.Conns) != 2 || len(got.Closed) != 0 || got.Live != 2 || got.Sums != nil {
			t.Errorf("got %+v", got)
		}

		time.Sleep(time.Second)

		opened := time.Now()
		brief := r.Open(stats.ConnInfo{})

		time.Sleep(time.Second)
		record(t.Context(), a.Series(stats.Key{Type: "A"}), 4, 10)
		a.Close()
		brief.Close()

		closed := time.Now()

		time.Sleep(time.Second)

		first := one.Read()
		if diff := cmp.Diff(map[uint64]uint64{a.ID(): 7, brief.ID(): 0}, closedMessages(first.Closed)); diff != "" {
			t.Error(diff)
		}

		if c := first.Closed[1]; !c.Opened.Equal(opened) || !c.Closed.Equal(closed) || c.Late {
			t.Errorf("got %+v", c)
		}

		if first.Time.Sub(first.Last) != 3*time.Second {
			t.Errorf("from %v to %v", first.Last, first.Time)
		}

		b.Close()

		if diff := cmp.Diff(map[uint64]uint64{b.ID(): 5}, closedMessages(one.Read().Closed)); diff != "" {
			t.Error(diff)
		}

		want := map[uint64]uint64{a.ID(): 7, brief.ID(): 0, b.ID(): 5}
		if diff := cmp.Diff(want, closedMessages(two.Read().Closed)); diff != "" {
			t.Error(diff)
		}

		if got := two.Read(); len(got.Closed)+len(got.Conns) != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestWhatComesLateIsReadOnceMore(t *testing.T) {
	r := stats.NewRegistry()
	early, late := r.NewConnReader(), r.NewConnReader()
	c := r.Open(stats.ConnInfo{})
	s := c.Series(stats.Key{Type: "A"})
	record(t.Context(), s, 3, 10)
	c.Close()

	if got := early.Read().Closed; len(got) != 1 || got[0].Late {
		t.Errorf("got %+v", got)
	}

	record(t.Context(), s, 4, 10)
	record(t.Context(), c.Series(stats.Key{Type: "B"}), 1, 10)

	got := early.Read().Closed
	if len(got) != 1 || !got[0].Late || got[0].ID != c.ID() {
		t.Errorf("got %+v", got)
	}

	if diff := cmp.Diff(map[string]uint64{"A": 4, "B": 1}, messages(got[0].Rows)); diff != "" {
		t.Error(diff)
	}

	got = late.Read().Closed
	if len(got) != 1 || got[0].Late {
		t.Errorf("got %+v, expected one connection with all it has", got)
	}

	if diff := cmp.Diff(map[string]uint64{"A": 7, "B": 1}, messages(got[0].Rows)); diff != "" {
		t.Error(diff)
	}
}

func TestAReaderThatDoesNotReadGetsTheRestTogether(t *testing.T) {
	errs := collectErrors(t)
	r := stats.NewRegistry(stats.WithWaitingLimit(10))
	lazy, eager := r.NewConnReader(), r.NewConnReader()

	var eagerSaw int

	for i := range 100 {
		c := r.Open(stats.ConnInfo{Client: i%2 == 0})
		record(t.Context(), c.Series(stats.Key{Type: "A"}), 2, 10)
		c.Close()

		closed := eager.Read().Closed
		eagerSaw += len(closed)

		if len(closed) != 1 || closed[0].ID != c.ID() {
			t.Fatalf("got %+v", closed)
		}
	}

	if eagerSaw != 100 {
		t.Errorf("the reader that reads saw %d connections", eagerSaw)
	}

	var all uint64

	named := 0

	for _, c := range lazy.Read().Closed {
		if c.ID != 0 {
			named++
		}

		all += messages(c.Rows)["A"]
	}

	// One row and the connection itself count as two.
	if all != 200 || named != 5 {
		t.Errorf("%d messages, %d connections told apart; expected 200 and 5", all, named)
	}

	if got := errs.all(); len(got) != 1 || !strings.Contains(got[0], "more than 10 series of closed connections wait for a reader") {
		t.Errorf("reported %q", got)
	}

	if got := messages(r.Snapshot().Closed)["A"]; got != 200 {
		t.Errorf("the snapshot has %d messages, expected 200", got)
	}
}

func TestAClosedReaderHoldsNothing(t *testing.T) {
	errs := collectErrors(t)
	r := stats.NewRegistry(stats.WithWaitingLimit(1))
	rd := r.NewConnReader()
	rd.Close()
	rd.Close()

	for range 10 {
		c := r.Open(stats.ConnInfo{})
		record(t.Context(), c.Series(stats.Key{Type: "A"}), 1, 10)
		c.Close()
	}

	if got := rd.Read(); got.Closed != nil || got.Conns != nil || len(errs.all()) != 0 {
		t.Errorf("got %+v, reported %q", got, errs.all())
	}
}

func TestSumsHaveOneRowForEachServer(t *testing.T) {
	r := stats.NewRegistry()
	rd := r.NewReader()

	for i, authority := range []string{"a", "b", "a"} {
		c := r.Open(stats.ConnInfo{Client: true, Authority: authority})
		record(t.Context(), c.Series(stats.Key{Type: "A"}), 1+i, 10)

		if i == 0 {
			c.Close()
		}
	}

	record(t.Context(), r.Open(stats.ConnInfo{Authority: "not a client"}).Series(stats.Key{Type: "A"}), 10, 10)

	got := make(map[string]uint64)
	for _, row := range rd.Read().Sums {
		got[row.Server] = row.Messages
	}

	if diff := cmp.Diff(map[string]uint64{"a": 4, "b": 2, "": 10}, got); diff != "" {
		t.Error(diff)
	}

	if reading := rd.Read(); reading.Conns != nil || reading.Closed != nil || reading.Live != 3 {
		t.Errorf("got %+v", reading)
	}
}

// A connection that closes while somebody reads is neither missing nor there twice.
func TestAConnectionThatClosesDuringAReadingIsInIt(t *testing.T) {
	r := stats.NewRegistry()
	conns, sums := r.NewConnReader(), r.NewReader()
	s := r.Wrap(fakeConn{addr: &net.TCPAddr{Port: 1}}, true)
	c := r.Open(stats.ConnInfo{Client: true, Local: s.LocalAddr(), Authority: "a"})
	record(t.Context(), c.Series(stats.Key{Type: "A"}), 3, 10)

	if _, err := s.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}

	want := stats.Sockets{Written: 100, MessagesWritten: 45}
	release := stats.HoldTotals(r)

	c.Close()
	_ = s.Close()

	if got := stats.ReadHeld(conns); len(got.Closed) != 0 || len(got.Conns) != 1 || got.Sockets != want ||
		messages(got.Conns[0].Rows)["A"] != 3 {
		t.Errorf("got %+v", got)
	}

	if got := stats.ReadHeld(sums); messages(got.Sums)["A"] != 3 || got.Sockets != want || got.Live != 0 {
		t.Errorf("got %+v", got)
	}

	got := stats.SnapshotHeld(r)
	if len(got.Conns) != 0 || messages(got.Closed)["A"] != 3 || messages(got.Total)["A"] != 3 ||
		got.ClosedSockets != want || got.Sockets != want {
		t.Errorf("got %+v", got)
	}

	if got.Closed[0].Server != "" || got.Total[0].Server != "" {
		t.Errorf("got %+v", got.Closed)
	}

	release()

	if got := conns.Read(); len(got.Conns) != 0 || messages(got.Closed[0].Rows)["A"] != 3 || got.Sockets != want {
		t.Errorf("got %+v", got)
	}
}

// An exemplar that a reader has had doesn't hide a newer, smaller one of another connection.
func TestANewerExemplarIsBetterThanALargerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stats.NewRegistry(stats.WithExemplars())
		old, young := r.Open(stats.ConnInfo{}), r.Open(stats.ConnInfo{})

		time.Sleep(time.Second)
		record(sampled(t.Context(), 1), old.Series(stats.Key{Type: "A"}), 1, 1_000)
		time.Sleep(time.Second)
		r.NewReader().Read()
		time.Sleep(time.Second)
		record(sampled(t.Context(), 2), young.Series(stats.Key{Type: "A"}), 1, 10)

		want := exemplarOf(2, 10, time.Now())
		if diff := cmp.Diff(want, r.Snapshot().Total[0].Exemplar); diff != "" {
			t.Error(diff)
		}

		young.Close()
		old.Close()

		if diff := cmp.Diff(want, r.Snapshot().Closed[0].Exemplar); diff != "" {
			t.Error(diff)
		}
	})
}
