package channel_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/otelproto/otelproto-go/channel"
)

// pool is the usual alternative: a fixed number of ClientConns, round robin.
type pool struct {
	conns []*grpc.ClientConn
	next  atomic.Uint64
}

func (p *pool) pick() *grpc.ClientConn { return p.conns[p.next.Add(1)%uint64(len(p.conns))] }

func (p *pool) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return p.pick().Invoke(ctx, method, args, reply, opts...)
}

func (p *pool) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return p.pick().NewStream(ctx, desc, method, opts...)
}

// perCall is what the package replaces: a connection for each call.
type perCall struct{ target string }

func (p perCall) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	cc, err := grpc.NewClient(p.target, plaintext())
	if err != nil {
		return err
	}
	defer func() { _ = cc.Close() }()
	return cc.Invoke(ctx, method, args, reply, opts...)
}

func (perCall) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	panic("bug: no benchmark opens a stream per connection")
}

func bare(tb testing.TB, target string) *grpc.ClientConn {
	tb.Helper()
	cc, err := grpc.NewClient(target, plaintext())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cc.Close() })
	return cc
}

func benchServer(b *testing.B) (target string) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "channeltest.Service",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Do", Handler: echoOne}},
		Streams:     []grpc.StreamDesc{{StreamName: "Chat", ServerStreams: true, ClientStreams: true, Handler: echoAll}},
	}, nil)
	go func() { _ = s.Serve(ln) }()
	b.Cleanup(s.Stop)
	return "passthrough:///" + ln.Addr().String()
}

//nolint:revive // grpc fixes the order of the parameters
func echoOne(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	in := new(wrapperspb.StringValue)
	return in, decode(in)
}

func echoAll(_ any, s grpc.ServerStream) error {
	for {
		in := new(wrapperspb.StringValue)
		if err := s.RecvMsg(in); err != nil {
			return err
		}
		if err := s.SendMsg(in); err != nil {
			return err
		}
	}
}

// Loopback calls are bound by the kernel and the scheduler: compare the lines
// of one run, not of different ones.
func BenchmarkUnary(b *testing.B) {
	target := benchServer(b)
	cache := newCache(b)
	grown := newCache(b, channel.WithConnections(1, 4))
	with := newCache(b, channel.WithClassifier(channel.Classify))
	p := &pool{}
	for range 4 {
		p.conns = append(p.conns, bare(b, target))
	}
	for _, bc := range []struct {
		name string
		conn grpc.ClientConnInterface
	}{
		{"bare", bare(b, target)},
		{"handle", cache.Conn(target)},
		{"handle-classifier", with.Conn(target)},
		{"handle-upto4", grown.Conn(target)},
		{"pool4", p},
		{"connection-per-call", perCall{target}},
	} {
		in, out := wrapperspb.String("x"), new(wrapperspb.StringValue)
		ctx := context.Background()
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bc.conn.Invoke(ctx, methodDo, in, out); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bc.name+"-parallel", func(b *testing.B) {
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				in, out := wrapperspb.String("x"), new(wrapperspb.StringValue)
				for pb.Next() {
					if err := bc.conn.Invoke(ctx, methodDo, in, out); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// nowhere takes the RPC out, so that what is left is what the handle adds.
func BenchmarkHandleOverhead(b *testing.B) {
	interceptor := func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
		return nil
	}
	target := benchServer(b)
	cc, err := grpc.NewClient(target, plaintext(), grpc.WithUnaryInterceptor(interceptor))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	ours := newCache(b, channel.WithDialOptions(grpc.WithUnaryInterceptor(interceptor))).Conn(target)
	for name, conn := range map[string]grpc.ClientConnInterface{"bare": cc, "handle": ours} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			in, out, ctx := wrapperspb.String("x"), new(wrapperspb.StringValue), context.Background()
			for b.Loop() {
				if err := conn.Invoke(ctx, methodDo, in, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStreamMessage(b *testing.B) {
	target := benchServer(b)
	for _, bc := range []struct {
		name string
		conn grpc.ClientConnInterface
	}{{"bare", bare(b, target)}, {"handle", newCache(b).Conn(target)}} {
		b.Run(bc.name, func(b *testing.B) {
			ctx := b.Context()
			cs, err := bc.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, methodChat)
			if err != nil {
				b.Fatal(err)
			}
			in, out := wrapperspb.String("x"), new(wrapperspb.StringValue)
			b.ReportAllocs()
			for b.Loop() {
				if err := cs.SendMsg(in); err != nil {
					b.Fatal(err)
				}
				if err := cs.RecvMsg(out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStreamOpen(b *testing.B) {
	target := benchServer(b)
	for _, bc := range []struct {
		name string
		conn grpc.ClientConnInterface
	}{{"bare", bare(b, target)}, {"handle", newCache(b).Conn(target)}} {
		b.Run(bc.name, func(b *testing.B) {
			ctx := context.Background()
			in, out := wrapperspb.String("x"), new(wrapperspb.StringValue)
			b.ReportAllocs()
			for b.Loop() {
				cs, err := bc.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, methodChat)
				if err != nil {
					b.Fatal(err)
				}
				_ = cs.SendMsg(in)
				_ = cs.RecvMsg(out)
				_ = cs.CloseSend()
				_ = cs.RecvMsg(out)
			}
		})
	}
}

func BenchmarkCacheHit(b *testing.B) {
	for _, n := range []int{1, 100} {
		cache := newCache(b)
		var targets []string
		for i := range n {
			targets = append(targets, "dns:///service-"+string(rune('a'+i%26))+string(rune('a'+i/26))+".example.com:443")
			cache.Conn(targets[i])
		}
		name := map[int]string{1: "one", 100: "hundred"}[n]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				cache.Conn(targets[i])
				if i++; i == n {
					i = 0
				}
			}
		})
		b.Run(name+"-parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					cache.Conn(targets[i%n])
				}
			})
		})
	}
}
