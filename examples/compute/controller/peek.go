package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// Newest as a timestamp stands for the newest time that is complete on all connected replicas when the question is asked.
const Newest = math.MaxUint64

// A Peek asks for the rows of an index with FirstKey <= key < EndKey as of a time.
type Peek struct {
	Collection       uint64
	Timestamp        uint64
	FirstKey, EndKey uint64
}

// A PeekError is a replica's answer that there are no rows to be had, and why.
type PeekError struct{ Message string }

func (e *PeekError) Error() string { return "controller: peek: " + e.Message }

// A peek is a Peek that waits. Instance.mu guards it, except for what done says.
type peek struct {
	collection uint64
	timestamp  uint64
	answers    map[*remote]*answers[*computepb.PeekResponse]
	done       chan struct{} // closed when rows and err are set and won't change
	rows       []*computepb.Row
	err        error
}

// Peek returns the rows in the order of their keys, or a *PeekError. It waits until the time is complete on a replica. When the
// context ends, the replicas are told to cancel the peek.
func (i *Instance) Peek(ctx context.Context, request Peek) ([]*computepb.Row, error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	uuid := string(id[:])
	p := &peek{
		collection: request.Collection,
		timestamp:  request.Timestamp,
		answers:    make(map[*remote]*answers[*computepb.PeekResponse]),
		done:       make(chan struct{}),
	}
	if err := i.startPeek(uuid, p, request); err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		i.mu.Lock()
		i.finishPeekLocked(uuid, p, nil, fmt.Errorf("controller: peek: %w", context.Cause(ctx)))
		i.mu.Unlock()
	}
	return p.rows, p.err
}

func (i *Instance) startPeek(uuid string, p *peek, request Peek) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	c, ok := i.collections[p.collection]
	switch {
	case i.closed:
		return ErrClosed
	case !ok:
		return noCollection(p.collection)
	case !c.index:
		return fmt.Errorf("controller: collection %d is not an index", p.collection)
	}
	if request.Timestamp == Newest {
		request.Timestamp = max(c.upper, c.since+1) - 1
		p.timestamp = request.Timestamp
	}
	i.peeks[uuid] = p
	i.commandLocked(peekCommand(uuid, request))
	return nil
}

// finishPeekLocked gives the peek its outcome, unless it has one, and tells all replicas that it is over. That goes to those that
// have answered as well: what every replica is told is the same, and the history learns from it that the peek is done.
func (i *Instance) finishPeekLocked(uuid string, p *peek, rows []*computepb.Row, err error) {
	if i.peeks[uuid] != p {
		return
	}
	delete(i.peeks, uuid)
	p.rows, p.err = rows, err
	close(p.done)
	i.commandLocked(cancelPeek(uuid))
}

func (i *Instance) handlePeekLocked(from *process, r *computepb.PeekResponse) {
	switch r.GetResult().(type) {
	case *computepb.PeekResponse_Rows:
		i.counts.PeekRows++
	case *computepb.PeekResponse_Error:
		i.counts.PeekErrors++
	case *computepb.PeekResponse_Canceled:
		i.counts.PeekCanceled++
	}
	uuid := string(r.GetUuid())
	p, ok := i.peeks[uuid]
	if !ok {
		i.counts.PeekLate++
		return
	}
	all := add(p.answers, from, r)
	if all == nil {
		return
	}
	rows, err := mergePeek(all)
	i.finishPeekLocked(uuid, p, rows, err)
}

func mergePeek(responses []*computepb.PeekResponse) ([]*computepb.Row, error) {
	var rows []*computepb.Row
	for _, r := range responses {
		switch result := r.GetResult().(type) {
		case *computepb.PeekResponse_Rows:
			rows = append(rows, result.Rows.GetRows()...)
		case *computepb.PeekResponse_Error:
			return nil, &PeekError{result.Error.GetMessage()}
		default:
			return nil, errors.New("controller: peek: a replica canceled it unasked")
		}
	}
	slices.SortFunc(rows, func(a, b *computepb.Row) int { return cmp.Compare(a.GetKey(), b.GetKey()) })
	return rows, nil
}

// answers are what the processes of one replica have answered to one question.
type answers[R any] struct {
	of   []R
	from []bool
	n    int
}

// add takes in a process's answer, the first of its kind. It returns those of all the replica's processes once they are there.
func add[R any](replicas map[*remote]*answers[R], from *process, answer R) []R {
	a := replicas[from.replica]
	if a == nil {
		n := len(from.replica.addresses)
		a = &answers[R]{of: make([]R, n), from: make([]bool, n)}
		replicas[from.replica] = a
	}
	if !a.from[from.index] {
		a.of[from.index], a.from[from.index] = answer, true
		a.n++
	}
	if a.n < len(a.of) {
		return nil
	}
	return a.of
}
