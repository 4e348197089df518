package controller

import (
	"testing"
	"time"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

func TestNothingIsCompactedThatSomebodyMayStillRead(t *testing.T) {
	i := New(Options{Tick: time.Hour, Lag: 20}) // time stands still
	defer i.Close()
	ids, err := i.Install(&computepb.Dataflow{Exports: []*computepb.Export{
		{Kind: &computepb.Export_Index{Index: &computepb.Index{}}},
		{Kind: &computepb.Export_Subscribe{Subscribe: &computepb.Subscribe{}}},
		{Kind: &computepb.Export_CopyTo{CopyTo: &computepb.CopyTo{}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	since := func(id, upper uint64) uint64 {
		c := i.collections[id]
		c.upper = upper
		i.compactLocked(id, c)
		return c.since
	}
	expect := func(what string, got, want uint64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: since is %d, want %d", what, got, want)
		}
	}
	expect("index, young", since(ids[0], 15), 0)
	expect("index, not worth a command", since(ids[0], 30), 0)
	expect("index", since(ids[0], 100), 79)
	i.peeks["p"] = &peek{collection: ids[0], timestamp: 110}
	expect("index with a peek that waits", since(ids[0], 500), 110)
	i.peeks["p"].collection = ids[1]
	expect("index with a peek for another", since(ids[0], 500), 479)
	clear(i.peeks)

	i.subscriptions[ids[1]].frontier = 50
	expect("subscription that has handed out less than is complete", since(ids[1], 100), 49)
	i.subscriptions[ids[1]].frontier = 300
	expect("subscription that has handed out more than is complete", since(ids[1], 100), 99)

	expect("copy", since(ids[2], 100), 0)
	expect("copy that is done", since(ids[2], complete), 0)
}

func TestACollectionIsAsFarAsTheSlowestProcessOfAllReplicas(t *testing.T) {
	i := New(Options{Tick: time.Hour})
	defer i.Close()
	ids, err := i.Install(&computepb.Dataflow{Exports: []*computepb.Export{{Kind: &computepb.Export_Index{Index: &computepb.Index{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	connect := func(name string) []*process {
		r := &remote{name: name}
		for range 2 {
			r.processes = append(r.processes, &process{replica: r, outbox: newOutbox(), uppers: make(map[uint64]uint64)})
		}
		i.replicas[name] = r
		return r.processes
	}
	defer clear(i.replicas) // nothing runs for them that Close could wait for
	report := func(p *process, upper, want uint64) {
		t.Helper()
		i.handleFrontiersLocked(p, &computepb.Frontiers{Collection: ids[0], Upper: &upper})
		if got := i.collections[ids[0]].upper; got != want {
			t.Errorf("upper is %d, want %d", got, want)
		}
	}
	r1 := connect("r1")
	report(r1[0], 10, 0)
	report(r1[1], 7, 7)
	report(r1[1], 12, 10)
	r2 := connect("r2")
	report(r1[0], 20, 10)
	report(r2[0], 5, 10)
	report(r2[1], 11, 10)
	report(r2[0], 30, 11)
	delete(i.replicas, "r2")
	report(r1[1], 12, 12)
}
