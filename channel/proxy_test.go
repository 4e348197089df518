package channel_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/channel"
)

func TestHTTPStatusOfAProxyReplacesTheConnectionAfterTheThreshold(t *testing.T) {
	t.Parallel()
	for _, code := range []int{
		http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			s := serve(t, "127.0.0.1:0")
			p := httpProxy(t, s.addr)
			p.Sicken(code)
			c := dial(t, p.Addr(), quick(), channel.WithUnavailableThreshold(3))
			ctx := withPatience(t)
			for range 2 {
				wantCode(t, do(ctx, c, "x"), codes.Unavailable)
			}
			if got := c.State(); got.Generation != 1 || p.Accepted() != 1 {
				t.Fatalf("below the threshold: generation %d, %d connections", got.Generation, p.Accepted())
			}
			p.Sicken(0) // for new connections only
			wantCode(t, do(ctx, c, "x"), codes.Unavailable)
			eventually(t, "replacement", func() bool { return c.State().Generation == 2 })
			for range 10 {
				if err := do(ctx, c, "y"); err != nil {
					t.Fatalf("on the new connection: %v", err)
				}
			}
			if got := p.Accepted(); got != 2 {
				t.Errorf("%d connections, want 2", got)
			}
			eventually(t, "old connection closed", func() bool { return len(c.State().Connections) == 1 })
		})
	}
}

func TestSickProxyIsTriedAtThePaceOfTheBackoffOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := httpProxy(t, s.addr)
	p.Sicken(http.StatusServiceUnavailable)
	c := dial(t, p.Addr(), channel.WithUnavailableThreshold(1),
		channel.WithBackoff(channel.Backoff{Base: time.Hour, Jitter: 0.01, Max: time.Hour}))
	ctx := withPatience(t)
	for range 200 {
		wantCode(t, do(ctx, c, "x"), codes.Unavailable)
	}
	// The first connection counted as an attempt, and no RPC succeeded on it.
	if got := p.Accepted(); got != 1 {
		t.Errorf("%d connections, want 1: the next attempt is an hour away", got)
	}
	if next := time.Until(c.State().NextAttempt); next < 30*time.Minute {
		t.Errorf("next attempt in %v, want about an hour", next)
	}
}

func TestSuccessBetweenSuspectFailuresStartsTheCountAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	ctx := withPatience(t)
	suspect := func(f channel.Failure) channel.Class {
		if status.Code(f.Err) == codes.Unavailable {
			return channel.Suspect
		}
		return channel.Classify(f)
	}
	s.answer(func(_ context.Context, text string) error {
		if text == "bad" {
			return status.Error(codes.Unavailable, "no")
		}
		return nil
	})
	c := dial(t, s.addr, quick(), channel.WithUnavailableThreshold(2), channel.WithClassifier(suspect))
	for range 20 {
		wantCode(t, do(ctx, c, "bad"), codes.Unavailable)
		if err := do(ctx, c, "good"); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.State(); got.Generation != 1 || got.Connections[0].Suspects != 0 {
		t.Errorf("generation %d with %d suspects, want 1 with none", got.Generation, got.Connections[0].Suspects)
	}
}

func TestUnavailableFromTheApplicationNeverReplacesTheConnection(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"try later",
		// What a backend passes on that is itself a client behind a proxy.
		text503,
	} {
		for _, header := range []bool{false, true} {
			t.Run(fmt.Sprintf("%.10s/header=%v", text, header), func(t *testing.T) {
				t.Parallel()
				s := serve(t, "127.0.0.1:0")
				s.answer(func(ctx context.Context, _ string) error {
					if header {
						if err := sendHeader(ctx); err != nil {
							return err
						}
					}
					return status.Error(codes.Unavailable, text)
				})
				p := tcpProxy(t, s.addr)
				c := dial(t, p.Addr(), quick())
				ctx := withPatience(t)
				// Several at once, so that many fail before one has the
				// header to prove that it was the application.
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for range 40 {
							wantCodeLater(t, do(ctx, c, "x"), codes.Unavailable)
						}
					})
				}
				wg.Wait()
				if got := c.State(); got.Generation != 1 || p.Accepted() != 1 || len(got.Connections) != 1 {
					t.Errorf("generation %d, %d connections accepted, want 1 and 1", got.Generation, p.Accepted())
				}
			})
		}
	}
}

func TestAnyUnavailableReplacesMakeBeforeBreakAndRecoversOnAHealthyBackend(t *testing.T) {
	t.Parallel()
	sick, well := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
	sick.answer(func(_ context.Context, text string) error {
		if text == "hello" {
			return nil
		}
		return status.Error(codes.Unavailable, "no healthy upstream")
	})
	p := tcpProxy(t, sick.addr)
	c := dial(t, p.Addr(), quick(), channel.WithUnavailableThreshold(2), channel.WithClassifier(channel.AnyUnavailable))
	ctx := withPatience(t)
	stream := chat(ctx, t, c)
	wantCode(t, do(ctx, c, "x"), codes.Unavailable)
	if got := p.Accepted(); got != 1 {
		t.Fatalf("%d connections below the threshold", got)
	}
	p.SetBackend(well.addr)
	eventually(t, "recovery", func() bool { return do(ctx, c, "x") == nil })
	if err := exchange(stream, "hello"); err != nil {
		t.Errorf("the stream on the old connection was hurt: %v", err)
	}
	if got := c.State(); got.Outstanding != 1 || len(got.Connections) != 2 || !got.Connections[0].Draining {
		t.Errorf("want one draining connection with one RPC: %+v", got)
	}
	finish(t, stream)
	eventually(t, "old connection closed", func() bool { return len(c.State().Connections) == 1 })
}

func TestLateFailureOfAnOldGenerationDoesNotEvictTheNewOne(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	release := make(chan struct{})
	s.answer(func(_ context.Context, text string) error {
		switch text {
		case "late":
			<-release
			return status.Error(codes.Unavailable, "no")
		case "bad":
			return status.Error(codes.Unavailable, "no")
		default:
			return nil
		}
	})
	p := tcpProxy(t, s.addr)
	c := dial(t, p.Addr(), quick(), channel.WithUnavailableThreshold(1), channel.WithClassifier(channel.AnyUnavailable))
	ctx := withPatience(t)
	const n = 20
	errs := make(chan error, n)
	for range n {
		go func() { errs <- do(ctx, c, "late") }()
	}
	eventually(t, "late calls under way", func() bool { return s.count("late") == n })
	wantCode(t, do(ctx, c, "bad"), codes.Unavailable)
	eventually(t, "replacement", func() bool { return c.State().Generation == 2 })
	close(release)
	for range n {
		wantCode(t, <-errs, codes.Unavailable)
	}
	if err := do(ctx, c, "good"); err != nil {
		t.Fatal(err)
	}
	never(t, "third connection", func() bool { return c.State().Generation != 2 || p.Accepted() != 2 })
	eventually(t, "old connection closed", func() bool { return len(c.State().Connections) == 1 })
}
