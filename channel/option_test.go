package channel_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/otelproto/otelproto-go/channel"
)

func TestBadOptionsFailTheConstructorsAndSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := channel.WithDialOptions(plaintext())
	for _, tc := range []struct {
		want string
		opts []channel.Option
	}{
		{"option 1 is nil", []channel.Option{nil}},
		{"WithDialOptions: option 2 is nil", []channel.Option{channel.WithDialOptions(plaintext(), nil)}},
		{"transport security", nil},
		{"dial options", []channel.Option{good, channel.WithDialOptions(grpc.WithDefaultServiceConfig("{"))}},
		{"WithBackoff: base", []channel.Option{good, channel.WithBackoff(channel.Backoff{Base: -1})}},
		{"WithBackoff: factor", []channel.Option{good, channel.WithBackoff(channel.Backoff{Factor: 0.1})}},
		{"WithBackoff: jitter", []channel.Option{good, channel.WithBackoff(channel.Backoff{Jitter: 2})}},
		{"WithBackoff: max", []channel.Option{good, channel.WithBackoff(channel.Backoff{Base: time.Hour, Max: time.Second})}},
		{"WithUnavailableThreshold: 0", []channel.Option{good, channel.WithUnavailableThreshold(0)}},
		{"WithUnavailableThreshold: -1", []channel.Option{good, channel.WithUnavailableThreshold(-1)}},
		{"WithClassifier", []channel.Option{good, channel.WithClassifier(nil)}},
		{"WithRetry: max attempts", []channel.Option{good, channel.WithRetry(channel.RetryPolicy{MaxAttempts: -1})}},
		{"WithRetry: budget", []channel.Option{good, channel.WithRetry(channel.RetryPolicy{Budget: math.NaN()})}},
		{"WithRetry: burst", []channel.Option{good, channel.WithRetry(channel.RetryPolicy{Burst: -1})}},
		{"WithRetry: backoff: base", []channel.Option{good, channel.WithRetry(channel.RetryPolicy{Backoff: channel.Backoff{Base: -1}})}},
		{`WithRetry: idempotent: "Method"`, []channel.Option{good, channel.WithRetry(channel.RetryPolicy{Idempotent: []string{"Method"}})}},
		{"WithDrainTimeout: -1", []channel.Option{good, channel.WithDrainTimeout(-1)}},
		{"WithIdleTimeout: -1", []channel.Option{good, channel.WithIdleTimeout(-1)}},
		{"WithConnectTimeout: 0", []channel.Option{good, channel.WithConnectTimeout(0)}},
		{"WithMaxAge: -1", []channel.Option{good, channel.WithMaxAge(-1)}},
		{"WithMaxTargets: -1", []channel.Option{good, channel.WithMaxTargets(-1)}},
		{"WithConnections: minimum is 0", []channel.Option{good, channel.WithConnections(0, 1)}},
		{"WithConnections: maximum is 1", []channel.Option{good, channel.WithConnections(2, 1)}},
		{"WithKeepalive", []channel.Option{good, channel.WithKeepalive(keepalive.ClientParameters{Time: -1})}},
		{"WithMeterProvider", []channel.Option{good, channel.WithMeterProvider(nil)}},
		{"WithLogger", []channel.Option{good, channel.WithLogger(nil)}},
	} {
		_, errNew := channel.New("passthrough:///x", tc.opts...)
		_, errCache := channel.NewCache(tc.opts...)
		for _, err := range []error{errNew, errCache} {
			if err == nil || !strings.HasPrefix(err.Error(), "channel: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		}
	}
}

func TestBadTargetsFailNewAndTheFirstUseOfAHandle(t *testing.T) {
	t.Parallel()
	cache := newCache(t)
	for _, target := range []string{"", "dns:///", "dns:///%zz\x7f", "unix://host/path\x7f"} {
		if c, err := channel.New(target, channel.WithDialOptions(plaintext())); err == nil {
			_ = c.Close()
			t.Errorf("New accepted %q", target)
		}
		h := cache.Conn(target)
		if err := do(t.Context(), h, "x"); !contains(err, "target") {
			t.Errorf("%q: %v, want an error that names the target", target, err)
		}
		if _, err := h.NewStream(t.Context(), &grpc.StreamDesc{}, methodChat); !contains(err, "target") {
			t.Errorf("%q: %v, want an error that names the target", target, err)
		}
		if got := h.State(); got.LastFailure == nil || !got.Closed {
			t.Errorf("state of %q: %+v", target, got)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := cache.Snapshot(); len(got) != 0 {
		t.Errorf("left behind: %+v", got)
	}
}
