package replica

import (
	"maps"
	"math"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// A State is all that a worker has come to by the commands and the time that it was told: two workers with the same state give
// the same answers from then on.
type State struct {
	Name        string
	Initialized bool
	Parameters  map[string]string
	Dataflows   map[uint64]DataflowState
	Peeks       []string // uuids of those that wait, in the order of their arrival
}

// DataflowState is a dataflow's part of a State.
type DataflowState struct {
	Scheduled   bool
	Upper       uint64
	Collections map[uint64]CollectionState
}

// CollectionState is a collection's part of a State.
type CollectionState struct {
	Since, Upper   uint64
	Closed, Writes bool
	First, Last    map[uint64]string         // an index: its rows as of since and as of the time before upper
	Copied         *computepb.CopyToResponse // a copy: what was written, or is about to be
}

// State returns a copy of the worker's state.
func (w *Worker) State() State {
	s := State{
		Name:        w.name,
		Initialized: w.initialized,
		Parameters:  maps.Clone(w.parameters),
		Dataflows:   make(map[uint64]DataflowState),
	}
	for _, d := range w.dataflows {
		collections := make(map[uint64]CollectionState)
		for _, c := range d.exports {
			collections[c.id] = c.state()
		}
		s.Dataflows[d.id] = DataflowState{Scheduled: d.scheduled, Upper: d.upper, Collections: collections}
	}
	for _, p := range w.peeks {
		s.Peeks = append(s.Peeks, string(p.GetUuid()))
	}
	return s
}

func (c *collection) state() CollectionState {
	s := CollectionState{Since: c.since, Upper: c.upper, Closed: c.closed, Writes: c.writes, Copied: c.copied}
	if c.trace != nil {
		s.First = rowsOf(c.trace, c.since)
		s.Last = rowsOf(c.trace, max(c.since, c.dataflow.upper))
	}
	return s
}

func rowsOf(t *trace, time uint64) map[uint64]string {
	rows := make(map[uint64]string)
	for _, r := range t.read(time, 0, math.MaxUint64) {
		rows[r.GetKey()] = string(r.GetValue())
	}
	return rows
}
