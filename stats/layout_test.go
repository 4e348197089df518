package stats_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/stats"
)

// naive is a histogram as its definition has it.
type naive struct {
	bounds []float64
	counts []uint64
	sum    uint64
}

func newNaive(bounds []float64) *naive {
	return &naive{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (n *naive) record(v int) {
	i := 0
	for i < len(n.bounds) && float64(v) > n.bounds[i] {
		i++
	}

	n.counts[i]++
	n.sum += uint64(v)
}

func (n *naive) check(t *testing.T, name string, got stats.Histogram) {
	t.Helper()

	if !slices.Equal(got.Counts, n.counts) || got.Sum != n.sum {
		t.Fatalf("%s with bounds %v: counts %v, sum %d; expected %v, %d", name, n.bounds, got.Counts, got.Sum, n.counts, n.sum)
	}
}

var someBounds = map[string][]float64{
	"default":      stats.DefaultBuckets(),
	"none":         {},
	"one":          {100},
	"zero":         {0},
	"negative":     {-100, -1, 0, 7},
	"negativeOnly": {-3.5},
	"fractions":    {0.5, 1.5, 4.2, 4.9, 5.1, 10.5, 99.999},
	"dense":        oneByOne(34),
	"fiveApart":    {5, 10, 15, 20, 25},
	"huge":         {1, 1e18, 1e19, 1e300, math.MaxFloat64},
	"tiny":         {math.SmallestNonzeroFloat64, 0.25, 1},
	"powers":       {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
}

func oneByOne(n int) []float64 {
	bounds := make([]float64, n)
	for i := range bounds {
		bounds[i] = float64(i)
	}

	return bounds
}

// sizesAround gives every size near a bound and near a bound less the prefix.
func sizesAround(bounds []float64) []int {
	sizes := []int{0, 1, 2, 3, 4, 5, 6, 7, 1 << 20, 1 << 31, 1 << 40}

	for _, b := range bounds {
		if b < 0 || b > 1<<50 {
			continue
		}

		for d := -12; d <= 12; d++ {
			if v := int(b) + d; v >= 0 {
				sizes = append(sizes, v)
			}
		}
	}

	slices.Sort(sizes)

	return slices.Compact(sizes)
}

func TestBothHistogramsAreThoseOfTwoNaiveOnes(t *testing.T) {
	for name, bounds := range someBounds {
		t.Run(name, func(t *testing.T) {
			wire, size := newNaive(bounds), newNaive(bounds)
			s := newTestSeries(t, stats.WithBuckets(bounds...))

			check := func(what string) {
				t.Helper()

				row := s.row()
				wire.check(t, what+", wire", row.Wire)
				size.check(t, what+", size", row.Size)

				if row.Messages != row.Wire.Count() || row.Messages != row.Size.Count() {
					t.Fatalf("%s: %d messages, expected the histograms' %d and %d", what, row.Messages, row.Wire.Count(), row.Size.Count())
				}
			}

			for _, n := range sizesAround(bounds) {
				s.Record(t.Context(), n+5, n)
				wire.record(n + 5)
				size.record(n)
			}

			check("uncompressed")

			for i, n := range sizesAround(bounds) {
				w := n/3 + i
				s.Record(t.Context(), w, n)
				wire.record(w)
				size.record(n)
			}

			check("compressed")
		})
	}
}

// One by one, so that two errors can't make up for each other.
func TestEverySizeAroundABoundFallsIntoItsBucket(t *testing.T) {
	for name, bounds := range someBounds {
		t.Run(name, func(t *testing.T) {
			s := newTestSeries(t, stats.WithBuckets(bounds...))

			before := s.row()
			for _, n := range sizesAround(bounds) {
				wire, size := newNaive(bounds), newNaive(bounds)
				wire.record(n + 5)
				size.record(n)
				s.Record(t.Context(), n+5, n)

				after := s.row()
				wire.check(t, "wire", minus(after.Wire, before.Wire))
				size.check(t, "size", minus(after.Size, before.Size))
				before = after
			}
		})
	}
}

func minus(a, b stats.Histogram) stats.Histogram {
	a.Counts = slices.Clone(a.Counts)
	for i := range a.Counts {
		a.Counts[i] -= b.Counts[i]
	}

	a.Sum -= b.Sum

	return a
}

func TestNegativeSizesCountAsZero(t *testing.T) {
	s := newTestSeries(t)
	s.Record(t.Context(), -1, math.MinInt)
	s.Record(t.Context(), -7, 3)

	row := s.row()
	if row.Messages != 2 || row.Wire.Sum != 0 || row.Size.Sum != 3 || row.Wire.Counts[0] != 2 || row.Size.Counts[0] != 1 {
		t.Errorf("got %+v, expected two messages of wire size 0", row)
	}
}

func TestBoundsThatCannotBeUsedAreNamed(t *testing.T) {
	for _, c := range []struct {
		bounds []float64
		want   string
	}{
		{[]float64{1, 1}, "bound 1 (1) is not above bound 0 (1), expected increasing bounds"},
		{[]float64{2, 1}, "bound 1 (1) is not above bound 0 (2), expected increasing bounds"},
		{[]float64{0, math.NaN()}, "bound 1 is NaN, expected a finite number"},
		{[]float64{math.Inf(1)}, "bound 0 is +Inf, expected a finite number"},
		{[]float64{math.Inf(-1)}, "bound 0 is -Inf, expected a finite number"},
		{make([]float64, 40_000), "bound 1 (0) is not above bound 0 (0), expected increasing bounds"},
		{manyBounds(32_768), "more than 32,767 bounds"},
	} {
		err := stats.CheckBuckets(c.bounds...)
		if err == nil || err.Error() != c.want {
			t.Errorf("got %v, expected %s", err, c.want)
		}
	}

	for name, bounds := range someBounds {
		if err := stats.CheckBuckets(bounds...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func manyBounds(n int) []float64 {
	bounds := make([]float64, n)
	for i := range bounds {
		bounds[i] = float64(i * 10)
	}

	return bounds
}

// The number of cells, twice that of the bounds, must fit the table of the layout.
func TestTheLargestNumberOfBoundsWorks(t *testing.T) {
	bounds := manyBounds(32_767)
	s := newTestSeries(t, stats.WithBuckets(bounds...))
	wire, size := newNaive(bounds), newNaive(bounds)

	for _, n := range []int{0, 5, 6, 10, 163_840, 163_835, 200_000, 327_660, 327_655, 327_661, 1 << 30} {
		s.Record(t.Context(), n+5, n)
		s.Record(t.Context(), n, n)
		wire.record(n + 5)
		wire.record(n)
		size.record(n)
		size.record(n)
	}

	row := s.row()
	wire.check(t, "wire", row.Wire)
	size.check(t, "size", row.Size)
}

func FuzzHistograms(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1}, []byte{0, 0, 0, 5, 0, 0, 0, 0})
	f.Add(binary.BigEndian.AppendUint32(nil, 1024), binary.BigEndian.AppendUint64(nil, 1029<<32|1024))
	f.Fuzz(func(t *testing.T, boundBytes, sizeBytes []byte) {
		var bounds []float64

		for ; len(boundBytes) >= 4 && len(bounds) < 64; boundBytes = boundBytes[4:] {
			// Bits of 32-bit numbers reach negative, tiny, huge and fractional bounds, and close ones.
			b := float64(math.Float32frombits(binary.BigEndian.Uint32(boundBytes)))
			if boundBytes[3]%2 == 0 {
				b = float64(int16(binary.BigEndian.Uint16(boundBytes)))
			}

			bounds = append(bounds, b)
		}

		slices.Sort(bounds)
		bounds = slices.Compact(bounds)

		if stats.CheckBuckets(bounds...) != nil {
			return
		}

		s := newTestSeries(t, stats.WithBuckets(bounds...))
		wire, size := newNaive(bounds), newNaive(bounds)

		for ; len(sizeBytes) >= 8; sizeBytes = sizeBytes[8:] {
			w, n := int(binary.BigEndian.Uint32(sizeBytes)), int(binary.BigEndian.Uint32(sizeBytes[4:]))
			if w%3 > 0 {
				w = n + 5
			}

			s.Record(t.Context(), w, n)
			wire.record(w)
			size.record(n)
		}

		row := s.row()
		wire.check(t, "wire", row.Wire)
		size.check(t, "size", row.Size)
	})
}

func TestARowIsCutOffFromTheRegistry(t *testing.T) {
	s := newTestSeries(t)
	s.Record(t.Context(), 6, 1)

	row := s.row()
	want := slices.Clone(row.Wire.Counts)
	s.Record(t.Context(), 6, 1)

	if diff := cmp.Diff(want, row.Wire.Counts); diff != "" {
		t.Error(diff)
	}
}
