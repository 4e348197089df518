// Package grpctest is an in-memory pair of gRPC client and server for tests, with the test service behind it.
package grpctest

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/internal/testproto"
)

// Pair is a server and a client connected to it. Both end with the test, or with Close before.
type Pair struct {
	Conn   *grpc.ClientConn
	Client testproto.TestClient
	Server *grpc.Server
	Addr   string

	served chan struct{}
}

// Options sets up a pair.
type Options struct {
	Server []grpc.ServerOption
	Dial   []grpc.DialOption
	// Service is what the server serves; by default an Echo.
	Service testproto.TestServer
	// Listener is where it listens; by default on a free port of 127.0.0.1.
	Listener net.Listener
	// Target is what the client dials; by default the listener's address.
	Target string
}

// New starts a pair.
func New(tb testing.TB, o Options) *Pair {
	tb.Helper()

	lis := o.Listener
	if lis == nil {
		var (
			lc  net.ListenConfig
			err error
		)

		if lis, err = lc.Listen(tb.Context(), "tcp", "127.0.0.1:0"); err != nil {
			tb.Fatal(err)
		}
	}

	if o.Service == nil {
		o.Service = Echo{}
	}

	p := &Pair{Server: grpc.NewServer(o.Server...), Addr: lis.Addr().String(), served: make(chan struct{})}
	testproto.RegisterTestServer(p.Server, o.Service)

	go func() {
		defer close(p.served)

		if err := p.Server.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			tb.Error(err)
		}
	}()

	if o.Target == "" {
		o.Target = p.Addr
	}

	conn, err := grpc.NewClient(o.Target, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, o.Dial...)...)
	if err != nil {
		tb.Fatal(err)
	}

	p.Conn, p.Client = conn, testproto.NewTestClient(conn)

	tb.Cleanup(p.Close)

	return p
}

// Close ends the client and the server and waits for both. It may be called more than once.
func (p *Pair) Close() {
	_ = p.Conn.Close()
	p.Server.GracefulStop()
	<-p.served
}

// Echo answers each command with a reply of its size: a put with its value, a get and a peek with the key, a note with an error.
type Echo struct {
	testproto.UnimplementedTestServer
}

// Answer is the reply to a command.
func Answer(c *testproto.Command) *testproto.Reply {
	value := func(b []byte) *testproto.Reply {
		return &testproto.Reply{Id: c.GetId(), Result: &testproto.Reply_Value{Value: &testproto.Value{Value: b}}}
	}

	switch k := c.GetKind().(type) {
	case *testproto.Command_Put:
		return value(k.Put.GetValue())
	case *testproto.Command_Get:
		return value([]byte(k.Get.GetKey()))
	case *testproto.Command_Peek:
		return value([]byte(k.Peek.GetKey()))
	case *testproto.Command_Note:
		return &testproto.Reply{Id: c.GetId(), Result: &testproto.Reply_Error{Error: &testproto.Error{Text: k.Note}}}
	default:
		return &testproto.Reply{}
	}
}

// Unary answers one command. A note "unavailable" fails.
func (Echo) Unary(_ context.Context, c *testproto.Command) (*testproto.Reply, error) {
	if c.GetNote() == "unavailable" {
		return nil, status.Error(codes.Unavailable, "as asked")
	}

	return Answer(c), nil
}

// ClientStream answers with the number of commands.
func (Echo) ClientStream(s grpc.ClientStreamingServer[testproto.Command, testproto.Reply]) error {
	for n := 0; ; n++ {
		_, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&testproto.Reply{Id: strconv.Itoa(n)})
		}

		if err != nil {
			return err
		}
	}
}

// ServerStream answers one command as many times as its id has dots.
func (Echo) ServerStream(c *testproto.Command, s grpc.ServerStreamingServer[testproto.Reply]) error {
	for range strings.Count(c.GetId(), ".") {
		if err := s.Send(Answer(c)); err != nil {
			return err
		}
	}

	return nil
}

// Bidi answers each command.
func (Echo) Bidi(s grpc.BidiStreamingServer[testproto.Command, testproto.Reply]) error {
	for {
		c, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		if err := s.Send(Answer(c)); err != nil {
			return err
		}
	}
}
