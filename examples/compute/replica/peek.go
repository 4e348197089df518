package replica

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// answer responds to the peek if it can be answered by now, and reports whether it did.
func (w *Worker) answer(p *computepb.Peek) bool {
	c, ok := w.collections[p.GetCollection()]
	switch {
	case !ok:
		w.failf(p, "there is no collection %d", p.GetCollection())
	case c.kind != index:
		w.failf(p, "collection %d is not an index", c.id)
	case p.GetTimestamp() < c.since:
		w.failf(p, "collection %d can't be read at %d any more: it is compacted up to %d", c.id, p.GetTimestamp(), c.since)
	case p.GetTimestamp() >= c.dataflow.upper:
		return false
	default:
		rows := &computepb.Rows{Rows: c.trace.read(p.GetTimestamp(), p.GetFirstKey(), p.GetEndKey())}
		if size := proto.Size(rows); size > w.maxResult {
			w.failf(p, "the rows take up %d bytes, more than %s = %d", size, MaxResultBytes, w.maxResult)
			break
		}
		w.respondPeek(&computepb.PeekResponse{Uuid: p.GetUuid(), Result: &computepb.PeekResponse_Rows{Rows: rows}})
	}
	return true
}

// cancelPeek gives up the peek if it waits. One that was answered, or that there never was, needs nothing.
func (w *Worker) cancelPeek(c *computepb.CancelPeek) {
	w.peeks = slices.DeleteFunc(w.peeks, func(p *computepb.Peek) bool {
		if !bytes.Equal(p.GetUuid(), c.GetUuid()) {
			return false
		}
		w.respondPeek(&computepb.PeekResponse{
			Uuid:   p.GetUuid(),
			Result: &computepb.PeekResponse_Canceled{Canceled: &computepb.Canceled{}},
		})
		return true
	})
}

func (w *Worker) failf(p *computepb.Peek, format string, args ...any) {
	w.respondPeek(&computepb.PeekResponse{
		Uuid:   p.GetUuid(),
		Result: &computepb.PeekResponse_Error{Error: &computepb.PeekError{Message: fmt.Sprintf(format, args...)}},
	})
}

func (w *Worker) respondPeek(p *computepb.PeekResponse) {
	w.respond(&computepb.ComputeResponse{Kind: &computepb.ComputeResponse_PeekResponse{PeekResponse: p}})
}
