package channel_test

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	encproto "google.golang.org/grpc/encoding/proto"

	"github.com/otelproto/otelproto-go/channel"
)

// together makes handlers wait until n of them run at the same time.
func together(s *server, n int64) {
	all := make(chan struct{})
	var once sync.Once
	s.answer(func(ctx context.Context, _ string) error {
		if s.live.Load() >= n {
			once.Do(func() { close(all) })
		}
		select {
		case <-all:
		case <-ctx.Done():
		}
		return nil
	})
}

func TestUnaryCallsBeyondTheStreamLimitOpenMoreConnections(t *testing.T) {
	t.Parallel()
	for _, limit := range []uint32{1, 3} {
		t.Run(strconv.FormatUint(uint64(limit), 10), func(t *testing.T) {
			t.Parallel()
			const maximum, callers = 8, 50
			s := serve(t, "127.0.0.1:0", grpc.MaxConcurrentStreams(limit))
			together(s, int64(limit)*maximum) // answers nobody until all connections are full
			p := tcpProxy(t, s.addr)
			c := dial(t, p.Addr(), quick(), channel.WithConnections(1, maximum))
			ctx := withPatience(t)
			errs := make(chan error, callers)
			for i := range callers {
				go func() { errs <- do(ctx, c, strconv.Itoa(i)) }()
			}
			for range callers {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			for i := range callers {
				if n := s.count(strconv.Itoa(i)); n != 1 {
					t.Errorf("call %d was handled %d times", i, n)
				}
			}
			state := c.State()
			if p.Accepted() != maximum || len(state.Connections) != maximum {
				t.Errorf("%d connections accepted, %d kept, want %d", p.Accepted(), len(state.Connections), maximum)
			}
			if state.Outstanding != 0 || state.StreamLimit < 1 || state.StreamLimit > int(limit) {
				t.Errorf("%d outstanding, limit %d; want 0 and at most %d", state.Outstanding, state.StreamLimit, limit)
			}
		})
	}
}

func TestExactlyAsManyCallersAsConnectionsNeverWaitForEachOther(t *testing.T) {
	t.Parallel()
	const n = 6
	s := serve(t, "127.0.0.1:0", grpc.MaxConcurrentStreams(1))
	together(s, n)
	c := dial(t, s.addr, quick(), channel.WithConnections(1, n))
	ctx := withPatience(t)
	errs := make(chan error, n)
	for range n {
		go func() { errs <- do(ctx, c, "x") }()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestStreamsBeyondTheStreamLimitOpenMoreConnections(t *testing.T) {
	t.Parallel()
	const n = 6
	s := serve(t, "127.0.0.1:0", grpc.MaxConcurrentStreams(2))
	c := dial(t, s.addr, quick(), channel.WithConnections(1, n/2))
	ctx := withPatience(t)
	var streams [n]grpc.ClientStream
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			cs, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, methodChat)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			if err := exchange(cs, "x"); err != nil {
				t.Errorf("exchange: %v", err)
			}
			streams[i] = cs
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if got := c.State(); got.Outstanding != n || len(got.Connections) != n/2 {
		t.Errorf("%d RPCs on %d connections, want %d on %d", got.Outstanding, len(got.Connections), n, n/2)
	}
	for _, cs := range streams {
		finish(t, cs)
	}
}

func TestNoMoreConnectionsThanNeededAreOpened(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := tcpProxy(t, s.addr)
	c := dial(t, p.Addr(), quick(), channel.WithConnections(1, 8))
	together(s, 50)
	ctx := withPatience(t)
	errs := make(chan error, 50)
	for range cap(errs) {
		go func() { errs <- do(ctx, c, "x") }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	// A machine that stalls an RPC for as long as the limit takes to show may
	// cost connections. They are bounded, and no RPC is hurt.
	t.Logf("%d connections without a limit of the server", p.Accepted())
	if got := p.Accepted(); got > 8 {
		t.Errorf("%d connections, want at most 8", got)
	}
}

func TestMinimumOfConnectionsIsOpened(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := tcpProxy(t, s.addr)
	c := dial(t, p.Addr(), quick(), channel.WithConnections(3, 3))
	if err := do(withPatience(t), c, "x"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "three connections", func() bool { return len(c.State().Connections) == 3 })
	together(s, 9)
	errs := make(chan error, 9)
	for range cap(errs) {
		go func() { errs <- do(withPatience(t), c, "y") }()
	}
	eventually(t, "nine calls", func() bool { return s.count("y") == 9 })
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := p.Accepted(); got != 3 {
		t.Errorf("%d connections, want 3", got)
	}
}

func TestGrowthThatFailsLeavesCallersWhereABareClientConnWould(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", grpc.MaxConcurrentStreams(1))
	p := tcpProxy(t, s.addr)
	c := dial(t, p.Addr(), quick(), channel.WithConnections(1, 4))
	ctx := withPatience(t)
	if err := do(ctx, c, "first"); err != nil {
		t.Fatal(err)
	}
	p.SetBackend("127.0.0.1:1") // for connections to come
	errs := make(chan error, 20)
	for range cap(errs) {
		go func() { errs <- do(ctx, c, "x") }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := s.count("x"); got != 20 {
		t.Errorf("handled %d, want 20", got)
	}
}

func TestCodecOptionsOfTheCallerSurviveTheProbe(t *testing.T) {
	s := serve(t, "127.0.0.1:0", grpc.MaxConcurrentStreams(1))
	together(s, 2)
	for name, opt := range map[string]grpc.CallOption{
		"none":    grpc.EmptyCallOption{},
		"subtype": grpc.CallContentSubtype("proto"),
		"forced":  grpc.ForceCodecV2(encoding.GetCodecV2(encproto.Name)),
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s.addr, quick(), channel.WithConnections(1, 2))
			ctx := withPatience(t)
			errs := make(chan error, 4)
			for range cap(errs) {
				go func() { errs <- do(ctx, c, name, opt) }()
			}
			for range cap(errs) {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
