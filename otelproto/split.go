package otelproto

import (
	"context"
	"math"
	"math/bits"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/otelproto/otelproto-go/stats"
)

// maxElements is how many elements of one message are told apart. The SDK takes about a microsecond to record one, and a peer can
// put two million of them into the 4 MiB that grpc-go receives by default.
const maxElements = 1 << 16

// parts is where the elements of one kind of message are recorded.
type parts struct {
	// byCase has the entries of elements by the case that is set. Written under route.mu, and replaced, never changed.
	byCase atomic.Pointer[map[oneofCase]*entry]
	// unsplit is for messages without elements. It is made for the first of them, or there would be a series that counts nothing.
	unsplit atomic.Pointer[recorder]
}

// split counts each element of a message as one, with its share of the message's sizes.
//
// The elements are walked twice, first for the sum of their sizes. Keeping the sizes in between would need memory that a
// peer chooses the amount of.
func (r *route) split(ctx context.Context, d stats.Direction, whole *entry, payload any, wire, size int) {
	m := whole.message
	all, n, total := m.measure(payload)

	if n == 0 {
		r.unsplit(d, whole).Record(ctx, wire, size)

		return
	}

	even := total == 0
	if even {
		total = uint64(n)
	}

	wires, sizes := newShares(wire, total), newShares(size, total)

	var e *entry

	for i := range min(n, maxElements) {
		element, weight := m.weigh(all, i)

		switch {
		case i == n-1:
			weight = total // the rest, whatever became of the sizes since they were added up
		case even:
			weight = 1
		}

		if element == nil {
			r.unsplit(d, whole).Record(ctx, wires.next(weight), sizes.next(weight))

			continue
		}

		if e == nil || !e.matches(element) {
			e = r.element(d, whole, element)
		}

		e.recorder.Record(ctx, wires.next(weight), sizes.next(weight))
	}

	if n > maxElements {
		m.reported.handlef("otelproto: more than %d elements in a %s: the rest of a message counts as one %s", maxElements, m.name, other)

		rest := r.series(entryKey{direction: d, message: m.name, variant: other})
		rest.Record(ctx, wires.next(total), sizes.next(total))
	}
}

// element finds the entry of an element of a message, creating it the first time.
func (r *route) element(d stats.Direction, whole *entry, payload any) *entry {
	message := whole.message.repeated.element
	if message.how != byField {
		return r.named(d, message, payload, true)
	}

	c := caseAt(payload, message.field)

	e := lookup(&whole.parts.byCase, c)
	if e == nil {
		e = r.named(d, message, payload, true)

		r.mu.Lock()
		store(&whole.parts.byCase, c, e)
		r.mu.Unlock()
	}

	return e
}

// unsplit gives the recorder for messages without elements.
func (r *route) unsplit(d stats.Direction, whole *entry) recorder {
	if p := whole.parts.unsplit.Load(); p != nil {
		return *p
	}

	rec := r.series(entryKey{direction: d, message: whole.message.name})
	whole.parts.unsplit.Store(&rec)

	return rec
}

// shares hands out a whole in parts that add up to it exactly: each ends where its weight and those before it reach, rounded down.
type shares struct{ whole, total, weight, given uint64 }

func newShares(whole int, total uint64) shares {
	return shares{whole: uint64(max(whole, 0)), total: total}
}

func (s *shares) next(weight uint64) int {
	s.weight = min(s.weight+weight, s.total)
	hi, lo := bits.Mul64(s.whole, s.weight)
	end, _ := bits.Div64(hi, lo, s.total) // no more than whole, since weight is no more than total
	part := end - s.given
	s.given = end

	return int(part)
}

// measure gives a message's elements, how many there are, and the sum of their sizes.
func (m *messageType) measure(payload any) (all elements, n int, total uint64) {
	// The message may be nobody's, and must not break the RPC.
	defer func() {
		if p := recover(); p != nil {
			n = 0

			m.reportElements(p)
		}
	}()

	all = m.repeated.elements(payload)
	n = all.len()

	for i := range n {
		total += encodedSize(all.at(i), false)
	}

	return all, n, total
}

// weigh gives an element and the size that measure had seen; nil if the element can't be read any more.
func (m *messageType) weigh(all elements, i int) (element any, weight uint64) {
	defer func() {
		if p := recover(); p != nil {
			element, weight = nil, 0

			m.reportElements(p)
		}
	}()

	element = all.at(i)

	return element, encodedSize(element, true)
}

func (m *messageType) reportElements(p any) {
	m.reported.handlef("otelproto: the elements of %s: panic: %v", m.name, p)
}

// encodedSize gives the size of a message as it is encoded. again says that it has been asked before, so that a generated message
// remembers it.
func encodedSize(message any, again bool) uint64 {
	var n int

	switch m := message.(type) {
	case proto.Message:
		n = proto.MarshalOptions{UseCachedSize: again}.Size(m)
	case interface{ XXX_Size() int }: // the protobuf module would encode messages of gogo to know
		n = m.XXX_Size()
	case protoadapt.MessageV1:
		n = proto.Size(protoadapt.MessageV2Of(m))
	default:
		panic(errNoMessage)
	}

	return uint64(min(max(n, 0), math.MaxInt32)) // protobuf's own limit, so that no sum of them overflows
}
