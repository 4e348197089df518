package channel_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/otelproto/otelproto-go/channel"
)

// replace makes the channel replace its connection: one RPC that the
// classifier of suspectWhenAsked takes for suspect.
func replace(t *testing.T, c *channel.Conn) {
	t.Helper()
	before := c.State().Generation
	eventually(t, "replacement", func() bool {
		_ = do(withPatience(t), c, "suspect")
		return c.State().Generation > before
	})
}

func suspectWhenAsked(s *server) channel.Option {
	s.answer(func(ctx context.Context, text string) error {
		if text == "suspect" {
			return statusUnavailable()
		}
		if text == "slow" {
			select {
			case <-s.release:
			case <-ctx.Done():
			}
		}
		return nil
	})
	return channel.WithClassifier(channel.AnyUnavailable)
}

func TestOldConnectionServesItsStreamsAndCallsToTheirEnd(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	c := dial(t, s.addr, quick(), channel.WithUnavailableThreshold(1), suspectWhenAsked(s))
	ctx := withPatience(t)
	streams := make([]grpc.ClientStream, 20)
	for i := range streams {
		streams[i] = chat(ctx, t, c)
	}
	errs := make(chan error, 20)
	for range cap(errs) {
		go func() { errs <- do(ctx, c, "slow") }()
	}
	eventually(t, "slow calls", func() bool { return s.count("slow") == 20 })
	replace(t, c)
	for range 5 {
		for _, cs := range streams {
			if err := exchange(cs, "more"); err != nil {
				t.Fatalf("stream on the old connection: %v", err)
			}
		}
	}
	state := c.State()
	if state.Outstanding != 40 || !state.Connections[0].Draining || state.Connections[0].Outstanding != 40 {
		t.Errorf("want 40 RPCs on a draining connection: %+v", state)
	}
	close(s.release)
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Errorf("slow call: %v", err)
		}
	}
	for _, cs := range streams {
		finish(t, cs)
	}
	eventually(t, "old connection closed", func() bool {
		state := c.State()
		return len(state.Connections) == 1 && state.Outstanding == 0
	})
}

func TestStreamCountsUntilItReallyEnds(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	c := dial(t, s.addr)
	ctx := withPatience(t)
	counted := func(what string, want int) {
		t.Helper()
		eventually(t, what, func() bool { return c.State().Outstanding == want })
	}
	bidi := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

	t.Run("final RecvMsg", func(t *testing.T) {
		cs := chat(ctx, t, c)
		counted("open", 1)
		if err := cs.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if got := c.State().Outstanding; got != 1 {
			t.Errorf("%d outstanding after CloseSend, want 1: the answer is still to come", got)
		}
		if err := cs.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if got := c.State().Outstanding; got != 0 {
			t.Errorf("%d outstanding after the final RecvMsg", got)
		}
	})
	t.Run("context that ends with nobody receiving", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		chat(ctx, t, c)
		counted("open", 1)
		cancel()
		counted("cancelled", 0)
	})
	t.Run("deadline that passes with nobody receiving", func(t *testing.T) {
		// Long enough for the stream to be opened, on a machine of any pace.
		for d := 200 * time.Millisecond; ; d *= 2 {
			ctx, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			if _, err := c.NewStream(ctx, bidi, methodChat); err == nil {
				break
			} else if d > patience {
				t.Fatal(err)
			}
		}
		counted("out of time", 0)
	})
	t.Run("single response", func(t *testing.T) {
		cs, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, methodSum)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := cs.SendMsg(wrapperspb.String("1")); err != nil {
				t.Fatal(err)
			}
		}
		counted("open", 1)
		if err := cs.CloseSend(); err != nil {
			t.Fatal(err)
		}
		out := new(wrapperspb.StringValue)
		if err := cs.RecvMsg(out); err != nil || out.GetValue() != "3" {
			t.Fatalf("%q, %v", out.GetValue(), err)
		}
		if got := c.State().Outstanding; got != 0 {
			t.Errorf("%d outstanding after the only response", got)
		}
	})
	t.Run("failed start", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := c.NewStream(ctx, bidi, methodChat); err == nil {
			t.Fatal("opened with a cancelled context")
		}
		counted("failed", 0)
	})
	t.Run("error of SendMsg", func(t *testing.T) {
		cs := chat(ctx, t, c)
		if err := cs.SendMsg("no proto message"); codeOf(err) != codes.Internal {
			t.Fatalf("got %v", err)
		}
		counted("failed", 0)
	})
}

func TestDrainTimeoutEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	c := dial(t, s.addr, quick(), channel.WithUnavailableThreshold(1), suspectWhenAsked(s),
		channel.WithDrainTimeout(50*time.Millisecond))
	ctx := withPatience(t)
	stream := chat(ctx, t, c)
	replace(t, c)
	eventually(t, "old connection closed", func() bool { return len(c.State().Connections) == 1 })
	err := stream.RecvMsg(new(wrapperspb.StringValue))
	if code := codeOf(err); code != codes.Canceled && code != codes.Unavailable {
		t.Errorf("got %v, want Canceled or Unavailable", err)
	}
	if errors.Is(err, channel.ErrClosed) {
		t.Errorf("%v: but the channel is open", err)
	}
	if err := do(ctx, c, "x"); err != nil {
		t.Errorf("on the new connection: %v", err)
	}
}

// Acquire against the last release, thousands of times: connections are
// replaced all the while, and no RPC may meet one that is closed.
func TestReplacementUnderLoadFailsNoRPC(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	c := dial(t, s.addr, channel.WithMaxAge(time.Nanosecond),
		channel.WithRetry(channel.RetryPolicy{MaxAttempts: 1}), // which would hide an RPC on a closed connection
		channel.WithBackoff(channel.Backoff{Base: time.Millisecond, Max: 2 * time.Millisecond}))
	ctx := withPatience(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if err := do(ctx, c, "x"); err != nil {
					t.Errorf("call: %v", err)
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for range 50 {
				cs, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, methodChat)
				if err != nil {
					t.Errorf("open: %v", err)
					continue
				}
				if err := exchange(cs, "x"); err != nil {
					t.Errorf("exchange: %v", err)
				}
				finish(t, cs)
			}
		})
	}
	wg.Wait()
	if got := c.State().Generation; got < 5 {
		t.Errorf("only %d generations: the test tested nothing", got)
	}
	eventually(t, "all old connections closed", func() bool { return len(c.State().Connections) <= 2 })
}
