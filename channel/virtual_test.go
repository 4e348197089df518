package channel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	hpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/otelproto/otelproto-go/channel"
)

// An hour without the target, in virtual time: the attempts get rarer until
// they are at most 10 s apart, at the pace of the backoff however many
// callers ask.
func TestAttemptsOverAnHourKeepThePaceOfTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var dials []time.Time
		c, err := channel.New("passthrough:///gone", channel.WithDialOptions(plaintext(),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				dials = append(dials, time.Now())
				return nil, errors.New("unreachable")
			})))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if code := codeOf(do(ctx, c, "x")); code != codes.Unavailable && code != codes.DeadlineExceeded {
						t.Errorf("code %v", code)
					}
				}
			})
		}
		wg.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		// 10 s at most, 5 s on average; nine deviations make 10 % of 720.
		if got := len(dials); got < 500 || got > 1000 {
			t.Errorf("%d attempts in an hour, want about 720", got)
		}
		for i := 1; i < len(dials); i++ {
			if gap := dials[i].Sub(dials[i-1]); gap > 10*time.Second {
				t.Errorf("attempt %d after %v, want at most 10 s", i, gap)
			}
		}
	})
}

func TestSixCallersInThreeRoundsOpenAtMostThreeConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const connectTimeout = 3 * time.Second
		dials := 0
		c, err := channel.New("passthrough:///mute", channel.WithConnectTimeout(connectTimeout), channel.WithDialOptions(plaintext(),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				dials++
				client, server := net.Pipe() // accepts, and never speaks
				go func() { _, _ = io.Copy(io.Discard, server) }()
				return client, nil
			})))
		if err != nil {
			t.Fatal(err)
		}
		for round := range 3 {
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					begin := time.Now()
					wantCodeLater(t, do(t.Context(), c, "x"), codes.Unavailable)
					if took := time.Since(begin); took >= 2*connectTimeout {
						t.Errorf("round %d: waited %v, want less than two connect timeouts", round, took)
					}
				})
			}
			wg.Wait()
			if dials != round+1 {
				t.Errorf("%d connections after %d rounds", dials, round+1)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDefaultIdleTimeoutIsHalfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := bufconn.Listen(1 << 16)
		s := grpc.NewServer()
		hpb.RegisterHealthServer(s, health.NewServer())
		go func() { _ = s.Serve(ln) }()
		defer s.Stop()
		c, err := channel.New("passthrough:///pipe", channel.WithDialOptions(plaintext(),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) })))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		client := hpb.NewHealthClient(c)
		check := func(generation uint64) {
			t.Helper()
			if _, err := client.Check(t.Context(), &hpb.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
			if got := c.State().Generation; got != generation {
				t.Errorf("generation %d, want %d", got, generation)
			}
		}
		check(1)
		for range 10 {
			time.Sleep(29 * time.Minute)
			check(1)
		}
		time.Sleep(38 * time.Minute)
		synctest.Wait()
		if got := c.State(); len(got.Connections) != 0 {
			t.Errorf("after 38 minutes: %+v", got)
		}
		check(2)
	})
}
