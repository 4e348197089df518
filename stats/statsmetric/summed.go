package statsmetric

import (
	"slices"

	"github.com/otelproto/otelproto-go/stats"
)

// summed exports the sums over all connections.
type summed struct {
	sockets socketPoints
	// before has the rows of the export before, for deltas.
	before map[rowID]stats.Row
}

func newSummed() *summed { return &summed{before: make(map[rowID]stats.Row)} }

func (s *summed) produce(b *points, r *stats.Reading) {
	start := r.Start
	if b.delta {
		start = r.Last
	}

	if !b.delta {
		b.expect(r.Sums)
	}

	for i := range r.Sums {
		row := r.Sums[i]

		if b.delta {
			id := idOf(&row)
			now := row
			row = less(row, s.before[id])
			s.before[id] = now
		}

		if !empty(&row) {
			b.row(&row, start)
		}
	}

	b.sockets(r.Sockets, &s.sockets, start)
}

func empty(r *stats.Row) bool { return r.Messages == 0 && r.Wire.Sum == 0 && r.Size.Sum == 0 }

// less gives what a row has more than before. Neither is changed.
func less(now, before stats.Row) stats.Row {
	now.Messages -= before.Messages
	now.Wire, now.Size = lessHistogram(now.Wire, before.Wire), lessHistogram(now.Size, before.Size)

	return now
}

func lessHistogram(now, before stats.Histogram) stats.Histogram {
	now.Sum -= before.Sum
	now.Counts = slices.Clone(now.Counts)

	for i, n := range before.Counts {
		now.Counts[i] -= n
	}

	return now
}
