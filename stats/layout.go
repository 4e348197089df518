package stats

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// prefixLen is the length of gRPC's message prefix: one byte of flags and four of length. A message that isn't
// compressed has wire = size + prefixLen. (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md)
const prefixLen = 5

// DefaultBuckets gives the bounds of both size histograms where none are chosen, in bytes.
func DefaultBuckets() []float64 {
	return []float64{
		0, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
	}
}

// CheckBuckets tells what is wrong with bounds; nil where they can be used. No bounds are good bounds.
func CheckBuckets(bounds ...float64) error {
	for i, b := range bounds {
		if math.IsNaN(b) || math.IsInf(b, 0) {
			return fmt.Errorf("bound %d is %v, expected a finite number", i, b)
		}

		if i > 0 && b <= bounds[i-1] {
			return fmt.Errorf("bound %d (%v) is not above bound %d (%v), expected increasing bounds", i, b, i-1, bounds[i-1])
		}
	}

	if len(bounds) > math.MaxInt16 {
		return errors.New("more than 32,767 bounds")
	}

	return nil
}

// farBeyond is a size that no message reaches; larger bounds are cut to it so that no sum here overflows.
const farBeyond = 1 << 60

// layout says which cell of a series counts a message. It is fixed when the registry is made and shared by all its series.
//
// A message with wire = size + prefixLen is counted once, in framed cells that are split at every bound b and at
// b − prefixLen, so that each framed cell lies within one bucket of the wire histogram and within one of the size
// histogram. Any other message is counted twice, once by its wire size and once by its size, in apart cells.
type layout struct {
	bounds []float64
	framed scale
	apart  scale
	// exemplars is the registry's option; it stands here because recording has the layout at hand.
	exemplars bool
	// wireOf and sizeOf give the bucket that a framed cell belongs to.
	wireOf, sizeOf []int16
}

func newLayout(bounds []float64) *layout {
	l := &layout{bounds: slices.Clone(bounds)}

	own, split := make([]int64, 0, len(bounds)), make([]int64, 0, 2*len(bounds))

	for _, b := range bounds {
		whole := int64(max(-1, min(math.Floor(b), farBeyond)))
		own = append(own, whole)
		split = append(split, whole, whole-prefixLen)
	}

	slices.Sort(split)
	split = slices.DeleteFunc(slices.Compact(split), func(upper int64) bool { return upper < 0 })
	l.apart, l.framed = newScale(own), newScale(split)

	// Every size in a framed cell is at most its upper bound and above the one before, so one of them decides for all.
	for _, upper := range append(split, 2*farBeyond) {
		l.wireOf = append(l.wireOf, int16(l.apart.cell(upper+prefixLen)))
		l.sizeOf = append(l.sizeOf, int16(l.apart.cell(upper)))
	}

	return l
}

// framedCells is the number of cells for messages with wire = size + prefixLen.
func (l *layout) framedCells() int { return len(l.framed.uppers) + 1 }

// apartCells is the number of cells for all other messages: two sums, the wire buckets, the size buckets.
func (l *layout) apartCells() int { return apartSums + 2*l.buckets() }

// buckets is the number of buckets of each of the two histograms.
func (l *layout) buckets() int { return len(l.bounds) + 1 }

// The order of the apart cells.
const (
	apartWireSum = iota
	apartSizeSum
	apartSums // the first wire bucket
)

// scale finds the cell of a value among inclusive upper bounds.
type scale struct {
	uppers []int64
	// first[k] is the first cell that can hold a value whose binary form has k digits.
	first [65]int32
}

func newScale(uppers []int64) scale {
	s := scale{uppers: uppers}

	for digits := range s.first {
		least := int64(0)
		if digits > 0 {
			least = int64(min(uint64(1)<<(digits-1), math.MaxInt64))
		}

		i, _ := slices.BinarySearch(uppers, least)
		s.first[digits] = int32(i)
	}

	return s
}

// cell gives the index of the first upper bound that is at least n, or the number of bounds. n is not negative.
//
// Starting from the number of digits leaves two comparisons with the default bounds; a binary search over all of them
// takes five and predicts worse.
func (s *scale) cell(n int64) int {
	digits := bits.Len64(uint64(n)) & 63
	i := int(s.first[digits])

	if last := int(s.first[digits+1]); last-i > linearCells {
		i += searchUpper(s.uppers[i:last], n)
	}

	for i < len(s.uppers) && n > s.uppers[i] {
		i++
	}

	return i
}

// linearCells is how many bounds within one power of two are compared one by one.
const linearCells = 8

func searchUpper(uppers []int64, n int64) int {
	i, _ := slices.BinarySearch(uppers, n)

	return i
}
