package channel_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"

	"github.com/otelproto/otelproto-go/channel"
)

func TestConnectionThatIsAcceptedAndNeverSpeaksFailsAfterOneConnectTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	p := tcpProxy(t, "127.0.0.1:1")
	p.Mute(true)
	c := dial(t, p.Addr(), channel.WithConnectTimeout(timeout))
	ctx := withPatience(t)
	// All at once: one attempt serves them all, so that none waits for two.
	var wg sync.WaitGroup
	var slowest atomic.Int64
	for range 8 {
		wg.Go(func() {
			begin := time.Now()
			wantCodeLater(t, do(ctx, c, "x"), codes.Unavailable)
			took := int64(time.Since(begin))
			for {
				old := slowest.Load()
				if took <= old || slowest.CompareAndSwap(old, took) {
					return
				}
			}
		})
	}
	wg.Wait()
	if got := p.Accepted(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
	t.Logf("slowest of 8 callers: %v", time.Duration(slowest.Load()))
	if got := time.Duration(slowest.Load()); got >= 2*timeout {
		t.Errorf("slowest caller waited %v, want less than two connect timeouts of %v", got, timeout)
	}
}

// wantCodeLater is wantCode for goroutines, which must not end the test.
func wantCodeLater(tb testing.TB, err error, want codes.Code) {
	tb.Helper()
	if got := codeOf(err); got != want {
		tb.Errorf("got %v (%v), want code %v", got, err, want)
	}
}

// A ClientConn fails the RPC that meets a lost connection if its first
// reconnect fails. It was never sent, so it may wait for one attempt more.
func TestCallThatMeetsALostConnectionWaitsForOneFreshAttempt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		failures, dials int64
		want            codes.Code
	}{
		"which succeeds": {1, 3, codes.OK},
		"which fails":    {100, 3, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "127.0.0.1:0")
			p := tcpProxy(t, s.addr)
			var dials atomic.Int64
			c, err := channel.New("passthrough:///"+p.Addr(), channel.WithBackoff(channel.Backoff{Base: time.Second, Max: 2 * time.Second}),
				channel.WithRetry(channel.RetryPolicy{MaxAttempts: 10}), channel.WithDialOptions(plaintext(),
					grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
						if n := dials.Add(1); n > 1 && n <= 1+tc.failures {
							return nil, errors.New("refused by the test")
						}
						return new(net.Dialer).DialContext(ctx, "tcp", addr)
					})))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			ctx := withPatience(t)
			if err := do(ctx, c, "first"); err != nil {
				t.Fatal(err)
			}
			p.Reset()
			eventually(t, "loss noticed", func() bool { return c.State().Connectivity != connectivity.Ready })
			wantCode(t, do(ctx, c, "x"), tc.want)
			if tc.want == codes.OK && s.count("x") != 1 {
				t.Errorf("handled %d times", s.count("x"))
			}
			if got := dials.Load(); got > tc.dials {
				t.Errorf("%d dials, want at most %d: the connection that was lost, grpc's reconnect and ours", got, tc.dials)
			}
		})
	}
}

func TestCallerThatStartedTheConnectMayLeaveAndTheOthersStillGetIt(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	gate := make(chan struct{})
	dialling := make(chan struct{}, 1)
	var dials atomic.Int64
	c, err := channel.New("passthrough:///"+s.addr, channel.WithDialOptions(plaintext(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dials.Add(1)
			dialling <- struct{}{}
			select {
			case <-gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	starter, leave := context.WithCancel(withPatience(t))
	errs := make(chan error, 6)
	go func() { errs <- do(starter, c, "starter") }()
	<-dialling
	for range 5 {
		go func() { errs <- do(withPatience(t), c, "other") }()
	}
	leave()
	wantCode(t, <-errs, codes.Canceled)
	close(gate)
	for range 5 {
		if err := <-errs; err != nil {
			t.Errorf("other caller: %v", err)
		}
	}
	if dials.Load() != 1 || s.count("starter") != 0 {
		t.Errorf("%d dials, starter's call sent %d times, want 1 and 0", dials.Load(), s.count("starter"))
	}
}

func TestFailureOfAnAbandonedAttemptIsNotReplayedToTheNextCaller(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	var healthy atomic.Bool
	failed := make(chan struct{}, 1)
	c, err := channel.New("passthrough:///"+s.addr, quick(), channel.WithDialOptions(plaintext(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			if !healthy.Load() {
				select {
				case failed <- struct{}{}:
				default:
				}
				return nil, errors.New("stale failure")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, leave := context.WithCancel(withPatience(t))
	leave()
	if err := do(ctx, c, "gone"); err == nil {
		t.Fatal("a cancelled call succeeded")
	}
	<-failed
	eventually(t, "attempt over", func() bool { return c.State().LastFailure != nil })
	healthy.Store(true)
	if err := do(withPatience(t), c, "next"); err != nil {
		t.Errorf("next caller: %v", err)
	}
}

func TestTheErrorOfAFailedConnectIsGRPCsOwnAndFresh(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	c, err := channel.New("passthrough:///x", quick(), channel.WithDialOptions(plaintext(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("failure " + string(rune('0'+n.Add(1))))
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i := range 3 {
		err := do(withPatience(t), c, "x")
		want := "failure " + string(rune('1'+i))
		if codeOf(err) != codes.Unavailable || !contains(err, want) {
			t.Errorf("call %d: %v, want %q", i+1, err, want)
		}
	}
}

func TestWaitForAnAttemptEndsWithTheCallersDeadlineAndSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := tcpProxy(t, "127.0.0.1:1")
	c := dial(t, p.Addr(), channel.WithBackoff(channel.Backoff{Base: 15 * time.Second, Jitter: 0.01, Max: 15 * time.Second}))
	wantCode(t, do(withPatience(t), c, "x"), codes.Unavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := do(ctx, c, "x")
	if codeOf(err) != codes.DeadlineExceeded || !contains(err, p.Addr()) ||
		!contains(err, "last failure") || !contains(err, "code = Unavailable") {
		t.Errorf("got %v, want DeadlineExceeded with target and last failure", err)
	}
}

func TestTurnFurtherAwayThanTheConnectTimeoutFailsAtOnce(t *testing.T) {
	t.Parallel()
	p := tcpProxy(t, "127.0.0.1:1")
	c := dial(t, p.Addr(), channel.WithConnectTimeout(time.Second),
		channel.WithBackoff(channel.Backoff{Base: time.Hour, Jitter: 0.01, Max: time.Hour}))
	wantCode(t, do(withPatience(t), c, "x"), codes.Unavailable)
	err := do(withPatience(t), c, "x")
	if codeOf(err) != codes.Unavailable || !contains(err, "next attempt in") || !contains(err, p.Addr()) {
		t.Errorf("got %v, want Unavailable with the target and the time of the next attempt", err)
	}
}

func TestHalfOpenConnectionIsFoundByKeepalive(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	p := tcpProxy(t, s.addr)
	c := dial(t, p.Addr(), quick(), channel.WithKeepalive(keepalive.ClientParameters{
		Time: 10 * time.Second, Timeout: 500 * time.Millisecond, // grpc-go allows no less than 10 s
	}))
	ctx := withPatience(t)
	if err := do(ctx, c, "x"); err != nil {
		t.Fatal(err)
	}
	p.Stall(true)
	// Without a deadline of its own this call is stuck until grpc notices.
	wantCode(t, do(ctx, c, "stuck"), codes.Unavailable)
	p.Stall(false)
	eventually(t, "recovery", func() bool { return do(ctx, c, "y") == nil })
}

func TestHalfOpenConnectionLeavesCallersToTheirDeadlines(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := tcpProxy(t, s.addr)
	c := dial(t, p.Addr(), quick())
	if err := do(withPatience(t), c, "x"); err != nil {
		t.Fatal(err)
	}
	p.Stall(true)
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		wantCode(t, do(ctx, c, "x"), codes.DeadlineExceeded)
		cancel()
	}
	p.Stall(false)
	eventually(t, "recovery", func() bool { return do(withPatience(t), c, "x") == nil })
	if got := c.State().Generation; got != 1 {
		t.Errorf("generation %d, want 1: deadlines say nothing of the connection", got)
	}
}
