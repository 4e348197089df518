package channel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/otelproto/otelproto-go/channel"
	"github.com/otelproto/otelproto-go/internal/faultproxy"
)

const (
	methodDo   = "/channeltest.Service/Do"   // unary
	methodChat = "/channeltest.Service/Chat" // bidirectional
	methodSum  = "/channeltest.Service/Sum"  // client stream, one response

	// patience bounds every wait of a test. It is no expectation.
	patience = 60 * time.Second
)

// server counts what it is sent and answers as do says.
type server struct {
	addr  string
	calls sync.Map // request text: *atomic.Int64
	total atomic.Int64
	do    atomic.Pointer[func(ctx context.Context, text string) error]
	grpc  *grpc.Server
	live  atomic.Int64 // handlers

	release chan struct{} // for handlers that wait for the test
}

func serve(tb testing.TB, addr string, opts ...grpc.ServerOption) *server {
	tb.Helper()
	var ln net.Listener
	var err error
	eventually(tb, "listen on "+addr, func() bool { // the port may still be closing
		ln, err = net.Listen("tcp", addr)
		return err == nil
	})
	s := &server{addr: ln.Addr().String(), grpc: grpc.NewServer(opts...), release: make(chan struct{})}
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: "channeltest.Service",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Do", Handler: handleDo}},
		Streams: []grpc.StreamDesc{
			{StreamName: "Chat", Handler: handleChat, ServerStreams: true, ClientStreams: true},
			{StreamName: "Sum", Handler: handleSum, ClientStreams: true},
		},
	}, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.grpc.Serve(ln)
	}()
	tb.Cleanup(func() { s.grpc.Stop(); <-done })
	return s
}

func (s *server) answer(f func(ctx context.Context, text string) error) { s.do.Store(&f) }

func (s *server) count(text string) int64 {
	v, ok := s.calls.Load(text)
	if !ok {
		return 0
	}
	return v.(*atomic.Int64).Load()
}

func (s *server) handle(ctx context.Context, text string) error {
	s.live.Add(1)
	defer s.live.Add(-1)
	s.total.Add(1)
	v, _ := s.calls.LoadOrStore(text, new(atomic.Int64))
	v.(*atomic.Int64).Add(1)
	if f := s.do.Load(); f != nil {
		return (*f)(ctx, text)
	}
	return nil
}

//nolint:revive // grpc fixes the order of the parameters
func handleDo(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	in := new(wrapperspb.StringValue)
	if err := decode(in); err != nil {
		return nil, err
	}
	return in, srv.(*server).handle(ctx, in.GetValue())
}

func handleChat(srv any, stream grpc.ServerStream) error {
	for {
		in := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(in); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := srv.(*server).handle(stream.Context(), in.GetValue()); err != nil {
			return err
		}
		if err := stream.SendMsg(in); err != nil {
			return err
		}
	}
}

func handleSum(_ any, stream grpc.ServerStream) error {
	n := 0
	for {
		if err := stream.RecvMsg(new(wrapperspb.StringValue)); errors.Is(err, io.EOF) {
			return stream.SendMsg(wrapperspb.String(string(rune('0' + n))))
		} else if err != nil {
			return err
		}
		n++
	}
}

func do(ctx context.Context, c grpc.ClientConnInterface, text string, opts ...grpc.CallOption) error {
	out := new(wrapperspb.StringValue)
	if err := c.Invoke(ctx, methodDo, wrapperspb.String(text), out, opts...); err != nil {
		return err
	}
	if out.GetValue() != text {
		return errors.New("wrong answer: " + out.GetValue())
	}
	return nil
}

// chat opens a stream and exchanges a first message.
func chat(ctx context.Context, tb testing.TB, c grpc.ClientConnInterface) grpc.ClientStream {
	tb.Helper()
	cs, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, methodChat)
	if err != nil {
		tb.Fatalf("open stream: %v", err)
	}
	if err := exchange(cs, "hello"); err != nil {
		tb.Fatalf("first message: %v", err)
	}
	return cs
}

func exchange(cs grpc.ClientStream, text string) error {
	if err := cs.SendMsg(wrapperspb.String(text)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	out := new(wrapperspb.StringValue)
	if err := cs.RecvMsg(out); err != nil {
		return err
	}
	if out.GetValue() != text {
		return errors.New("wrong echo: " + out.GetValue())
	}
	return nil
}

func finish(tb testing.TB, cs grpc.ClientStream) {
	tb.Helper()
	if err := cs.CloseSend(); err != nil {
		tb.Errorf("CloseSend: %v", err)
	}
	if err := cs.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
		tb.Errorf("end of stream: %v, want EOF", err)
	}
}

func plaintext() grpc.DialOption { return grpc.WithTransportCredentials(insecure.NewCredentials()) }

// quick is a backoff that doesn't hold tests up.
func quick() channel.Option {
	return channel.WithBackoff(channel.Backoff{Base: 10 * time.Millisecond, Max: 100 * time.Millisecond})
}

func dial(tb testing.TB, addr string, opts ...channel.Option) *channel.Conn {
	tb.Helper()
	c, err := channel.New("passthrough:///"+addr, append([]channel.Option{channel.WithDialOptions(plaintext())}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return c
}

func newCache(tb testing.TB, opts ...channel.Option) *channel.Cache {
	tb.Helper()
	c, err := channel.NewCache(append([]channel.Option{channel.WithDialOptions(plaintext())}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return c
}

func tcpProxy(tb testing.TB, backend string) *faultproxy.TCP {
	tb.Helper()
	p, err := faultproxy.ListenTCP(backend)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

func httpProxy(tb testing.TB, backend string) *faultproxy.HTTP {
	tb.Helper()
	p, err := faultproxy.ListenHTTP(backend)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

func withPatience(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// eventually polls until the condition holds.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// never polls for a while that is long against the backoff of quick.
func never(tb testing.TB, what string, bad func() bool) {
	tb.Helper()
	end := time.NewTimer(300 * time.Millisecond)
	defer end.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if bad() {
			tb.Fatal(what)
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		}
	}
}

func wantCode(tb testing.TB, err error, want codes.Code) {
	tb.Helper()
	if got := status.Code(err); got != want {
		tb.Fatalf("got %v (%v), want code %v", got, err, want)
	}
}

func sendHeader(ctx context.Context) error { return grpc.SendHeader(ctx, metadata.Pairs("x", "y")) }

func codeOf(err error) codes.Code { return status.Code(err) }

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func statusUnavailable() error { return status.Error(codes.Unavailable, "as the test wants it") }

// grpcServer serves every method with h.
func grpcServer(tb testing.TB, h grpc.StreamHandler) (addr string) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnknownServiceHandler(h))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ln)
	}()
	tb.Cleanup(func() { s.Stop(); <-done })
	return ln.Addr().String()
}

func spokenMessage() *wrapperspb.StringValue { return wrapperspb.String("x") }
