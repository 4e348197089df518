package channel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/otelproto/otelproto-go/channel"
	"github.com/otelproto/otelproto-go/internal/faultproxy"
)

// Each RPC has a text of its own, and the server counts them. Connections are
// reset at random times.
func TestNonIdempotentCallsAreNeverSentTwiceUnderRandomKills(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := serve(t, "127.0.0.1:0")
	p := tcpProxy(t, s.addr)
	// With every reason to try again, and the means.
	c := dial(t, p.Addr(), quick(), channel.WithUnavailableThreshold(1), channel.WithClassifier(channel.AnyUnavailable),
		channel.WithRetry(channel.RetryPolicy{MaxAttempts: 10, Budget: 1, Burst: 1 << 20,
			Backoff: channel.Backoff{Base: time.Millisecond, Max: 2 * time.Millisecond}}))
	ctx := withPatience(t)
	const callers, calls = 8, 150
	var wg sync.WaitGroup
	var failed atomic.Int64
	for i := range callers {
		wg.Go(func() {
			for j := range calls {
				text := fmt.Sprintf("%d-%d", i, j)
				if err := do(ctx, c, text); err != nil {
					failed.Add(1)
					if n := s.count(text); n > 1 {
						t.Errorf("%s failed, and was sent %d times: %v", text, n, err)
					}
				} else if n := s.count(text); n != 1 {
					t.Errorf("%s succeeded, and was sent %d times", text, n)
				}
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			wait := time.Duration(random.IntN(8)) * time.Millisecond
			select {
			case <-stop:
				return
			case <-time.After(wait):
			}
			if random.IntN(4) > 0 {
				p.Reset()
				continue
			}
			p.HangUp(true)
			p.Reset()
			p.HangUp(false)
		}
	}()
	wg.Wait()
	close(stop)
	<-stopped
	s.calls.Range(func(text, n any) bool {
		if n := n.(*atomic.Int64).Load(); n > 1 {
			t.Errorf("%s was sent %d times", text, n)
		}
		return true
	})
	t.Logf("%d of %d calls failed, %d connections", failed.Load(), callers*calls, p.Accepted())
}

func TestIdempotentCallIsSentAgainAfterTheConnectionWasLost(t *testing.T) {
	t.Parallel()
	registerDescriptor(t)
	for name, tc := range map[string]struct {
		method string
		policy channel.RetryPolicy
		want   int64
	}{
		"nothing declared":                 {methodDo, channel.RetryPolicy{}, 1},
		"listed":                           {methodDo, channel.RetryPolicy{Idempotent: []string{"channeltest.Service/Do"}}, 3},
		"listed, two attempts":             {methodDo, channel.RetryPolicy{Idempotent: []string{methodDo}, MaxAttempts: 2}, 2},
		"listed, retries off":              {methodDo, channel.RetryPolicy{Idempotent: []string{methodDo}, MaxAttempts: 1}, 1},
		"listed, no budget":                {methodDo, channel.RetryPolicy{Idempotent: []string{methodDo}, MaxAttempts: 9, Burst: 1}, 2},
		"declared NO_SIDE_EFFECTS":         {"/channeldescribed.Service/Look", channel.RetryPolicy{}, 3},
		"declared IDEMPOTENT":              {"/channeldescribed.Service/Put", channel.RetryPolicy{}, 3},
		"descriptor that declares nothing": {"/channeldescribed.Service/Add", channel.RetryPolicy{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			var p atomic.Pointer[faultproxy.TCP]
			s := grpcServer(t, func(any, grpc.ServerStream) error {
				sent.Add(1)
				p.Load().Reset()
				return nil
			})
			proxy := tcpProxy(t, s)
			p.Store(proxy)
			c := dial(t, proxy.Addr(), quick(), channel.WithRetry(tc.policy))
			err := c.Invoke(withPatience(t), tc.method, &descriptorpb.FileOptions{}, &descriptorpb.FileOptions{})
			wantCode(t, err, codes.Unavailable)
			if got := sent.Load(); got != tc.want {
				t.Errorf("sent %d times, want %d (%v)", got, tc.want, err)
			}
		})
	}
}

func TestPushbackOfTheServerIsHonoured(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		values []string
		want   int64
	}{
		"none":     {nil, 2},
		"short":    {[]string{"5"}, 2},
		"negative": {[]string{"-1"}, 1},
		"no number": {
			[]string{"soon"}, 1,
		},
		"twice":             {[]string{"5", "6"}, 1},
		"past the deadline": {[]string{"600000"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "127.0.0.1:0")
			s.answer(func(ctx context.Context, _ string) error {
				for _, v := range tc.values {
					if err := grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", v)); err != nil {
						return err
					}
				}
				return status.Error(codes.Unavailable, "no")
			})
			c := dial(t, s.addr, quick(), channel.WithClassifier(channel.AnyUnavailable), channel.WithRetry(channel.RetryPolicy{
				Idempotent: []string{methodDo}, MaxAttempts: 2,
			}))
			begin := time.Now()
			wantCode(t, do(withPatience(t), c, "x"), codes.Unavailable)
			if got := s.count("x"); got != tc.want {
				t.Errorf("sent %d times, want %d", got, tc.want)
			}
			if took := time.Since(begin); took > patience/2 {
				t.Errorf("waited %v for a pushback beyond the deadline", took)
			}
		})
	}
}

func TestOnFinishRunsOncePerRPC(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	s.answer(func(context.Context, string) error { return status.Error(codes.Unavailable, "no") })
	c := dial(t, s.addr, quick(), channel.WithClassifier(channel.AnyUnavailable),
		channel.WithRetry(channel.RetryPolicy{Idempotent: []string{methodDo}}))
	var n atomic.Int64
	wantCode(t, do(withPatience(t), c, "x", grpc.OnFinish(func(error) { n.Add(1) })), codes.Unavailable)
	if n.Load() != 1 || s.count("x") != 1 {
		t.Errorf("OnFinish ran %d times, sent %d times, want 1 and 1", n.Load(), s.count("x"))
	}
}

// An interceptor that doesn't pass the call options on hides what the RPC
// saw, so nothing may be sent again.
func TestInterceptorThatDropsTheOptionsTurnsRetriesOff(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := tcpProxy(t, s.addr)
	s.answer(func(context.Context, string) error { p.Reset(); return nil })
	c, err := channel.New("passthrough:///"+p.Addr(), quick(),
		channel.WithRetry(channel.RetryPolicy{Idempotent: []string{methodDo}}),
		channel.WithDialOptions(plaintext(), grpc.WithUnaryInterceptor(
			func(
				ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
				invoke grpc.UnaryInvoker, _ ...grpc.CallOption,
			) error {
				return invoke(ctx, method, req, reply, cc)
			})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	wantCode(t, do(withPatience(t), c, "x"), codes.Unavailable)
	if got := s.count("x"); got != 1 {
		t.Errorf("sent %d times", got)
	}
}

// registerDescriptor links in a service of which two methods declare an
// idempotency level.
var registerDescriptor = func() func(t testing.TB) {
	var once sync.Once
	return func(tb testing.TB) {
		tb.Helper()
		once.Do(func() {
			method := func(name string, level *descriptorpb.MethodOptions_IdempotencyLevel) *descriptorpb.MethodDescriptorProto {
				return &descriptorpb.MethodDescriptorProto{
					Name: new(name), InputType: new(".channeldescribed.M"), OutputType: new(".channeldescribed.M"),
					Options: &descriptorpb.MethodOptions{IdempotencyLevel: level},
				}
			}
			file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
				Name: new("channeldescribed.proto"), Package: new("channeldescribed"), Syntax: new("proto3"),
				MessageType: []*descriptorpb.DescriptorProto{{Name: new("M")}},
				Service: []*descriptorpb.ServiceDescriptorProto{{
					Name: new("Service"),
					Method: []*descriptorpb.MethodDescriptorProto{
						method("Look", descriptorpb.MethodOptions_NO_SIDE_EFFECTS.Enum()),
						method("Put", descriptorpb.MethodOptions_IDEMPOTENT.Enum()),
						method("Add", nil),
					},
				}},
			}, protoregistry.GlobalFiles)
			if err == nil {
				err = protoregistry.GlobalFiles.RegisterFile(file)
			}
			if err != nil {
				tb.Fatal(err)
			}
		})
	}
}()
