package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelproto/otelproto-go/channel"
	"github.com/otelproto/otelproto-go/examples/invoke/caller"
	"github.com/otelproto/otelproto-go/examples/invoke/component"
	"github.com/otelproto/otelproto-go/examples/invoke/executor"
	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
	"github.com/otelproto/otelproto-go/examples/invoke/journal"
	"github.com/otelproto/otelproto-go/examples/invoke/shards"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

const (
	callsPerMove = 50 // with -chaos: so that moves keep pace with calls, however fast or slow the machine is
	versions     = 5  // of the component, spread over the calls
)

// run is the whole program. Nothing of it is left when it returns.
func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	c, err := parse(args, stdout)
	if err != nil {
		return err
	}
	sizes := stats.NewRegistry() // of all messages, as clients see them
	conns, err := channel.NewCache(channel.WithDialOptions(append(
		otelproto.DialOptions(otelproto.WithRegistry(sizes)), // how large messages are
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)...))
	if err != nil {
		return fmt.Errorf("invoke: %w", err)
	}
	components, stop, err := serveComponents()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	defer func() { err = errors.Join(err, conns.Close()) }()

	log := journal.New(c.shards)
	options := executor.Options{
		Journal:    log,
		Shards:     c.shards,
		Components: invokepb.NewComponentsClient(conns.Conn(components.address)),
	}
	if c.completion == byTopic {
		options.Window = c.window
	}
	executors := make([]*executor.Executor, c.executors)
	hosts := make([]shards.Host, c.executors)
	for n := range executors {
		executors[n], err = executor.Start(options)
		if err != nil {
			return fmt.Errorf("invoke: %w", err)
		}
		defer func() { err = errors.Join(err, executors[n].Stop()) }()
		hosts[n] = executors[n]
	}
	manager, err := shards.New(c.shards, hosts)
	if err != nil {
		return fmt.Errorf("invoke: %w", err)
	}

	r := report{config: c}
	moves := chaos{config: c, manager: manager}
	begin := time.Now()
	r.Result = caller.Run(ctx, caller.Options{
		Calls: c.calls, Workers: c.workers, Concurrency: c.concurrency, Shards: c.shards, Seed: c.seed, Timeout: c.timeout,
		Conn:     func(address string) grpc.ClientConnInterface { return conns.Conn(address) },
		Route:    manager.Route,
		Recorded: log.Lookup,
		Begin: func(n int) uint64 {
			if c.chaos && n%callsPerMove == 0 {
				moves.move(n)
			}
			if n > 1 && (n-1)%max(1, c.calls/versions) == 0 {
				return components.Publish()
			}
			return components.Latest()
		},
	})
	r.took = time.Since(begin)
	r.moves = moves.count.Load()
	for _, e := range executors {
		r.resyncs += e.Resyncs()
	}
	r.counts = log.Counts()
	r.versions = components.Latest()
	if failed := moves.err.Load(); failed != nil {
		err = fmt.Errorf("invoke: %w", *failed)
	}
	return errors.Join(err, r.print(stdout, sizes.Snapshot().Total), r.verdict(ctx))
}

// A componentServer is the component service and where it is reached.
type componentServer struct {
	component.Service

	address string
}

// serveComponents serves components until stop is called.
func serveComponents() (components *componentServer, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("invoke: listening: %w", err)
	}
	components = &componentServer{address: listener.Addr().String()}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	invokepb.RegisterComponentsServer(server, components)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	return components, func() error {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // that is Stop before Serve
			return fmt.Errorf("invoke: serving components: %w", err)
		}
		return nil
	}, nil
}

// chaos moves shards at random, while others' calls run and wait.
type chaos struct {
	config  config
	manager *shards.Manager
	count   atomic.Uint64
	err     atomic.Pointer[error] // the first
}

// move makes one move, every second time out of order.
func (m *chaos) move(n int) {
	random := rand.New(rand.NewPCG(m.config.seed, uint64(n)))
	err := m.manager.Move(random.IntN(m.config.shards), random.IntN(m.config.executors), n/callsPerMove%2 == 0)
	if err != nil {
		m.err.CompareAndSwap(nil, &err)
	}
	m.count.Add(1)
}
