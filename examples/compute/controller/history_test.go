package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
	"github.com/otelproto/otelproto-go/examples/compute/replica"
)

// A life is a random sequence of commands that a controller could give, with time passing in between, and a worker that is told
// all of it as it happens.
type life struct {
	t       *testing.T
	rand    *rand.Rand
	worker  *replica.Worker
	full    []*computepb.ComputeCommand
	history History
	now     uint64
	nextID  uint64

	dataflows map[uint64][]uint64 // collections of each that are left
	live      map[uint64]*liveCollection
	peeks     map[string]livePeek // that weren't canceled
	answers   map[string]*computepb.PeekResponse
}

type liveCollection struct {
	dataflow uint64
	index    bool
	asOf     uint64
	since    uint64
	held     bool // a copy: it is as of its as_of for ever
}

type livePeek struct{ collection, timestamp uint64 }

func newLife(t *testing.T, seed uint64) *life {
	l := &life{
		t:         t,
		rand:      rand.New(rand.NewPCG(seed, 0)),
		worker:    replica.NewWorker(),
		dataflows: make(map[uint64][]uint64),
		live:      make(map[uint64]*liveCollection),
		peeks:     make(map[string]livePeek),
		answers:   make(map[string]*computepb.PeekResponse),
	}
	l.give(createTimely(0, []string{"a"}))
	l.give(createInstance("model", time.Unix(0, 0), time.Second))
	return l
}

func (l *life) give(c *computepb.ComputeCommand) {
	l.full = append(l.full, c)
	l.history.Append(c)
	l.note(handle(l.t, l.worker, c))
}

// note keeps the last answer to each peek.
func (l *life) note(responses []*computepb.ComputeResponse) {
	for _, r := range responses {
		if p := r.GetPeekResponse(); p != nil {
			l.answers[string(p.GetUuid())] = p
		}
	}
}

func handle(t *testing.T, w *replica.Worker, c *computepb.ComputeCommand) []*computepb.ComputeResponse {
	t.Helper()
	responses, err := w.Handle(c)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return responses
}

// step does one thing at random.
func (l *life) step() {
	switch n := l.rand.IntN(20); {
	case n < 5:
		l.now += l.rand.Uint64N(4)
		l.note(l.worker.Advance(l.now))
	case n < 8:
		l.create()
	case n < 9:
		name := fmt.Sprintf("p%d", l.rand.IntN(5))
		l.give(updateConfiguration(map[string]string{name: strconv.Itoa(l.rand.IntN(100))}))
	case n < 12:
		l.compact()
	case n < 14:
		l.drop()
	case n < 17:
		l.peek()
	default:
		l.cancel()
	}
}

func (l *life) create() {
	l.nextID++
	plan := &computepb.Dataflow{
		Id: l.nextID, AsOf: l.now,
		Source: &computepb.Generator{Seed: l.nextID, Keys: 5, Period: 1 + l.rand.Uint64N(4), MinBytes: 1, MaxBytes: 20},
	}
	for range 1 + l.rand.IntN(3) {
		l.nextID++
		e := &computepb.Export{Collection: l.nextID}
		c := &liveCollection{dataflow: plan.GetId(), since: l.now, asOf: l.now}
		switch l.rand.IntN(4) {
		case 0:
			e.Kind = &computepb.Export_Subscribe{Subscribe: &computepb.Subscribe{}}
		case 1:
			e.Kind, c.held = &computepb.Export_CopyTo{CopyTo: &computepb.CopyTo{Uri: "x"}}, true
		default:
			e.Kind, c.index = &computepb.Export_Index{Index: &computepb.Index{}}, true
		}
		plan.Exports = append(plan.Exports, e)
		l.live[l.nextID] = c
		l.dataflows[plan.GetId()] = append(l.dataflows[plan.GetId()], l.nextID)
	}
	l.give(createDataflow(plan))
	if l.rand.IntN(4) > 0 {
		l.give(schedule(plan.GetId()))
	}
	for _, e := range plan.GetExports() {
		if e.GetIndex() == nil && l.rand.IntN(3) > 0 {
			l.give(allowWrites(e.GetCollection()))
		}
	}
}

// any returns one of the live collections that fit, or 0.
func (l *life) any(fits func(*liveCollection) bool) uint64 {
	var ids []uint64
	for id, c := range l.live {
		if fits(c) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return 0
	}
	slices.Sort(ids)
	return ids[l.rand.IntN(len(ids))]
}

// compact does what a controller may: not beyond what the collection has reported, and not beyond a peek that waits.
func (l *life) compact() {
	id := l.any(func(c *liveCollection) bool { return !c.held })
	if id == 0 {
		return
	}
	c := l.live[id]
	reported := l.worker.State().Dataflows[c.dataflow].Collections[id].Upper
	limit := max(reported, c.asOf+1) - 1
	for _, p := range l.peeks {
		if p.collection == id {
			limit = min(limit, p.timestamp)
		}
	}
	if limit <= c.since {
		return
	}
	c.since += 1 + l.rand.Uint64N(limit-c.since)
	l.give(allowCompaction(id, new(c.since)))
}

func (l *life) drop() {
	id := l.any(func(*liveCollection) bool { return true })
	if id == 0 {
		return
	}
	for _, uuid := range l.waiting() {
		if l.peeks[uuid].collection == id {
			l.end(uuid)
		}
	}
	delete(l.live, id)
	l.give(allowCompaction(id, nil))
}

func (l *life) peek() {
	id := l.any(func(c *liveCollection) bool { return c.index })
	if id == 0 {
		return
	}
	l.nextID++
	uuid := fmt.Sprint("peek ", l.nextID)
	at := l.live[id].since + l.rand.Uint64N(8)
	l.peeks[uuid] = livePeek{id, at}
	l.give(peekCommand(uuid, Peek{Collection: id, Timestamp: at, FirstKey: l.rand.Uint64N(4), EndKey: 5}))
}

func (l *life) cancel() {
	if waiting := l.waiting(); len(waiting) > 0 {
		l.end(waiting[l.rand.IntN(len(waiting))])
	}
}

func (l *life) end(uuid string) {
	delete(l.peeks, uuid)
	l.give(cancelPeek(uuid))
	delete(l.answers, uuid)
}

func (l *life) waiting() []string {
	var uuids []string
	for uuid := range l.peeks {
		uuids = append(uuids, uuid)
	}
	slices.Sort(uuids)
	return uuids
}

func TestReplayingTheCompactedHistoryGivesTheSameStateAsLivingThroughIt(t *testing.T) {
	for range 40 {
		seed := rand.Uint64()
		l := newLife(t, seed)
		begin := l.rand.IntN(40)
		for n := range 250 {
			if n == begin {
				l.give(initializationComplete())
			}
			l.step()
			if n%50 == 49 && n > begin {
				compareWithReplay(t, l, seed)
			}
		}
		if t.Failed() {
			return
		}
	}
}

func compareWithReplay(t *testing.T, l *life, seed uint64) {
	t.Helper()
	l.note(l.worker.Advance(l.now))
	want := l.worker.State()
	if before := l.history.Len(); l.rand.IntN(2) == 0 {
		l.history.Compact()
		if l.history.Len() > before {
			t.Errorf("seed %d: compaction made %d commands of %d", seed, l.history.Len(), before)
		}
	}
	again := newLife(t, seed)
	again.worker = replica.NewWorker()
	for _, c := range l.history.Commands() {
		again.note(handle(t, again.worker, c))
	}
	again.note(again.worker.Advance(l.now))
	if diff := cmp.Diff(want, again.worker.State(), protocmp.Transform()); diff != "" {
		t.Errorf("seed %d: state after the replay differs (-lived +replayed):\n%s", seed, diff)
	}
	for uuid, answer := range l.answers {
		if _, ok := l.peeks[uuid]; !ok {
			continue
		}
		if diff := cmp.Diff(answer, again.answers[uuid], protocmp.Transform()); diff != "" {
			t.Errorf("seed %d: %s is answered otherwise after the replay (-lived +replayed):\n%s", seed, uuid, diff)
		}
	}
}

func TestTheHistoryGrowsWithWhatThereIsAndNotWithWhatHasBeen(t *testing.T) {
	var h History
	h.Append(createTimely(0, nil))
	h.Append(createInstance("x", time.Unix(0, 0), time.Second))
	h.Append(initializationComplete())
	for n := range uint64(10_000) {
		id := 2 * n
		h.Append(createDataflow(&computepb.Dataflow{Id: id, Exports: []*computepb.Export{{Collection: id + 1}}}))
		h.Append(schedule(id))
		h.Append(allowWrites(id + 1))
		h.Append(peekCommand("p", Peek{Collection: id + 1}))
		h.Append(cancelPeek("p"))
		h.Append(allowCompaction(id+1, new(n)))
		h.Append(allowCompaction(id+1, nil))
		h.Append(updateConfiguration(map[string]string{"a": "b"}))
		if h.Len() > 100 {
			t.Fatalf("%d commands after %d dataflows that came and went", h.Len(), n+1)
		}
	}
	h.Compact()
	if h.Len() != 4 {
		t.Errorf("%d commands are left, want 4: %v", h.Len(), h.Commands())
	}
}

func TestCompactionMergesWhatIsLeft(t *testing.T) {
	plan := &computepb.Dataflow{Id: 1, AsOf: 5, Exports: []*computepb.Export{{Collection: 2}, {Collection: 3}, {Collection: 4}}}
	var h History
	for _, c := range []*computepb.ComputeCommand{
		createTimely(0, nil),
		createInstance("x", time.Unix(0, 0), time.Second),
		updateConfiguration(map[string]string{"a": "1", "b": "1"}),
		createDataflow(plan),
		schedule(1),
		allowWrites(3), allowWrites(3),
		peekCommand("p", Peek{Collection: 2}), peekCommand("q", Peek{Collection: 2}), cancelPeek("p"),
		initializationComplete(),
		updateConfiguration(map[string]string{"b": "2"}),
		allowCompaction(2, new(uint64(7))), allowCompaction(2, new(uint64(9))), allowCompaction(3, new(uint64(8))),
		allowCompaction(4, nil),
	} {
		h.Append(c)
	}
	h.Compact()
	want := []*computepb.ComputeCommand{
		createTimely(0, nil),
		createInstance("x", time.Unix(0, 0), time.Second),
		updateConfiguration(map[string]string{"a": "1", "b": "2"}),
		createDataflow(&computepb.Dataflow{Id: 1, AsOf: 8, Exports: []*computepb.Export{{Collection: 2}, {Collection: 3}}}),
		schedule(1),
		allowCompaction(2, new(uint64(9))),
		allowWrites(3),
		peekCommand("q", Peek{Collection: 2}),
		initializationComplete(),
	}
	if diff := cmp.Diff(want, h.Commands(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if plan.GetAsOf() != 5 || len(plan.GetExports()) != 3 {
		t.Errorf("compaction changed a command that was given: %v", plan)
	}
}
