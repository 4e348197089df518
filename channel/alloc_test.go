//go:build !race

package channel_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/otelproto/otelproto-go/channel"
)

func TestCacheHitAllocatesNothing(t *testing.T) {
	cache := newCache(t)
	cache.Conn("dns:///a:443")
	cache.Conn("dns:///b:443")
	if got := testing.AllocsPerRun(1000, func() {
		cache.Conn("dns:///a:443")
		cache.Conn("dns:///b:443")
	}); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

func TestUnaryCallOnAHandleAllocatesAtMostThreeTimesMore(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	cc, err := grpc.NewClient("passthrough:///"+s.addr, plaintext())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	ctx := withPatience(t)
	in, out := wrapperspb.String("x"), new(wrapperspb.StringValue)
	measure := func(c grpc.ClientConnInterface) float64 {
		return testing.AllocsPerRun(500, func() {
			if err := c.Invoke(ctx, methodDo, in, out); err != nil {
				t.Fatal(err)
			}
		})
	}
	bare, handle := measure(cc), measure(newCache(t).Conn("passthrough:///"+s.addr))
	t.Logf("bare %v, handle %v", bare, handle)
	if handle > bare+3 {
		t.Errorf("%v allocations, bare %v, want at most 3 more", handle, bare)
	}
}

func TestStreamMessageAllocatesNothingMore(t *testing.T) {
	s := serve(t, "127.0.0.1:0")
	cc, err := grpc.NewClient("passthrough:///"+s.addr, plaintext())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	ctx := withPatience(t)
	measure := func(c grpc.ClientConnInterface) float64 {
		cs := chat(ctx, t, c)
		defer finish(t, cs)
		return testing.AllocsPerRun(500, func() {
			if err := exchange(cs, "x"); err != nil {
				t.Fatal(err)
			}
		})
	}
	bare, handle := measure(cc), measure(dial(t, s.addr, channel.WithIdleTimeout(0)))
	// The server's handler runs in the same process; its goroutines may
	// shift an allocation between runs.
	if handle > bare+1 {
		t.Errorf("%v allocations a message, bare %v", handle, bare)
	}
}
