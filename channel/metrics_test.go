package channel_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"google.golang.org/grpc/codes"

	"github.com/otelproto/otelproto-go/channel"
)

func collect(t *testing.T, r *metric.ManualReader) map[string]metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]metricdata.Metrics)
	for _, sm := range rm.ScopeMetrics {
		if sm.Scope.Name != channel.ScopeName {
			t.Errorf("scope %q", sm.Scope.Name)
		}
		for _, m := range sm.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

func sum(points ...metricdata.DataPoint[int64]) metricdata.Sum[int64] {
	return metricdata.Sum[int64]{Temporality: metricdata.CumulativeTemporality, DataPoints: points}
}

func point(v int64, kv ...attribute.KeyValue) metricdata.DataPoint[int64] {
	return metricdata.DataPoint[int64]{
		Attributes: attribute.NewSet(append(kv, attribute.String("server.address", "127.0.0.1"))...), Value: v,
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	p := httpProxy(t, s.addr)
	reader := metric.NewManualReader()
	cache := newCache(t, quick(), channel.WithUnavailableThreshold(1),
		channel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))),
		channel.WithRetry(channel.RetryPolicy{Idempotent: []string{methodDo}, MaxAttempts: 2}))
	ctx := withPatience(t)
	sick, other := cache.Conn("passthrough:///"+p.Addr()), cache.Conn("passthrough:///"+s.addr)
	stream := chat(ctx, t, sick)
	// The stream's connection falls sick by being replaced with a sick one.
	// Then the RPC is tried twice, and the second connection is replaced.
	p.Sicken(http.StatusServiceUnavailable)
	cacheTarget := "passthrough:///" + p.Addr()
	cache.Forget(cacheTarget)
	wantCode(t, do(ctx, sick, "x"), codes.Unavailable)
	p.Sicken(0)
	eventually(t, "replacement", func() bool { return do(ctx, sick, "x") == nil })
	if err := do(ctx, other, "x"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one connection that drains", func() bool {
		n := 0
		for _, s := range cache.Snapshot() {
			n += len(s.Connections)
		}
		return n == 3
	})
	got := collect(t, reader)
	reason := func(v string) attribute.KeyValue { return attribute.String("otelproto.channel.reason", v) }
	state := func(v string) attribute.KeyValue { return attribute.String("otelproto.channel.state", v) }
	metricdatatest.AssertEqual(t, metricdata.Metrics{
		Name: "otelproto.channel.generations", Unit: "{connection}", Description: "Connections, by whether they take RPCs or drain.",
		Data: sum(point(2, state("active")), point(1, state("draining"))), // two targets of one address are one series
	}, got["otelproto.channel.generations"], metricdatatest.IgnoreTimestamp())
	metricdatatest.AssertEqual(t, metricdata.Metrics{
		Name: "otelproto.channel.outstanding", Unit: "{rpc}", Description: "RPCs under way on connections.",
		Data: sum(point(1)),
	}, got["otelproto.channel.outstanding"], metricdatatest.IgnoreTimestamp())
	for name, wants := range map[string][]attribute.KeyValue{
		"otelproto.channel.invalidations": {reason("forgotten"), reason("proxy_unavailable")},
		"otelproto.channel.retries":       {reason("idempotent"), attribute.String("rpc.method", "channeltest.Service/Do")},
	} {
		data, ok := got[name].Data.(metricdata.Sum[int64])
		if !ok || !data.IsMonotonic {
			t.Errorf("%s is %T", name, got[name].Data)
			continue
		}
		for _, want := range wants {
			found := false
			for _, dp := range data.DataPoints {
				v, ok := dp.Attributes.Value(want.Key)
				found = found || ok && v == want.Value && dp.Value > 0
			}
			if !found {
				t.Errorf("%s has no point with %v: %v", name, want, data.DataPoints)
			}
		}
	}
	duration, ok := got["otelproto.channel.connect.duration"].Data.(metricdata.Histogram[float64])
	if !ok || got["otelproto.channel.connect.duration"].Unit != "s" || duration.DataPoints[0].Count < 4 {
		t.Errorf("connect.duration: %+v", got["otelproto.channel.connect.duration"])
	}
	finish(t, stream)
	if err := cache.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"otelproto.channel.generations", "otelproto.channel.outstanding"} {
		if m, ok := collect(t, reader)[name]; ok {
			metricdatatest.AssertEqual(t, m, metricdata.Metrics{Name: m.Name, Unit: m.Unit, Description: m.Description, Data: sum()})
		}
	}
}

func TestFailedConnectHasAnErrorType(t *testing.T) {
	t.Parallel()
	p := tcpProxy(t, "127.0.0.1:1")
	reader := metric.NewManualReader()
	c := dial(t, p.Addr(), quick(), channel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	wantCode(t, do(withPatience(t), c, "x"), codes.Unavailable)
	data, ok := collect(t, reader)["otelproto.channel.connect.duration"].Data.(metricdata.Histogram[float64])
	if !ok || len(data.DataPoints) != 1 {
		t.Fatalf("got %+v", data)
	}
	if v, _ := data.DataPoints[0].Attributes.Value("error.type"); v.AsString() != "unavailable" {
		t.Errorf("attributes %v", data.DataPoints[0].Attributes)
	}
}

// syncBuffer collects log lines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// stateHandler asks for the state while it handles a record, which must not
// deadlock.
type stateHandler struct {
	slog.Handler

	conn func() *channel.Conn
}

func (h stateHandler) Handle(ctx context.Context, r slog.Record) error {
	if c := h.conn(); c != nil {
		c.State()
	}
	return h.Handler.Handle(ctx, r)
}

func TestStateChangesAreLogged(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	var out syncBuffer
	var mu sync.Mutex
	var c *channel.Conn
	logger := slog.New(stateHandler{slog.NewTextHandler(&out, nil), func() *channel.Conn {
		mu.Lock()
		defer mu.Unlock()
		return c
	}})
	mu.Lock()
	c = dial(t, s.addr, quick(), channel.WithLogger(logger), channel.WithUnavailableThreshold(1), suspectWhenAsked(s))
	mu.Unlock()
	if err := do(withPatience(t), c, "x"); err != nil {
		t.Fatal(err)
	}
	replace(t, c)
	for _, want := range []string{
		"channel: connected", "target=passthrough:///" + s.addr, "channel: connection let go", "reason=proxy_unavailable",
	} {
		eventually(t, want, func() bool { return strings.Contains(out.String(), want) })
	}
}
