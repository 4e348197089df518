package controller

import (
	"context"
	"fmt"
	"math"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// complete stands for the upper of a collection to which nothing will be added.
const complete = math.MaxUint64

// A collection is what the controller knows about one.
type collection struct {
	dataflow uint64
	index    bool
	asOf     uint64
	since    uint64 // what the replicas were told last
	upper    uint64 // complete before it on all processes of all connected replicas; never goes back
}

// Upper returns the time before which the collection is complete on all connected replicas, or false if there is no such
// collection.
func (i *Instance) Upper(id uint64) (uint64, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c, ok := i.collections[id]
	if !ok {
		return 0, false
	}
	return c.upper, true
}

// AwaitUpper waits until the collection is complete for all times before upper on all connected replicas.
func (i *Instance) AwaitUpper(ctx context.Context, id, upper uint64) error {
	for {
		i.mu.Lock()
		c, ok := i.collections[id]
		closed, advanced := i.closed, i.advanced
		reached := ok && c.upper >= upper
		i.mu.Unlock()
		switch {
		case reached:
			return nil
		case closed:
			return ErrClosed
		case !ok:
			return noCollection(id)
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return fmt.Errorf("controller: waiting for collection %d: %w", id, context.Cause(ctx))
		}
	}
}

func (i *Instance) handleFrontiersLocked(p *process, f *computepb.Frontiers) {
	i.counts.Frontiers++
	c, ok := i.collections[f.GetCollection()]
	if !ok {
		return // it was dropped meanwhile
	}
	upper := uint64(complete)
	if f.Upper != nil {
		upper = f.GetUpper()
	}
	p.uppers[f.GetCollection()] = upper
	i.mergeUppersLocked(f.GetCollection(), c)
}

// mergeUppersLocked takes in that a process's upper of the collection has moved, or that a replica came or went.
func (i *Instance) mergeUppersLocked(id uint64, c *collection) {
	merged, connected := uint64(complete), false
	for _, r := range i.replicas {
		for _, p := range r.processes {
			merged, connected = min(merged, p.uppers[id]), true
		}
	}
	if !connected || merged <= c.upper {
		return
	}
	c.upper = merged
	i.advancedLocked()
	i.compactLocked(id, c)
}

// compactEvery is by how many times a since has to move for a command to be worth it.
const compactEvery = 10

// compactLocked allows the replicas to forget the times that nobody reads any more.
func (i *Instance) compactLocked(id uint64, c *collection) {
	if c.upper == complete {
		return
	}
	var since uint64
	switch s := i.subscriptions[id]; {
	case c.index:
		since = c.upper - min(c.upper, 1+i.options.Lag)
		for _, p := range i.peeks {
			if p.collection == id {
				since = min(since, p.timestamp)
			}
		}
	case s != nil:
		// A replica that starts over begins with all rows as of since. One before the frontier, they are all known to be old.
		since = max(1, min(c.upper, s.frontier)) - 1
	}
	if since >= c.since+compactEvery {
		c.since = since
		i.commandLocked(allowCompaction(id, &since))
	}
}

func (i *Instance) advancedLocked() {
	close(i.advanced)
	i.advanced = make(chan struct{})
}
