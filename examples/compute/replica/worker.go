package replica

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// MaxResultBytes is the parameter that limits the rows of a process's answer to a peek, and its default.
const (
	MaxResultBytes        = "max_result_bytes"
	defaultMaxResultBytes = 1 << 20
)

// A Worker is one process's share of an instance. It isn't safe for concurrent use.
type Worker struct {
	process, processes uint64 // processes is 0 before create_timely
	name               string
	epoch              time.Time
	tick               time.Duration // 0 before create_instance
	initialized        bool
	parameters         map[string]string
	maxResult          int

	dataflows   []*dataflow // in the order of their creation
	collections map[uint64]*collection
	peeks       []*computepb.Peek // that wait for their time to be complete
	out         []*computepb.ComputeResponse
}

// NewWorker returns a worker that knows nothing yet: its first command must be create_timely, its second create_instance.
func NewWorker() *Worker {
	return &Worker{
		parameters:  make(map[string]string),
		maxResult:   defaultMaxResultBytes,
		collections: make(map[uint64]*collection),
	}
}

// Handle takes in a command and returns what there is to respond at once. An error means that the command makes no sense after
// those before it; the stream can't go on from there.
func (w *Worker) Handle(command *computepb.ComputeCommand) ([]*computepb.ComputeResponse, error) {
	if err := w.handle(command); err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	return w.flush(), nil
}

// Advance tells the worker that all times before upper have passed, and returns what follows. It does nothing before
// initialization_complete, or if the worker was told that much before.
func (w *Worker) Advance(upper uint64) []*computepb.ComputeResponse {
	if !w.initialized {
		return nil
	}
	for _, d := range w.dataflows {
		w.run(d, upper)
	}
	w.peeks = slices.DeleteFunc(w.peeks, w.answer)
	return w.flush()
}

// Clock returns when time 0 began and how long a tick lasts, which is 0 until create_instance has said so.
func (w *Worker) Clock() (epoch time.Time, tick time.Duration) { return w.epoch, w.tick }

func (w *Worker) flush() []*computepb.ComputeResponse {
	out := w.out
	w.out = nil
	return out
}

func (w *Worker) handle(command *computepb.ComputeCommand) error {
	switch kind := command.GetKind().(type) {
	case *computepb.ComputeCommand_CreateTimely:
		return w.createTimely(kind.CreateTimely)
	case *computepb.ComputeCommand_CreateInstance:
		return w.createInstance(kind.CreateInstance)
	}
	if w.tick == 0 {
		return fmt.Errorf("%T comes before create_timely and create_instance", command.GetKind())
	}
	switch kind := command.GetKind().(type) {
	case *computepb.ComputeCommand_InitializationComplete:
		w.initialized = true
		return nil
	case *computepb.ComputeCommand_UpdateConfiguration:
		return w.configure(kind.UpdateConfiguration)
	case *computepb.ComputeCommand_CreateDataflow:
		return w.createDataflow(kind.CreateDataflow.GetDataflow())
	case *computepb.ComputeCommand_Schedule:
		return w.schedule(kind.Schedule)
	case *computepb.ComputeCommand_AllowCompaction:
		return w.allowCompaction(kind.AllowCompaction)
	case *computepb.ComputeCommand_AllowWrites:
		return w.allowWrites(kind.AllowWrites)
	case *computepb.ComputeCommand_Peek:
		if !w.initialized || !w.answer(kind.Peek) {
			w.peeks = append(w.peeks, kind.Peek)
		}
		return nil
	case *computepb.ComputeCommand_CancelPeek:
		w.cancelPeek(kind.CancelPeek)
		return nil
	}
	return fmt.Errorf("unknown kind of command %T", command.GetKind())
}

func (w *Worker) createTimely(c *computepb.CreateTimely) error {
	switch {
	case w.processes != 0:
		return errors.New("create_timely comes a second time")
	case c.GetProcess() >= c.GetProcesses():
		return fmt.Errorf("create_timely names process %d of %d", c.GetProcess(), c.GetProcesses())
	}
	w.process, w.processes = uint64(c.GetProcess()), uint64(c.GetProcesses())
	return nil
}

func (w *Worker) createInstance(c *computepb.CreateInstance) error {
	switch {
	case w.processes == 0:
		return errors.New("create_instance comes before create_timely")
	case w.tick != 0:
		return errors.New("create_instance comes a second time")
	case c.GetTickNanos() <= 0:
		return fmt.Errorf("create_instance has a tick of %d ns, want 1 or more", c.GetTickNanos())
	}
	w.name = c.GetName()
	w.epoch, w.tick = time.Unix(0, c.GetEpochUnixNanos()), time.Duration(c.GetTickNanos())
	return nil
}

func (w *Worker) configure(c *computepb.UpdateConfiguration) error {
	for name, value := range c.GetParameters() {
		if name == MaxResultBytes {
			n, err := strconv.Atoi(value)
			if err != nil || n <= 0 {
				return fmt.Errorf("%s is %q, want a number of bytes of 1 or more", name, value)
			}
			w.maxResult = n
		}
		w.parameters[name] = value
	}
	return nil
}

func (w *Worker) schedule(c *computepb.Schedule) error {
	for _, d := range w.dataflows {
		if d.id == c.GetDataflow() {
			d.scheduled = true
			return nil
		}
	}
	return fmt.Errorf("schedule names dataflow %d, which there isn't", c.GetDataflow())
}

func (w *Worker) allowWrites(c *computepb.AllowWrites) error {
	exported, ok := w.collections[c.GetCollection()]
	if !ok {
		return fmt.Errorf("allow_writes names collection %d, which there isn't", c.GetCollection())
	}
	exported.writes = true
	w.emit(exported)
	return nil
}

func (w *Worker) allowCompaction(c *computepb.AllowCompaction) error {
	compacted, ok := w.collections[c.GetCollection()]
	if !ok {
		return fmt.Errorf("allow_compaction names collection %d, which there isn't", c.GetCollection())
	}
	if c.Frontier == nil {
		w.drop(compacted)
		return nil
	}
	compacted.since = max(compacted.since, c.GetFrontier())
	if compacted.trace != nil {
		compacted.trace.compact(compacted.since)
	}
	return nil
}

func (w *Worker) drop(c *collection) {
	delete(w.collections, c.id)
	c.dataflow.exports = slices.DeleteFunc(c.dataflow.exports, func(e *collection) bool { return e == c })
	if len(c.dataflow.exports) == 0 {
		w.dataflows = slices.DeleteFunc(w.dataflows, func(d *dataflow) bool { return d == c.dataflow })
	}
	if c.kind == subscribe {
		w.respondSubscribe(&computepb.SubscribeResponse{
			Collection: c.id,
			Result:     &computepb.SubscribeResponse_Dropped{Dropped: &computepb.Dropped{Frontier: c.upper}},
		})
	}
	if !c.closed {
		w.respondFrontiers(&computepb.Frontiers{Collection: c.id})
	}
	w.peeks = slices.DeleteFunc(w.peeks, w.answer)
}
