package channel_test

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/otelproto/otelproto-go/channel"
)

func TestServerRestartedOnTheSameAddressIsFoundAgain(t *testing.T) {
	t.Parallel()
	first := serve(t, "127.0.0.1:0")
	c := dial(t, first.addr, quick())
	ctx := withPatience(t)
	if err := do(ctx, c, "x"); err != nil {
		t.Fatal(err)
	}
	first.grpc.Stop()
	if err := do(ctx, c, "x"); err == nil {
		t.Fatal("answered by a stopped server")
	}
	second := serve(t, first.addr)
	eventually(t, "second server", func() bool { return do(ctx, c, "x") == nil })
	if second.count("x") == 0 {
		t.Error("not answered by the second server")
	}
}

func TestWaitForReadyOutlastsARestart(t *testing.T) {
	t.Parallel()
	first := serve(t, "127.0.0.1:0")
	c := dial(t, first.addr, quick())
	ctx := withPatience(t)
	if err := do(ctx, c, "x"); err != nil {
		t.Fatal(err)
	}
	first.grpc.Stop()
	// Until the client has noticed, what it sends is lost with the connection.
	eventually(t, "loss noticed", func() bool { return c.State().Connectivity != connectivity.Ready })
	errs := make(chan error, 11)
	for range cap(errs) - 1 {
		go func() { errs <- do(ctx, c, "y", grpc.WaitForReady(true)) }()
	}
	eventually(t, "failed attempts", func() bool {
		// On the connection that was lost, or in attempts for another.
		s := c.State()
		return s.Connectivity == connectivity.TransientFailure || s.LastFailure != nil
	})
	go func() { errs <- do(ctx, c, "z", grpc.WaitForReady(true)) }() // comes while the connection fails
	serve(t, first.addr)
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestServerAtAnotherAddressBehindTheSameNameIsFound(t *testing.T) {
	t.Parallel()
	first := serve(t, "127.0.0.1:0")
	// The name server: each new ClientConn asks it afresh, which a ClientConn
	// that stands doesn't do for 30 s with DNS.
	var mu sync.Mutex
	addr := first.addr
	r := &fixedResolver{lookup: func() string {
		mu.Lock()
		defer mu.Unlock()
		return addr
	}}
	c, err := channel.New("name:///service", quick(), channel.WithDialOptions(plaintext(), grpc.WithResolvers(r)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx := withPatience(t)
	if err := do(ctx, c, "x"); err != nil {
		t.Fatal(err)
	}
	second := serve(t, "127.0.0.1:0")
	mu.Lock()
	addr = second.addr
	mu.Unlock()
	first.grpc.Stop()
	eventually(t, "second server", func() bool { return do(ctx, c, "x") == nil })
	if second.count("x") == 0 {
		t.Error("not answered by the second server")
	}
}

// fixedResolver resolves once, when it is built.
type fixedResolver struct{ lookup func() string }

func (r *fixedResolver) Scheme() string { return "name" }
func (r *fixedResolver) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	return r, cc.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: r.lookup()}}})
}
func (r *fixedResolver) ResolveNow(resolver.ResolveNowOptions) {}
func (r *fixedResolver) Close()                                {}

func TestMaxConnectionAgeUnderLoadFailsNothingThatABareClientConnWouldNotFail(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", grpc.KeepaliveParams(keepalive.ServerParameters{
		MaxConnectionAge: 20 * time.Millisecond, MaxConnectionAgeGrace: patience,
	}))
	c := dial(t, s.addr)
	bare, err := grpc.NewClient("passthrough:///"+s.addr, plaintext())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bare.Close() }()
	ours, theirs := load(t, c, 8, 250), load(t, bare, 8, 250)
	t.Logf("failed: %d of 2000, bare: %d", ours, theirs)
	if ours > theirs {
		t.Errorf("%d RPCs failed, %d on a bare ClientConn", ours, theirs)
	}
	if ours > 0 {
		t.Errorf("%d RPCs failed though the server ends connections gracefully", ours)
	}
}

// load runs unary RPCs and counts failures.
func load(t *testing.T, c grpc.ClientConnInterface, callers, calls int) int {
	t.Helper()
	ctx := withPatience(t)
	var wg sync.WaitGroup
	errs := make(chan error, callers*calls)
	for range callers {
		wg.Go(func() {
			for range calls {
				errs <- do(ctx, c, "load")
			}
		})
	}
	wg.Wait()
	close(errs)
	failed := 0
	for err := range errs {
		if err != nil {
			failed++
			t.Logf("%T: %v", c, err)
		}
	}
	return failed
}

func TestConnectionsThatAreResetAreReplacedByGRPCItself(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := tcpProxy(t, s.addr)
	c := dial(t, p.Addr(), quick())
	ctx := withPatience(t)
	for range 20 {
		eventually(t, "answer", func() bool { return do(ctx, c, "x") == nil })
		p.Reset()
	}
	eventually(t, "answer", func() bool { return do(ctx, c, "x") == nil })
	if got := c.State().Generation; got != 1 {
		t.Errorf("generation %d, want 1: the transport is grpc's business", got)
	}
}

func TestMultipleAddressesFailOverWithinOneGeneration(t *testing.T) {
	t.Parallel()
	a, b := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
	r := manual.NewBuilderWithScheme("two")
	r.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: a.addr}, {Addr: b.addr}}})
	c, err := channel.New("two:///x", quick(), channel.WithDialOptions(plaintext(), grpc.WithResolvers(r),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx := withPatience(t)
	eventually(t, "both backends", func() bool {
		return do(ctx, c, "x") == nil && a.count("x") > 0 && b.count("x") > 0
	})
	a.grpc.Stop()
	eventually(t, "other backend", func() bool { return do(ctx, c, "y") == nil })
	if b.count("y") == 0 || c.State().Generation != 1 {
		t.Errorf("served %d by the other backend in generation %d", b.count("y"), c.State().Generation)
	}
}
