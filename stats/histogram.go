package stats

import "slices"

// Histogram counts sizes in bytes. Counts[i] is the number of values in (Bounds[i-1], Bounds[i]]; the first count has no
// lower end, the last no upper end, so Counts has one element more than Bounds. Bounds is shared: don't change it.
type Histogram struct {
	Bounds []float64
	Counts []uint64
	Sum    uint64
}

// Count is the number of values.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}

	return n
}

// Mean is the average value; 0 where there is none.
func (h Histogram) Mean() float64 {
	n := h.Count()
	if n == 0 {
		return 0
	}

	return float64(h.Sum) / float64(n)
}

// Quantile estimates the value below which the share q (0 to 1) of the values lie, as Prometheus' histogram_quantile does:
// values are taken to lie evenly within their bucket, and those above the last bound at that bound.
// Without bounds it gives the mean, without values 0.
func (h Histogram) Quantile(q float64) float64 {
	if len(h.Bounds) == 0 {
		return h.Mean()
	}

	all := h.Count()
	if all == 0 {
		return 0
	}

	rank := max(0, min(q, 1)) * float64(all)

	var below float64

	for i, c := range h.Counts {
		n := float64(c)
		if n == 0 || below+n < rank {
			below += n

			continue
		}

		if i == len(h.Bounds) {
			break
		}

		var lower float64
		if i > 0 {
			lower = max(0, h.Bounds[i-1])
		}

		return lower + (h.Bounds[i]-lower)*max(0, rank-below)/n
	}

	return h.Bounds[len(h.Bounds)-1]
}

func addHistogram(h *Histogram, other Histogram) {
	h.Sum += other.Sum
	for i := range min(len(h.Counts), len(other.Counts)) {
		h.Counts[i] += other.Counts[i]
	}
}

// subHistogram takes away what an earlier reading had. A reading that isn't earlier takes away no more than there is.
func subHistogram(h *Histogram, earlier Histogram) {
	h.Sum -= min(h.Sum, earlier.Sum)

	for i := range min(len(h.Counts), len(earlier.Counts)) {
		h.Counts[i] -= min(h.Counts[i], earlier.Counts[i])
	}
}

func (h Histogram) clone() Histogram {
	h.Counts = slices.Clone(h.Counts)

	return h
}
