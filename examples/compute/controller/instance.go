package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// ErrClosed is what an instance's methods return once it shuts down.
var ErrClosed = errors.New("controller: instance is closed")

// Options are what an instance may be given. The zero value is usable except for DialOptions, which need credentials.
type Options struct {
	Name  string        // of the instance; "": "default"
	Tick  time.Duration // between two times; 0: 50 ms
	Lag   uint64        // how many times before the newest complete one an index can be read at; 0: 20
	Grace time.Duration // for the streams to end when the instance shuts down; 0: 30 s

	// DialOptions returns the dial options of the connection to one process of a replica.
	DialOptions func(replica string, process int) []grpc.DialOption
	// CallOptions are those of each process's stream.
	CallOptions []grpc.CallOption
	// OnDisconnect, if not nil, is told why a replica isn't connected (any more). It is called from the replica's goroutine.
	OnDisconnect func(replica string, err error)
}

// An Instance is a set of dataflows that all replicas of it keep up to date.
type Instance struct {
	options Options
	epoch   time.Time
	ctx     context.Context // ends when streams that didn't end by themselves are to be cut
	cut     context.CancelFunc
	closing chan struct{} // closed when the streams are to end
	release chan struct{} // closed when the connections are to be closed
	runners sync.WaitGroup

	// mu guards what follows, and what hangs off it: replicas' processes, collections, peeks, subscriptions and copies. Nothing
	// is sent, received or waited for while it is held.
	mu            sync.Mutex
	closed        bool
	released      bool
	history       History
	nextID        uint64
	replicas      map[string]*remote
	collections   map[uint64]*collection
	dataflows     map[uint64]int // how many collections of each are left
	peeks         map[string]*peek
	subscriptions map[uint64]*subscription
	copies        map[uint64]*copyOut
	advanced      chan struct{} // closed, and replaced, when a collection's upper moves or one is dropped
	counts        Counts
}

// New returns an instance without replicas or dataflows. The caller has to Close it.
func New(o Options) *Instance {
	if o.Name == "" {
		o.Name = "default"
	}
	if o.Tick == 0 {
		o.Tick = 50 * time.Millisecond
	}
	if o.Lag == 0 {
		o.Lag = 20
	}
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	ctx, cut := context.WithCancel(context.Background())
	i := &Instance{
		options:       o,
		epoch:         time.Now(),
		ctx:           ctx,
		cut:           cut,
		closing:       make(chan struct{}),
		release:       make(chan struct{}),
		replicas:      make(map[string]*remote),
		collections:   make(map[uint64]*collection),
		dataflows:     make(map[uint64]int),
		peeks:         make(map[string]*peek),
		subscriptions: make(map[uint64]*subscription),
		copies:        make(map[uint64]*copyOut),
		advanced:      make(chan struct{}),
	}
	i.history.Append(createTimely(0, nil)) // each process is told its own
	i.history.Append(createInstance(o.Name, i.epoch, o.Tick))
	return i
}

// Name is the instance's name.
func (i *Instance) Name() string { return i.options.Name }

// Now is the time that is passing.
func (i *Instance) Now() uint64 { return uint64(time.Since(i.epoch) / i.options.Tick) }

// Initialize tells the replicas that they were told all there is to begin with.
func (i *Instance) Initialize() error { return i.command(initializationComplete()) }

// Configure sets the named parameters.
func (i *Instance) Configure(parameters map[string]string) error {
	return i.command(updateConfiguration(maps.Clone(parameters)))
}

// Install creates a dataflow as of now and schedules it. It returns the collections that the exports became, in their order. The
// ids and the as_of of the given dataflow don't matter; it isn't changed, and must not be from here on.
func (i *Instance) Install(d *computepb.Dataflow) ([]uint64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return nil, ErrClosed
	}
	i.nextID++
	plan := &computepb.Dataflow{
		Id: i.nextID, Name: d.GetName(), Source: d.GetSource(), Operators: d.GetOperators(), AsOf: i.Now(),
	}
	var ids, writers []uint64
	for _, e := range d.GetExports() {
		i.nextID++
		id := i.nextID
		ids = append(ids, id)
		plan.Exports = append(plan.Exports, &computepb.Export{Collection: id, Kind: e.GetKind()})
		c := &collection{dataflow: plan.GetId(), asOf: plan.GetAsOf(), since: plan.GetAsOf(), upper: plan.GetAsOf()}
		i.collections[id] = c
		i.dataflows[c.dataflow]++
		switch e.GetKind().(type) {
		case *computepb.Export_Index:
			c.index = true
		case *computepb.Export_Subscribe:
			i.subscriptions[id] = newSubscription(plan.GetAsOf())
			writers = append(writers, id)
		case *computepb.Export_CopyTo:
			i.copies[id] = newCopyOut()
			writers = append(writers, id)
		}
	}
	i.commandLocked(createDataflow(plan))
	i.commandLocked(schedule(plan.GetId()))
	for _, id := range writers {
		i.commandLocked(allowWrites(id))
	}
	return ids, nil
}

// Drop drops a collection, and its dataflow with the last one of it. Peeks that wait for it fail; a subscription ends. Dropping
// what there isn't is an error.
func (i *Instance) Drop(id uint64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return ErrClosed
	}
	c, ok := i.collections[id]
	if !ok {
		return noCollection(id)
	}
	for uuid, p := range i.peeks {
		if p.collection == id {
			i.finishPeekLocked(uuid, p, nil, noCollection(id))
		}
	}
	if s, ok := i.subscriptions[id]; ok {
		s.close()
		delete(i.subscriptions, id)
	}
	if o, ok := i.copies[id]; ok {
		o.finish(nil, noCollection(id))
		delete(i.copies, id)
	}
	delete(i.collections, id)
	if i.dataflows[c.dataflow]--; i.dataflows[c.dataflow] == 0 {
		delete(i.dataflows, c.dataflow)
	}
	i.commandLocked(allowCompaction(id, nil))
	i.advancedLocked()
	return nil
}

// Shutdown ends the streams, so that everything that was sent has arrived when it returns, and leaves the connections open. What
// waits fails with ErrClosed. Streams that don't end within Options.Grace are cut, which is an error.
func (i *Instance) Shutdown() error {
	i.mu.Lock()
	streams := i.shutdownLocked()
	i.mu.Unlock()
	grace := time.NewTimer(i.options.Grace)
	defer grace.Stop()
	for _, ended := range streams {
		select {
		case <-ended:
		case <-grace.C:
			i.cut()
			return fmt.Errorf("controller: streams were cut because they didn't end within %v", i.options.Grace)
		}
	}
	return nil
}

// Close shuts the instance down, if that wasn't done yet, and closes its connections. It returns when they are closed.
func (i *Instance) Close() {
	_ = i.Shutdown() // a caller who wants to know has called it before
	i.mu.Lock()
	if !i.released {
		i.released = true
		close(i.release)
	}
	i.mu.Unlock()
	i.runners.Wait()
	i.cut()
}

func (i *Instance) shutdownLocked() []<-chan struct{} {
	if !i.closed {
		i.closed = true
		close(i.closing)
		for uuid, p := range i.peeks {
			i.finishPeekLocked(uuid, p, nil, ErrClosed)
		}
		for _, s := range i.subscriptions {
			s.close()
		}
		for _, o := range i.copies {
			o.finish(nil, ErrClosed)
		}
		for _, r := range i.replicas {
			if len(r.processes) == 0 {
				r.drop() // it is about to connect, and there is nothing to end
			}
		}
		i.advancedLocked()
	}
	streams := make([]<-chan struct{}, 0, len(i.replicas))
	for _, r := range i.replicas {
		for _, p := range r.processes {
			p.outbox.close()
		}
		streams = append(streams, r.ended)
	}
	return streams
}

func (i *Instance) command(c *computepb.ComputeCommand) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return ErrClosed
	}
	i.commandLocked(c)
	return nil
}

// commandLocked keeps the command and sends it to every process that is connected.
func (i *Instance) commandLocked(c *computepb.ComputeCommand) {
	i.history.Append(c)
	i.counts.Commands++
	for _, r := range i.replicas {
		for _, p := range r.processes {
			p.outbox.push(c)
		}
	}
}

func noCollection(id uint64) error { return fmt.Errorf("controller: there is no collection %d", id) }
