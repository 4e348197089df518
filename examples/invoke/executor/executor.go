package executor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/broadcast"
	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
	"github.com/otelproto/otelproto-go/examples/invoke/journal"
	"github.com/otelproto/otelproto-go/examples/invoke/shards"
)

var errMoved = errors.New("executor: the shard has moved")

// Options say how an executor works.
type Options struct {
	// Journal is shared with the other executors.
	Journal *journal.Journal
	// Shards is the number of all shards, whoever owns them.
	Shards int
	// Components says what workers are made of.
	Components invokepb.ComponentsClient
	// Window is 0 to tell callers by key, through broadcast.Waiters. Otherwise a broadcast.Topic per shard tells them all of
	// every outcome, and this is its window.
	Window int
	// Server has the options of the gRPC server.
	Server []grpc.ServerOption
}

// An Executor is a gRPC server on a port of 127.0.0.1, and the workers behind it. Its methods may be called from any goroutine.
type Executor struct {
	invokepb.UnimplementedWorkerExecutorServer

	options    Options
	components *components
	waiters    broadcast.Waiters[waitKey, *invokepb.Outcome] // of all shards that are told by key
	resyncs    atomic.Uint64                                 // of shards that were released
	workers    sync.WaitGroup
	address    string
	server     *grpc.Server
	done       chan error

	// mu guards owned. Nothing blocks while it is held.
	mu    sync.Mutex
	owned map[int]*shard
}

// Start starts an executor that owns no shards.
func Start(o Options) (*Executor, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("executor: listening: %w", err)
	}
	opts := append(slices.Clip(o.Server), grpc.WaitForHandlers(true)) // so that Stop leaves no goroutine behind
	e := &Executor{
		options:    o,
		components: newComponents(o.Components),
		address:    listener.Addr().String(),
		server:     grpc.NewServer(opts...),
		done:       make(chan error, 1),
		owned:      make(map[int]*shard),
	}
	invokepb.RegisterWorkerExecutorServer(e.server, e)
	go func() { e.done <- e.server.Serve(listener) }()
	return e, nil
}

// Address implements shards.Host.
func (e *Executor) Address() string { return e.address }

// Acquire implements shards.Host. It goes on with what the journal says was accepted and has no outcome.
func (e *Executor) Acquire(id int) (epoch uint64, err error) {
	told, err := e.newCompletion()
	if err != nil {
		return 0, fmt.Errorf("executor: %w", err)
	}
	epoch, pending := e.options.Journal.Acquire(id)
	s := newShard(e, id, epoch, told)
	for _, invocation := range pending {
		s.enqueue(invocation) // before anybody can add to the queues
	}
	e.mu.Lock()
	before := e.owned[id]
	e.owned[id] = s
	e.mu.Unlock()
	if before != nil {
		before.release()
	}
	return epoch, nil
}

// Release implements shards.Host.
func (e *Executor) Release(id int) {
	e.mu.Lock()
	s := e.owned[id]
	delete(e.owned, id)
	e.mu.Unlock()
	if s != nil {
		s.release()
	}
}

// Stop releases all shards, ends the server and returns when everything has ended. It must be called once.
func (e *Executor) Stop() error {
	for id := range e.options.Shards {
		e.Release(id)
	}
	e.server.Stop()
	e.workers.Wait()
	if err := <-e.done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // that is Stop before Serve
		return fmt.Errorf("executor: serving %s: %w", e.address, err)
	}
	return nil
}

// Resyncs is how often a caller who waited lagged past a topic's window, and looked into the journal again.
func (e *Executor) Resyncs() uint64 {
	n := e.resyncs.Load()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.owned {
		n += s.told.resyncs()
	}
	return n
}

// Invoke implements invokepb.WorkerExecutorServer.
func (e *Executor) Invoke(_ context.Context, invocation *invokepb.Invocation) (*invokepb.Receipt, error) {
	if err := check(invocation); err != nil {
		return nil, err
	}
	s, id := e.shard(invocation)
	if s == nil || !s.accept(invocation) {
		return &invokepb.Receipt{Result: &invokepb.Receipt_Moved{Moved: &invokepb.Moved{Shard: uint32(id)}}}, nil
	}
	return &invokepb.Receipt{Result: &invokepb.Receipt_Accepted{Accepted: &invokepb.Accepted{}}}, nil
}

// InvokeAndAwait implements invokepb.WorkerExecutorServer.
func (e *Executor) InvokeAndAwait(ctx context.Context, invocation *invokepb.Invocation) (*invokepb.Outcome, error) {
	if err := check(invocation); err != nil {
		return nil, err
	}
	s, id := e.shard(invocation)
	moved := &invokepb.Outcome{Result: &invokepb.Outcome_Moved{Moved: &invokepb.Moved{Shard: uint32(id)}}}
	if s == nil || !s.accept(invocation) {
		return moved, nil
	}
	outcome, err := s.await(ctx, invocation.GetIdempotencyKey())
	switch {
	case err == nil:
		return outcome, nil
	case errors.Is(err, errMoved):
		return moved, nil
	default:
		return nil, status.FromContextError(err).Err()
	}
}

// shard returns the invocation's shard and its number, and nil where it isn't owned.
func (e *Executor) shard(invocation *invokepb.Invocation) (*shard, int) {
	id := shards.Of(invocation.GetWorker(), e.options.Shards)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.owned[id], id
}

func check(invocation *invokepb.Invocation) error {
	switch {
	case invocation.GetWorker() == "":
		return status.Error(codes.InvalidArgument, "executor: an invocation needs a worker")
	case invocation.GetIdempotencyKey() == "":
		return status.Error(codes.InvalidArgument, "executor: an invocation needs an idempotency key")
	case invocation.GetFunction() == nil:
		return status.Error(codes.InvalidArgument, "executor: an invocation needs a function")
	}
	return nil
}
