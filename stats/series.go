package stats

import (
	"context"
	"sync/atomic"
	"unsafe"
)

// Series counts the messages of one key on one connection. Get it from [Conn.Series] and keep it.
//
// There can be very many series, so the struct is kept to 48 bytes and a layout knows the lengths of its cells.
type Series struct {
	row *row
	// framed counts messages with wire = size + prefixLen, sum their sizes.
	framed cells
	sum    atomic.Uint64
	// apart counts all others; nil until there is one.
	apart atomic.Pointer[atomic.Uint64]
	// exemplar is the largest message of a sampled span since the last reading; always nil without [WithExemplars].
	exemplar atomic.Pointer[Exemplar]
	// retired is set to the series' connection before the cells are moved to the totals of closed connections.
	retired atomic.Pointer[connection]
}

func newSeries(r *row) *Series {
	return &Series{row: r, framed: newCells(r.registry.layout.framedCells())}
}

// Record counts one message of wire bytes on the wire (payload as sent, plus framing) and of size bytes uncompressed.
//
// It takes no lock and allocates nothing (but for the first message of a series whose wire size is not size + 5, and exemplars),
// is safe for concurrent use, and may be called after the connection is closed: the message then counts in the totals
// of closed connections. Negative numbers count as zero. ctx is that of the RPC: with
// [WithExemplars] the largest message keeps its sampled span.
func (s *Series) Record(ctx context.Context, wire, size int) {
	wire, size = max(wire, 0), max(size, 0)
	l := s.row.registry.layout

	if l.exemplars { // first, so that ctx needn't be kept
		s.observe(ctx, wire, size)
	}

	if wire == size+prefixLen {
		s.framed.slice(l.framedCells())[l.framed.cell(int64(size))].Add(1)
		s.sum.Add(uint64(size))
	} else {
		s.recordApart(wire, size)
	}

	// The cells were written before this is read, and whoever moves the cells sets this before it reads them: so either
	// the mover sees the message or we see the mover.
	if s.retired.Load() != nil {
		s.row.registry.recordedLate(s)
	}
}

func (s *Series) recordApart(wire, size int) {
	l := s.row.registry.layout

	first := s.apart.Load()
	if first == nil {
		s.apart.CompareAndSwap(nil, newCells(l.apartCells()).first)
		first = s.apart.Load()
	}

	c := cells{first}.slice(l.apartCells())
	c[apartWireSum].Add(uint64(wire))
	c[apartSizeSum].Add(uint64(size))
	c[apartSums+l.apart.cell(int64(wire))].Add(1)
	c[apartSums+l.buckets()+l.apart.cell(int64(size))].Add(1)
}

// addTo adds what the series has counted to a row, and takes it out of the series if take is set.
func (s *Series) addTo(r *Row, take bool) {
	l := s.row.registry.layout

	if e := s.exemplar.Load(); e != nil {
		r.Exemplar = e
		if take {
			r.Exemplar = s.exemplar.Swap(nil)
		}
	}

	value := func(c *atomic.Uint64) uint64 {
		if take {
			return c.Swap(0)
		}

		return c.Load()
	}

	var framed uint64

	for i := range s.framed.slice(l.framedCells()) {
		n := value(&s.framed.slice(l.framedCells())[i])
		if n == 0 {
			continue
		}

		framed += n
		r.Wire.Counts[l.wireOf[i]] += n
		r.Size.Counts[l.sizeOf[i]] += n
	}

	sum := value(&s.sum)
	r.Messages += framed
	r.Size.Sum += sum
	r.Wire.Sum += sum + framed*prefixLen

	first := s.apart.Load()
	if first == nil {
		return
	}

	c := cells{first}.slice(l.apartCells())
	r.Wire.Sum += value(&c[apartWireSum])
	r.Size.Sum += value(&c[apartSizeSum])

	for i := range l.buckets() {
		n := value(&c[apartSums+i])
		r.Messages += n
		r.Wire.Counts[i] += n
		r.Size.Counts[i] += value(&c[apartSums+l.buckets()+i])
	}
}

// cells is a run of counters whose length the layout knows. A slice would cost 16 bytes more, twice in every series,
// and with default buckets a series that counts compressed messages too would no longer fit in 512 bytes.
type cells struct{ first *atomic.Uint64 }

func newCells(n int) cells { return cells{&make([]atomic.Uint64, n)[0]} }

// slice gives the cells; n must be what newCells was given.
func (c cells) slice(n int) []atomic.Uint64 {
	return unsafe.Slice(c.first, n) //nolint:gosec // n comes from the layout that newCells was given
}
