package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// A Process is one process of a replica: a gRPC server of its own on a port of 127.0.0.1, with a worker for each stream. (It
// shares an operating system process with the others, so that the demonstration is one command.)
type Process struct {
	address string
	server  *grpc.Server
	done    chan error
}

// Options say how a process serves. The zero value is good.
type Options struct {
	// Server has the options of the gRPC server.
	Server []grpc.ServerOption
	// Listener may wrap the listener, to count what goes over its connections, say.
	Listener func(net.Listener) net.Listener
}

// StartProcess starts a process.
func StartProcess(o Options) (*Process, error) {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("replica: listening: %w", err)
	}
	if o.Listener != nil {
		listener = o.Listener(listener)
	}
	opts := append(slices.Clip(o.Server), grpc.WaitForHandlers(true)) // so that Stop leaves no goroutine behind
	p := &Process{address: listener.Addr().String(), server: grpc.NewServer(opts...), done: make(chan error, 1)}
	computepb.RegisterComputeServer(p.server, &service{})
	go func() { p.done <- p.server.Serve(listener) }()
	return p, nil
}

// Address is where the process listens.
func (p *Process) Address() string { return p.address }

// Stop ends the process and its streams at once, and returns when it has ended. It must be called once.
func (p *Process) Stop() error {
	p.server.Stop()
	if err := <-p.done; err != nil {
		return fmt.Errorf("replica: serving %s: %w", p.address, err)
	}
	return nil
}

type service struct {
	computepb.UnimplementedComputeServer
}

type stream = grpc.BidiStreamingServer[computepb.ComputeCommand, computepb.ComputeResponse]

// CommandResponseStream runs a worker until the controller ends the stream.
func (*service) CommandResponseStream(s stream) error {
	var (
		worker   = NewWorker()
		received = receive(s)
		alarm    = time.NewTimer(time.Hour)
	)
	defer alarm.Stop()
	for {
		var responses []*computepb.ComputeResponse
		select {
		case <-s.Context().Done():
			return status.FromContextError(s.Context().Err()).Err()
		case r := <-received:
			switch {
			case errors.Is(r.err, io.EOF):
				return nil
			case r.err != nil:
				return r.err
			}
			var err error
			if responses, err = worker.Handle(r.command); err != nil {
				return status.Error(codes.InvalidArgument, err.Error())
			}
			if r.command.GetInitializationComplete() != nil {
				alarm.Reset(0)
			}
		case now := <-alarm.C:
			epoch, tick := worker.Clock()
			if tick == 0 {
				break // not before create_instance
			}
			passed := now.Sub(epoch)
			responses = worker.Advance(uint64(max(0, passed/tick)))
			alarm.Reset(tick - passed%tick)
		}
		for _, response := range responses {
			if err := s.Send(response); err != nil {
				return err
			}
		}
	}
}

type received struct {
	command *computepb.ComputeCommand
	err     error // after which nothing follows
}

// receive reads the stream in a goroutine, so that commands and time can be waited for together. The goroutine ends with the
// stream.
func receive(s stream) <-chan received {
	c := make(chan received)
	go func() {
		for {
			command, err := s.Recv()
			select {
			case c <- received{command, err}:
			case <-s.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return c
}
