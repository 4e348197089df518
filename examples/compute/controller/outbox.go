package controller

import (
	"sync"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// maxBacklog is how many commands may wait for a process. One that takes them more slowly than they come is cut off: its replica
// connects again and is sent the compacted history, which is shorter.
const maxBacklog = 1 << 16

// An outbox holds the commands that wait to be sent to one process, so that nobody who gives a command waits for a stream.
type outbox struct {
	// mu guards what follows. Nothing is waited for while it is held.
	mu     sync.Mutex
	queue  []*computepb.ComputeCommand
	closed bool
	full   bool
	ready  chan struct{} // holds a token when there is something to take
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

func (o *outbox) push(commands ...*computepb.ComputeCommand) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	if len(o.queue)+len(commands) > maxBacklog {
		o.full = true
	} else {
		o.queue = append(o.queue, commands...)
	}
	o.wakeLocked()
}

// close lets what is queued be taken and nothing else be pushed.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.wakeLocked()
}

// take returns what is queued, whether nothing will follow, and whether commands were left out for lack of room.
func (o *outbox) take() (commands []*computepb.ComputeCommand, closed, full bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	commands, o.queue = o.queue, nil
	return commands, o.closed, o.full
}

func (o *outbox) wakeLocked() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}
