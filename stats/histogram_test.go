package stats_test

import (
	"math"
	"testing"

	"github.com/otelproto/otelproto-go/stats"
)

func TestQuantilesLieEvenlyWithinTheirBucket(t *testing.T) {
	bounds := []float64{0, 10, 20, 40}

	for _, c := range []struct {
		name   string
		counts []uint64
		q      float64
		want   float64
	}{
		{"nothing", []uint64{0, 0, 0, 0, 0}, 0.5, 0},
		{"half of one bucket", []uint64{0, 10, 0, 0, 0}, 0.5, 5},
		{"all of one bucket", []uint64{0, 10, 0, 0, 0}, 1, 10},
		{"none of one bucket", []uint64{0, 10, 0, 0, 0}, 0, 0},
		{"the least of a later bucket", []uint64{0, 0, 0, 4, 0}, 0, 20},
		{"between two buckets", []uint64{0, 5, 5, 0, 0}, 0.5, 10},
		{"in the second of two", []uint64{0, 5, 5, 0, 0}, 0.75, 15},
		{"over an empty bucket", []uint64{0, 5, 0, 5, 0}, 0.75, 30},
		{"zeros only", []uint64{7, 0, 0, 0, 0}, 0.9, 0},
		{"above the last bound", []uint64{0, 0, 0, 0, 3}, 0.5, 40},
		{"partly above the last bound", []uint64{0, 1, 0, 0, 1}, 0.9, 40},
		{"below 0", []uint64{0, 10, 0, 0, 0}, -1, 0},
		{"above 1", []uint64{0, 10, 0, 0, 0}, 2, 10},
	} {
		h := stats.Histogram{Bounds: bounds, Counts: c.counts}
		if got := h.Quantile(c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: quantile %v is %v, expected %v", c.name, c.q, got, c.want)
		}
	}
}

// The first bucket has no lower end; sizes are not negative, so that it begins at 0.
func TestQuantilesBeginAtZero(t *testing.T) {
	h := stats.Histogram{Bounds: []float64{100, 200}, Counts: []uint64{10, 0, 0}}
	if got := h.Quantile(0.5); got != 50 {
		t.Errorf("got %v, expected 50", got)
	}
}

func TestABoundBelowZeroIsNoSize(t *testing.T) {
	h := stats.Histogram{Bounds: []float64{-100, 100}, Counts: []uint64{0, 10, 0}}
	if got := h.Quantile(0.5); got != 50 {
		t.Errorf("got %v, expected 50", got)
	}
}

func TestWithoutBoundsTheMeanIsAllThereIs(t *testing.T) {
	h := stats.Histogram{Counts: []uint64{4}, Sum: 100}
	if h.Count() != 4 || h.Mean() != 25 || h.Quantile(0.99) != 25 {
		t.Errorf("count %d, mean %v, quantile %v; expected 4, 25, 25", h.Count(), h.Mean(), h.Quantile(0.99))
	}

	var none stats.Histogram
	if none.Mean() != 0 || none.Quantile(0.5) != 0 || none.Count() != 0 {
		t.Error("an empty histogram has a value")
	}
}

func TestRatioIsUncompressedByWire(t *testing.T) {
	s := newTestSeries(t)
	if got := s.row().Ratio(); got != 0 {
		t.Errorf("nothing counted: ratio %v, expected 0", got)
	}

	s.Record(t.Context(), 25, 100)

	if got := s.row().Ratio(); got != 4 {
		t.Errorf("ratio %v, expected 4", got)
	}
}
