package stats_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/stats"
)

// count is what plain arithmetic keeps of a row.
type count struct{ messages, wire, size uint64 }

// ledger is plain arithmetic over keys.
type ledger map[stats.Key]count

func (l ledger) record(k stats.Key, wire, size int) {
	c := l[k]
	l[k] = count{c.messages + 1, c.wire + uint64(wire), c.size + uint64(size)}
}

func (l ledger) add(other ledger) {
	for k, o := range other {
		c := l[k]
		l[k] = count{c.messages + o.messages, c.wire + o.wire, c.size + o.size}
	}
}

func ledgerOf(t *testing.T, rows []stats.Row) ledger {
	t.Helper()

	l := make(ledger)

	for _, r := range rows {
		if r.Messages == 0 && r.Wire.Sum == 0 && r.Size.Sum == 0 {
			continue
		}

		if r.Messages != r.Wire.Count() || r.Messages != r.Size.Count() {
			t.Fatalf("%d messages, histograms of %d and %d", r.Messages, r.Wire.Count(), r.Size.Count())
		}

		l.add(ledger{r.Key: {r.Messages, r.Wire.Sum, r.Size.Sum}})
	}

	return l
}

func newSeed(t *testing.T) *rand.Rand {
	t.Helper()

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	return rand.New(rand.NewPCG(seed, 0))
}

func randomKey(rnd *rand.Rand) stats.Key {
	return stats.Key{
		Method: fmt.Sprint("m", rnd.IntN(3)), Direction: stats.Direction(rnd.IntN(2)), Type: fmt.Sprint("T", rnd.IntN(3)),
		Retry: rnd.IntN(8) == 0,
	}
}

func randomSizes(rnd *rand.Rand) (wire, size int) {
	size = rnd.IntN(1 << rnd.IntN(24))
	if rnd.IntN(4) == 0 {
		return rnd.IntN(size + 10), size
	}

	return size + 5, size
}

// Random opens, records, closes, late records, readings and snapshots against plain arithmetic.
func TestSnapshotsAndReadersAgreeWithPlainArithmetic(t *testing.T) {
	collectErrors(t)

	rnd := newSeed(t)

	for range 20 {
		runModel(t, rnd)
	}
}

type modelConn struct {
	conn   *stats.Conn
	counts ledger
	closed bool
}

func runModel(t *testing.T, rnd *rand.Rand) {
	r := stats.NewRegistry(stats.WithConnLimit(1+rnd.IntN(8)), stats.WithWaitingLimit(rnd.IntN(40)))
	readers := []*stats.Reader{r.NewConnReader(), r.NewConnReader(), r.NewConnReader()}
	closedSeen := make([]ledger, len(readers))
	sums := r.NewReader()

	for i := range closedSeen {
		closedSeen[i] = make(ledger)
	}

	var conns []*modelConn

	live, closed := make(ledger), make(ledger)
	all := func() ledger {
		l := make(ledger)
		l.add(live)
		l.add(closed)

		return l
	}

	refresh := func() {
		live = make(ledger)
		for _, c := range conns {
			if !c.closed {
				live.add(c.counts)
			}
		}
	}

	var previous stats.Snapshot

	atPrevious := make(ledger)

	for step := range 600 {
		switch op := rnd.IntN(100); {
		case op < 10 || len(conns) == 0:
			conns = append(conns, &modelConn{
				conn: r.Open(stats.ConnInfo{Client: rnd.IntN(2) == 0, Authority: "a"}), counts: make(ledger),
			})
		case op < 80:
			c := conns[rnd.IntN(len(conns))]
			k := randomKey(rnd)
			wire, size := randomSizes(rnd)
			c.conn.Series(k).Record(t.Context(), wire, size)

			if c.closed {
				closed.record(k, wire, size)
			} else {
				c.counts.record(k, wire, size)
			}
		case op < 88:
			c := conns[rnd.IntN(len(conns))]
			c.conn.Close()

			if !c.closed {
				c.closed = true
				closed.add(c.counts)
			}
		case op < 94:
			i := rnd.IntN(len(readers))
			reading := readers[i].Read()
			now := make(ledger)

			for _, c := range reading.Closed {
				closedSeen[i].add(ledgerOf(t, c.Rows))
			}

			now.add(closedSeen[i])

			for _, c := range reading.Conns {
				now.add(ledgerOf(t, c.Rows))
			}

			refresh()

			if diff := cmp.Diff(all(), now, cmp.AllowUnexported(count{})); diff != "" {
				t.Fatalf("step %d, reader %d: %s", step, i, diff)
			}
		default:
			refresh()

			s := r.Snapshot()
			open := make(ledger)

			for _, c := range s.Conns {
				open.add(ledgerOf(t, c.Rows))

				for _, m := range conns {
					if c.ID == 0 || c.ID != m.conn.ID() {
						continue
					}

					if m.closed || !cmp.Equal(m.counts, ledgerOf(t, c.Rows), cmp.AllowUnexported(count{})) {
						t.Fatalf("step %d: connection %d has %v, expected %v", step, c.ID, ledgerOf(t, c.Rows), m.counts)
					}
				}
			}

			for _, c := range []struct {
				name string
				want ledger
				got  ledger
			}{
				{"total", all(), ledgerOf(t, s.Total)},
				{"sums", all(), ledgerOf(t, sums.Read().Sums)},
			} {
				if diff := cmp.Diff(c.want, c.got, cmp.AllowUnexported(count{})); diff != "" {
					t.Fatalf("step %d, %s: %s", step, c.name, diff)
				}
			}

			// What a connection beyond the limit counted moves only when the last of them closes.
			both := ledgerOf(t, s.Closed)
			both.add(open)

			if diff := cmp.Diff(all(), both, cmp.AllowUnexported(count{})); diff != "" {
				t.Fatalf("step %d, closed and live: %s", step, diff)
			}

			window := ledgerOf(t, s.Sub(previous).Total)
			window.add(atPrevious)

			if diff := cmp.Diff(all(), window, cmp.AllowUnexported(count{})); diff != "" {
				t.Fatalf("step %d, window: %s", step, diff)
			}

			previous, atPrevious = s, all()
		}
	}
}

// The same from real goroutines, checked when all is quiet.
func TestNothingIsLostOrCountedTwiceUnderConcurrency(t *testing.T) {
	collectErrors(t)

	rnd := newSeed(t)
	r := stats.NewRegistry(stats.WithConnLimit(20), stats.WithWaitingLimit(50), stats.WithExemplars())
	readers := []*stats.Reader{r.NewConnReader(), r.NewConnReader()}
	sums := r.NewReader()

	var (
		workers, watchers sync.WaitGroup
		mu                sync.Mutex
		done              atomic.Bool
	)

	want := make(ledger)

	for range 6 {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))

		workers.Go(func() {
			mine := make(ledger)

			for range 60 {
				c := r.Open(stats.ConnInfo{Client: rnd.IntN(2) == 0})
				late := c.Series(randomKey(rnd))

				var inner sync.WaitGroup
				for range 2 {
					rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
					part := make(ledger)

					inner.Go(func() {
						for range 50 {
							k := randomKey(rnd)
							wire, size := randomSizes(rnd)
							c.Series(k).Record(sampled(t.Context(), 1), wire, size)
							part.record(k, wire, size)
						}

						late.Record(t.Context(), 15, 10)

						mu.Lock()
						defer mu.Unlock()

						mine.add(part)
					})
				}

				if rnd.IntN(3) > 0 {
					inner.Wait()
				}

				c.Close() // now and then with messages still to come
				inner.Wait()

				mu.Lock()
				mine.add(ledger{lateKey(late): {2, 30, 20}})
				mu.Unlock()
			}

			mu.Lock()
			defer mu.Unlock()

			want.add(mine)
		})
	}

	closedSeen := []ledger{make(ledger), make(ledger)}
	read := func(i int) {
		for _, c := range readers[i].Read().Closed {
			closedSeen[i].add(sumsOf(c.Rows))
		}
	}

	for i := range readers {
		watchers.Go(func() {
			for !done.Load() {
				read(i)
			}
		})
	}

	watchers.Go(func() {
		var before, beforeSums uint64

		for !done.Load() {
			if n := wireOf(r.Snapshot().Total); n < before {
				t.Errorf("the total went from %d to %d", before, n)
			} else {
				before = n
			}

			if n := wireOf(sums.Read().Sums); n < beforeSums {
				t.Errorf("the sums went from %d to %d", beforeSums, n)
			} else {
				beforeSums = n
			}
		}
	})

	workers.Wait()
	done.Store(true)
	watchers.Wait()

	s := r.Snapshot()
	if len(s.Conns) != 0 {
		t.Errorf("%d live connections, expected none", len(s.Conns))
	}

	read(0)
	read(1)

	for name, got := range map[string]ledger{
		"closed": ledgerOf(t, s.Closed), "total": ledgerOf(t, s.Total), "sums": ledgerOf(t, sums.Read().Sums),
		"first reader": closedSeen[0], "second reader": closedSeen[1],
	} {
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(count{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// sumsOf is ledgerOf without the check, which holds only when nothing is recorded meanwhile.
func sumsOf(rows []stats.Row) ledger {
	l := make(ledger)
	for _, r := range rows {
		l.add(ledger{r.Key: {r.Messages, r.Wire.Sum, r.Size.Sum}})
	}

	return l
}

func wireOf(rows []stats.Row) (n uint64) {
	for _, r := range rows {
		n += r.Wire.Sum
	}

	return n
}

// Open, Series, Record and Close go on while somebody reads for long.
func TestNobodyWaitsForAReader(t *testing.T) {
	r := stats.NewRegistry()
	release := stats.HoldTotals(r)
	rd := make(chan uint64)

	go func() { rd <- wireOf(r.Snapshot().Closed) }()

	var want uint64

	for i := range 50 {
		c := r.Open(stats.ConnInfo{})
		s := c.Series(stats.Key{Type: strconv.Itoa(i)})
		s.Record(t.Context(), 105, 100)
		c.Close()
		s.Record(t.Context(), 105, 100)

		want += 210
	}

	release()

	if got := <-rd; got != want {
		t.Errorf("%d bytes, expected %d", got, want)
	}
}

func lateKey(s *stats.Series) stats.Key { return stats.KeyOf(s) }

func TestRowsComeInTheOrderInWhichTheirKeysWereSeen(t *testing.T) {
	r := stats.NewRegistry()
	one, two := r.Open(stats.ConnInfo{}), r.Open(stats.ConnInfo{})
	types := []string{"C", "A", "B"}

	for i, name := range types {
		record(t.Context(), []*stats.Conn{one, two}[i%2].Series(stats.Key{Type: name}), 1, 1)
	}

	for i := range types {
		record(t.Context(), two.Series(stats.Key{Type: types[len(types)-1-i]}), 1, 1)
	}

	s := r.Snapshot()
	for _, rows := range [][]stats.Row{s.Total, s.Conns[1].Rows} {
		var got []string
		for _, row := range rows {
			got = append(got, row.Key.Type)
		}

		if !slices.Equal(got, types) {
			t.Errorf("got %v, expected %v", got, types)
		}
	}
}
