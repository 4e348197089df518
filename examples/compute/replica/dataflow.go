package replica

import (
	"errors"
	"fmt"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// A dataflow computes its rows from its source, tick by tick, and hands each change to all of its exports.
type dataflow struct {
	id        uint64
	asOf      uint64
	upper     uint64 // all times before it are computed; as_of at first
	source    *source
	operators []operator
	exports   []*collection
	scheduled bool
}

// The kinds of collection.
type collectionKind uint8

const (
	index collectionKind = iota
	subscribe
	copyTo
)

// A collection is what comes out of a dataflow: rows that are held, or written to the outside.
type collection struct {
	id       uint64
	kind     collectionKind
	dataflow *dataflow
	since    uint64 // nobody reads at times before it
	upper    uint64 // what the controller was told last: complete for all times before it
	closed   bool   // complete for all times
	writes   bool   // allowed to write to the outside

	trace   *trace                    // index
	pending []*computepb.Update       // subscribe: updates that were not sent yet
	copied  *computepb.CopyToResponse // copy_to: what is to be written
}

func (w *Worker) createDataflow(plan *computepb.Dataflow) error {
	for _, d := range w.dataflows {
		if d.id == plan.GetId() {
			return fmt.Errorf("dataflow %d is created a second time", plan.GetId())
		}
	}
	d, err := w.newDataflow(plan)
	if err != nil {
		return fmt.Errorf("dataflow %d: %w", plan.GetId(), err)
	}
	w.dataflows = append(w.dataflows, d)
	for _, c := range d.exports {
		w.collections[c.id] = c
	}
	return nil
}

func (w *Worker) newDataflow(plan *computepb.Dataflow) (*dataflow, error) {
	src, err := newSource(plan.GetSource(), w.process, w.processes)
	if err != nil {
		return nil, err
	}
	operators, err := newOperators(plan.GetOperators())
	if err != nil {
		return nil, err
	}
	if len(plan.GetExports()) == 0 {
		return nil, errors.New("it has no exports, want 1 or more")
	}
	d := &dataflow{id: plan.GetId(), asOf: plan.GetAsOf(), upper: plan.GetAsOf(), source: src, operators: operators}
	for _, export := range plan.GetExports() {
		c := &collection{id: export.GetCollection(), dataflow: d, since: d.asOf, upper: d.asOf}
		switch export.GetKind().(type) {
		case *computepb.Export_Index:
			c.kind, c.trace = index, newTrace(d.asOf)
		case *computepb.Export_Subscribe:
			c.kind = subscribe
		case *computepb.Export_CopyTo:
			c.kind, c.copied = copyTo, &computepb.CopyToResponse{Collection: c.id}
		default:
			return nil, fmt.Errorf("collection %d has unknown kind %T", c.id, export.GetKind())
		}
		if _, ok := w.collections[c.id]; ok {
			return nil, fmt.Errorf("collection %d is created a second time", c.id)
		}
		d.exports = append(d.exports, c)
	}
	return d, nil
}

// run computes the dataflow for all times before upper.
func (w *Worker) run(d *dataflow, upper uint64) {
	if !d.scheduled || upper <= d.upper {
		return
	}
	hydrated := d.upper > d.asOf
	if !hydrated {
		status := &computepb.Status{Dataflow: d.id}
		d.source.snapshot(d.asOf, func(r row) {
			if r, ok := apply(d.operators, r); ok {
				status.Rows++
				status.Bytes += uint64(len(r.value))
				d.export(update{r, d.asOf})
			}
		})
		d.upper = d.asOf + 1
		w.respond(&computepb.ComputeResponse{Kind: &computepb.ComputeResponse_Status{Status: status}})
	}
	for ; d.upper < upper; d.upper++ {
		d.source.changes(d.upper, func(r row) {
			if r, ok := apply(d.operators, r); ok {
				d.export(update{r, d.upper})
			}
		})
	}
	for _, c := range d.exports {
		w.emit(c)
	}
}

func (d *dataflow) export(u update) {
	for _, c := range d.exports {
		switch c.kind {
		case index:
			c.trace.insert(u)
		case subscribe:
			c.pending = append(c.pending, &computepb.Update{Time: u.time, Row: &computepb.Row{Key: u.key, Value: u.value}})
		case copyTo:
			if u.time == d.asOf {
				c.copied.Rows++
				c.copied.Bytes += uint64(len(u.value))
				c.copied.Digest ^= mixBytes(u.key, u.value)
			}
		}
	}
}

// emit sends what the collection may write by now, and how far it got.
func (w *Worker) emit(c *collection) {
	upper := c.dataflow.upper
	switch {
	case c.closed || upper <= c.upper:
		return
	case c.kind == index:
	case !c.writes:
		return
	case c.kind == subscribe:
		w.respondSubscribe(&computepb.SubscribeResponse{
			Collection: c.id,
			Result: &computepb.SubscribeResponse_Batch{
				Batch: &computepb.Batch{Lower: c.upper, Upper: upper, Updates: c.pending},
			},
		})
		c.pending = nil
	case c.kind == copyTo:
		w.respond(&computepb.ComputeResponse{Kind: &computepb.ComputeResponse_CopyToResponse{CopyToResponse: c.copied}})
		c.closed = true
		w.respondFrontiers(&computepb.Frontiers{Collection: c.id})
		return
	}
	c.upper = upper
	w.respondFrontiers(&computepb.Frontiers{Collection: c.id, Upper: &upper})
}

func (w *Worker) respond(r *computepb.ComputeResponse) { w.out = append(w.out, r) }

func (w *Worker) respondFrontiers(f *computepb.Frontiers) {
	w.respond(&computepb.ComputeResponse{Kind: &computepb.ComputeResponse_Frontiers{Frontiers: f}})
}

func (w *Worker) respondSubscribe(s *computepb.SubscribeResponse) {
	w.respond(&computepb.ComputeResponse{Kind: &computepb.ComputeResponse_SubscribeResponse{SubscribeResponse: s}})
}
