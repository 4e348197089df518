package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// maxResponse is the largest response that is taken in: a subscription's first batch holds all of a process's rows.
const maxResponse = 64 << 20

// How long to wait before connecting again: doubled for each attempt in a row that failed.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// A remote is the controller's end of a replica.
type remote struct {
	name      string
	addresses []string
	drop      context.CancelFunc
	ended     chan struct{} // closed when the last stream of it has ended and no other will follow
	closed    chan struct{} // closed when its connections are closed, too
	endOnce   func()        // closes ended
	processes []*process    // while it is connected; Instance.mu guards it
}

// A process is the controller's end of one process's stream.
type process struct {
	replica *remote
	index   int
	stream  grpc.BidiStreamingClient[computepb.ComputeCommand, computepb.ComputeResponse]
	outbox  *outbox
	uppers  map[uint64]uint64 // of collections, as the process reported them; Instance.mu guards it
}

// AddReplica connects to a replica's processes, and stays connected until it is dropped or the instance closed: whenever a stream
// of it fails, all of them are opened anew, and it is brought up to date. A replica of the same name is dropped first.
func (i *Instance) AddReplica(name string, addresses []string) error {
	if len(addresses) == 0 {
		return fmt.Errorf("controller: replica %s has no addresses, want 1 or more", name)
	}
	i.DropReplica(name)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return ErrClosed
	}
	if i.replicas[name] != nil {
		return fmt.Errorf("controller: replica %s was added by someone else at the same time", name)
	}
	ctx, drop := context.WithCancel(i.ctx)
	r := &remote{
		name:      name,
		addresses: slices.Clone(addresses),
		drop:      drop,
		ended:     make(chan struct{}),
		closed:    make(chan struct{}),
	}
	r.endOnce = sync.OnceFunc(func() { close(r.ended) })
	i.replicas[name] = r
	i.runners.Go(func() { i.run(ctx, r) })
	return nil
}

// DropReplica cuts the replica's streams and returns when its connections are closed. It does nothing if there is no such replica.
func (i *Instance) DropReplica(name string) {
	i.mu.Lock()
	r := i.replicas[name]
	i.mu.Unlock()
	if r == nil {
		return
	}
	r.drop()
	<-r.closed
	i.mu.Lock()
	if i.replicas[name] == r {
		delete(i.replicas, name)
	}
	i.mu.Unlock()
}

// run keeps the replica connected.
func (i *Instance) run(ctx context.Context, r *remote) {
	defer close(r.closed)
	defer r.endOnce()
	defer r.drop()
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		began := time.Now()
		err := i.session(ctx, r)
		if ctx.Err() != nil || i.isClosing() {
			return
		}
		if i.options.OnDisconnect != nil {
			i.options.OnDisconnect(r.name, err)
		}
		if time.Since(began) > maxBackoff {
			backoff = minBackoff
		}
		wait := time.NewTimer(backoff)
		select {
		case <-wait.C:
		case <-ctx.Done():
		case <-i.closing:
		}
		wait.Stop()
	}
}

// session connects to all processes of a replica, brings them up to date and keeps them so. It returns when the first of the
// streams fails, or when the instance shuts down and its connections are released.
func (i *Instance) session(dropped context.Context, r *remote) error {
	group, ctx := errgroup.WithContext(dropped)
	processes := make([]*process, len(r.addresses))
	for n, address := range r.addresses {
		conn, err := grpc.NewClient(address, i.dialOptions(r.name, n)...)
		if err != nil {
			return fmt.Errorf("controller: replica %s: %w", r.name, err)
		}
		defer func() { _ = conn.Close() }() // it fails only if it's closed already
		stream, err := computepb.NewComputeClient(conn).CommandResponseStream(ctx, i.options.CallOptions...)
		if err != nil {
			return fmt.Errorf("controller: replica %s, process %d: %w", r.name, n, err)
		}
		processes[n] = &process{replica: r, index: n, stream: stream, outbox: newOutbox(), uppers: make(map[uint64]uint64)}
	}
	if !i.attach(r, processes) {
		return ErrClosed
	}
	defer i.detach(r)
	for _, p := range processes {
		group.Go(func() error { return p.send(ctx) })
		group.Go(func() error { return i.receive(p) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.endOnce()
	select {
	case <-i.release:
	case <-dropped.Done():
	}
	return nil
}

// attach makes the processes known, with the history in their outboxes: from here on they are sent every command.
func (i *Instance) attach(r *remote, processes []*process) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.history.Compact()
	replay := i.history.Commands()
	for _, p := range processes {
		commands := slices.Clone(replay)
		for n, c := range commands {
			if c.GetCreateTimely() != nil {
				commands[n] = createTimely(p.index, r.addresses)
			}
		}
		p.outbox.push(commands...)
	}
	r.processes = processes
	i.counts.Replays++
	i.counts.Replayed += uint64(len(replay))
	return true
}

// detach forgets the processes and what they have answered in part.
func (i *Instance) detach(r *remote) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r.processes = nil
	for _, p := range i.peeks {
		delete(p.answers, r)
	}
	for _, s := range i.subscriptions {
		delete(s.replicas, r)
	}
	for _, o := range i.copies {
		delete(o.answers, r)
	}
	for id, c := range i.collections {
		i.mergeUppersLocked(id, c)
	}
}

// send takes commands from the outbox to the stream until the outbox is closed, and then ends the stream.
func (p *process) send(ctx context.Context) error {
	for {
		select {
		case <-p.outbox.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		commands, closed, full := p.outbox.take()
		if full {
			return p.fail(fmt.Errorf("more than %d commands wait", maxBacklog))
		}
		for _, c := range commands {
			if err := p.stream.Send(c); err != nil {
				// Send says io.EOF when the stream has failed, and receive learns why.
				if errors.Is(err, io.EOF) {
					return nil
				}
				return p.fail(err)
			}
		}
		if closed {
			return p.stream.CloseSend()
		}
	}
}

// receive takes in responses until the stream ends.
func (i *Instance) receive(p *process) error {
	for {
		response, err := p.stream.Recv()
		switch {
		case err == nil:
			i.handle(p, response)
		case errors.Is(err, io.EOF) && i.isClosing():
			return nil
		default:
			return p.fail(err)
		}
	}
}

func (p *process) fail(err error) error {
	return fmt.Errorf("controller: replica %s, process %d: %w", p.replica.name, p.index, err)
}

// handle takes in a response.
func (i *Instance) handle(p *process, response *computepb.ComputeResponse) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch kind := response.GetKind().(type) {
	case *computepb.ComputeResponse_Frontiers:
		i.handleFrontiersLocked(p, kind.Frontiers)
	case *computepb.ComputeResponse_PeekResponse:
		i.handlePeekLocked(p, kind.PeekResponse)
	case *computepb.ComputeResponse_SubscribeResponse:
		i.handleSubscribeLocked(p, kind.SubscribeResponse)
	case *computepb.ComputeResponse_CopyToResponse:
		i.handleCopyToLocked(p, kind.CopyToResponse)
	case *computepb.ComputeResponse_Status:
		i.counts.Hydrated++
	}
}

func (i *Instance) dialOptions(replica string, process int) []grpc.DialOption {
	opts := []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse))}
	if i.options.DialOptions != nil {
		opts = append(opts, i.options.DialOptions(replica, process)...)
	}
	return opts
}

func (i *Instance) isClosing() bool {
	select {
	case <-i.closing:
		return true
	default:
		return false
	}
}
