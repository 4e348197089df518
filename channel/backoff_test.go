package channel

import (
	"math"
	"testing"
	"time"
)

func TestBackoffDelays(t *testing.T) {
	b := Backoff{Base: time.Second, Factor: 2, Jitter: 1, Max: 10 * time.Second}
	for _, tc := range []struct {
		n      int
		random float64
		want   time.Duration
	}{
		{0, 0, 0},
		{1, 0, time.Second},
		{1, 0.5, 500 * time.Millisecond},
		{2, 0, 2 * time.Second},
		{4, 0, 8 * time.Second},
		{5, 0, 10 * time.Second},
		{5, 0.75, 2500 * time.Millisecond},
		{1 << 30, 0, 10 * time.Second},
	} {
		if got := b.delay(tc.n, tc.random); got != tc.want {
			t.Errorf("delay(%d, %v) = %v, want %v", tc.n, tc.random, got, tc.want)
		}
	}
	b.Jitter = 0.2
	if got := b.delay(1, 0.999999); got < 800*time.Millisecond || got > time.Second {
		t.Errorf("with a jitter of 0.2 the delay is %v, want 0.8 s to 1 s", got)
	}
}

func TestBackoffDefaults(t *testing.T) {
	for _, tc := range []struct{ in, want Backoff }{
		{Backoff{}, connectBackoff()},
		{Backoff{Max: 100 * time.Millisecond}, Backoff{100 * time.Millisecond, 1.6, 1, 100 * time.Millisecond}},
		{Backoff{Base: time.Minute}, Backoff{time.Minute, 1.6, 1, time.Minute}},
		{Backoff{Jitter: 0.5, Factor: 3}, Backoff{time.Second, 3, 0.5, 10 * time.Second}},
	} {
		if got, err := tc.in.withDefaults(connectBackoff()); err != nil || got != tc.want {
			t.Errorf("%+v: %+v, %v; want %+v", tc.in, got, err, tc.want)
		}
	}
	for _, bad := range []Backoff{
		{Base: -1}, {Factor: 0.5}, {Factor: math.NaN()}, {Jitter: -1}, {Jitter: 1.1}, {Jitter: math.NaN()},
		{Base: time.Second, Max: time.Millisecond}, {Max: -1},
	} {
		if got, err := bad.withDefaults(connectBackoff()); err == nil {
			t.Errorf("%+v was accepted as %+v", bad, got)
		}
	}
}

func TestBudgetIsSpentAndEarned(t *testing.T) {
	r, err := newRetryConfig(RetryPolicy{Burst: 2, Budget: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	var b budget
	b.tokens.Store(r.full)
	b.earn(&r) // full stays full
	for range 2 {
		if !b.spend() {
			t.Fatal("want two tokens")
		}
	}
	if b.spend() {
		t.Fatal("a third token was spent")
	}
	b.earn(&r)
	if b.spend() {
		t.Fatal("half a token was spent")
	}
	b.earn(&r)
	if !b.spend() {
		t.Fatal("two halves make no token")
	}
}

func TestServerAddressIsTheHostOfTheTarget(t *testing.T) {
	for target, want := range map[string]string{
		"dns:///greeter:443":                    "greeter",
		"dns://8.8.8.8/greeter.example.com:443": "greeter.example.com",
		"dns:///greeter":                        "greeter",
		"greeter:443":                           "greeter",
		"dns:greeter:443":                       "greeter",
		"passthrough:///127.0.0.1:80":           "127.0.0.1",
		"passthrough:///[::1]:80":               "::1",
		"unix:/run/app.sock":                    "/run/app.sock",
		"unix:///run/app.sock":                  "/run/app.sock",
		"unix-abstract:app":                     "app",
		"xds:///service":                        "service",
		"xds://authority/service":               "service",
		"custom:///a/b":                         "a/b",
		"localhost":                             "localhost",
	} {
		if got := serverAddress(target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}
