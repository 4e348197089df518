package controller

import (
	"context"
	"fmt"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// A copyOut is a copy_to that was asked for. Instance.mu guards it, except for what done says.
type copyOut struct {
	answers  map[*remote]*answers[*computepb.CopyToResponse]
	done     chan struct{} // closed when result and err are set and won't change
	finished bool
	result   *computepb.CopyToResponse
	err      error
}

func newCopyOut() *copyOut {
	return &copyOut{answers: make(map[*remote]*answers[*computepb.CopyToResponse]), done: make(chan struct{})}
}

// AwaitCopy waits until a replica has written the copy_to with the given id, and returns what it wrote in all.
func (i *Instance) AwaitCopy(ctx context.Context, id uint64) (*computepb.CopyToResponse, error) {
	i.mu.Lock()
	o, ok := i.copies[id]
	i.mu.Unlock()
	if !ok {
		return nil, noCollection(id)
	}
	select {
	case <-o.done:
		return o.result, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("controller: waiting for copy %d: %w", id, context.Cause(ctx))
	}
}

func (i *Instance) handleCopyToLocked(from *process, r *computepb.CopyToResponse) {
	i.counts.CopyToResponses++
	o, ok := i.copies[r.GetCollection()]
	if !ok {
		return // it was dropped meanwhile
	}
	all := add(o.answers, from, r)
	if all == nil {
		return
	}
	sum := &computepb.CopyToResponse{Collection: r.GetCollection()}
	for _, part := range all {
		sum.Rows += part.GetRows()
		sum.Bytes += part.GetBytes()
		sum.Digest ^= part.GetDigest()
	}
	o.finish(sum, nil)
}

// finish gives the copy its outcome, unless it has one.
func (o *copyOut) finish(result *computepb.CopyToResponse, err error) {
	if o.finished {
		return
	}
	o.finished, o.result, o.err = true, result, err
	close(o.done)
}
