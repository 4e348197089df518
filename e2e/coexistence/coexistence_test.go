package coexistence_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/binarylog"
	binarylogpb "google.golang.org/grpc/binarylog/grpc_binarylog_v1"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats/opentelemetry"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// filter is the variable by which grpc's binary log is turned on, which it reads before anything of ours runs.
const filter = "GRPC_BINARY_LOG_FILTER"

// TestMain starts the tests once more, with the binary log on.
func TestMain(m *testing.M) {
	if os.Getenv(filter) != "" {
		os.Exit(m.Run())
	}

	again := exec.Command(os.Args[0], os.Args[1:]...)
	again.Env = append(os.Environ(), filter+"=otelproto.test.Test/*")
	again.Stdout, again.Stderr = os.Stdout, os.Stderr

	var exit *exec.ExitError
	if err := again.Run(); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	} else if err != nil {
		panic(err)
	}

	os.Exit(0)
}

// bytesOf is what is compared: messages and uncompressed bytes by method, direction and retry.
type bytesOf map[way]counts

type way struct {
	Method   string
	Transmit bool
}

type counts struct{ Messages, Wire, Size uint64 }

func (b bytesOf) add(w way, c counts) {
	sum := b[w]
	b[w] = counts{sum.Messages + c.Messages, sum.Wire + c.Wire, sum.Size + c.Size}
}

// recorded gives what a registry has.
func recorded(r *stats.Registry) bytesOf {
	all := make(bytesOf)
	for _, row := range r.Snapshot().Total {
		all.add(way{row.Key.Method, row.Key.Direction == stats.Transmit}, counts{row.Messages, row.Wire.Sum, row.Size.Sum})
	}

	return all
}

// log is a binary log that counts. It has no wire sizes.
type log struct {
	mu             sync.Mutex
	methods        map[uint64]string
	client, server bytesOf
}

func newLog() *log {
	return &log{methods: make(map[uint64]string), client: make(bytesOf), server: make(bytesOf)}
}

func (l *log) Close() error { return nil }

func (l *log) Write(e *binarylogpb.GrpcLogEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	if h := e.GetClientHeader(); h != nil {
		l.methods[e.GetCallId()] = strings.TrimPrefix(h.GetMethodName(), "/")
	}

	if e.GetMessage() == nil {
		return nil
	}

	fromClient := e.GetType() == binarylogpb.GrpcLogEntry_EVENT_TYPE_CLIENT_MESSAGE
	c := counts{Messages: 1, Size: uint64(e.GetMessage().GetLength())}

	if e.GetLogger() == binarylogpb.GrpcLogEntry_LOGGER_CLIENT {
		l.client.add(way{l.methods[e.GetCallId()], fromClient}, c)
	} else {
		l.server.add(way{l.methods[e.GetCallId()], !fromClient}, c)
	}

	return nil
}

// first leaves out repeated attempts: a client's binary log has a message once, however often it was sent.
func first(r *stats.Registry) bytesOf {
	all := make(bytesOf)

	for _, row := range r.Snapshot().Total {
		w := way{row.Key.Method, row.Key.Direction == stats.Transmit}
		if c := (counts{row.Messages, row.Wire.Sum, row.Size.Sum}); !row.Key.Retry || row.Key.Direction == stats.Receive {
			all.add(w, c)
		}
	}

	return all
}

// withoutWire leaves out what a binary log doesn't know.
func withoutWire(b bytesOf) bytesOf {
	all := make(bytesOf)
	for w, c := range b {
		all.add(w, counts{Messages: c.Messages, Size: c.Size})
	}

	return all
}

// flaky fails the first unary call.
type flaky struct {
	grpctest.Echo

	calls atomic.Int32
}

func (f *flaky) Unary(ctx context.Context, c *testproto.Command) (*testproto.Reply, error) {
	if f.calls.Add(1) == 1 {
		return nil, status.Error(codes.Unavailable, "not yet")
	}

	return f.Echo.Unary(ctx, c)
}

const retryConfig = `{"methodConfig": [{"name": [{"service": "otelproto.test.Test"}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// everything is all that observes, with the reader of all instruments and the spans.
type everything struct {
	client, server *stats.Registry
	reader         *sdkmetric.ManualReader
	spans          *tracetest.InMemoryExporter
	dial           []grpc.DialOption
	serve          []grpc.ServerOption
}

// newEverything puts ours at a place among the others: 0 is before them, 2 behind.
func newEverything(place int) *everything {
	e := &everything{
		client: stats.NewRegistry(), server: stats.NewRegistry(),
		reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter(),
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(e.reader))
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(e.spans))
	grpcs := opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{
		MeterProvider: meters, Metrics: opentelemetry.DefaultMetrics(),
	}}
	dial := [][]grpc.DialOption{
		{grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(traces), otelgrpc.WithMeterProvider(meters)))},
		{opentelemetry.DialOption(grpcs)},
	}
	serve := [][]grpc.ServerOption{
		{grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(traces), otelgrpc.WithMeterProvider(meters)))},
		{opentelemetry.ServerOption(grpcs)},
	}

	e.dial = slices.Concat(slices.Insert(dial, place, append(
		otelproto.DialOptions(otelproto.WithRegistry(e.client)), otelproto.DialOptions(otelproto.WithMeterProvider(meters))...))...)
	e.serve = slices.Concat(slices.Insert(serve, place, []grpc.ServerOption{
		grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(e.server))),
		grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithMeterProvider(meters))),
	})...)
	e.dial = append(e.dial, grpc.WithDefaultServiceConfig(retryConfig))

	return e
}

func workload(t *testing.T, client testproto.TestClient) {
	t.Helper()

	ctx := t.Context()
	put := func(n int) *testproto.Command {
		return &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: make([]byte, n)}}}
	}

	for _, n := range []int{0, 10, 1000, 100_000} {
		for _, opts := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
			if _, err := client.Unary(ctx, put(n), opts...); err != nil {
				t.Fatal(err)
			}

			both, err := client.Bidi(ctx, opts...)
			if err != nil {
				t.Fatal(err)
			}

			for range 5 {
				if err := both.Send(put(n)); err != nil {
					t.Fatal(err)
				}

				if _, err := both.Recv(); err != nil {
					t.Fatal(err)
				}
			}

			if err := both.CloseSend(); err != nil {
				t.Fatal(err)
			}

			if _, err := both.Recv(); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
	}
}

func TestInEveryOrderAllCountTheSame(t *testing.T) {
	for place, name := range []string{"before the others", "between them", "after them"} {
		t.Run(name, func(t *testing.T) {
			l := newLog()
			binarylog.SetSink(l)
			t.Cleanup(func() { binarylog.SetSink(newLog()) })

			e := newEverything(place)
			channelz := startChannelz(t)
			p := grpctest.New(t, grpctest.Options{Server: e.serve, Dial: e.dial, Service: &flaky{}})
			workload(t, p.Client)

			inGRPC := messagesInChannelz(t, channelz, p.Addr)
			p.Close()

			client, server := recorded(e.client), recorded(e.server)
			same(t, "binary log and client", withoutWire(first(e.client)), l.client)
			same(t, "binary log and server", withoutWire(server), l.server)

			var sent, received uint64

			mirrored := make(bytesOf)
			for w, c := range server {
				mirrored.add(way{w.Method, !w.Transmit}, c)

				if w.Transmit {
					sent += c.Messages
				} else {
					received += c.Messages
				}
			}

			same(t, "client and server", client, mirrored)
			same(t, "channelz and server", [2]uint64{sent, received}, inGRPC)
			retried(t, e)
			instruments(t, e)
		})
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()

	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// retried checks that the one repeated attempt is marked on both sides.
func retried(t *testing.T, e *everything) {
	t.Helper()

	for what, r := range map[string]*stats.Registry{"client": e.client, "server": e.server} {
		marked := make(map[stats.Direction]uint64)

		for _, row := range r.Snapshot().Total {
			if row.Key.Retry {
				marked[row.Key.Direction] += row.Messages
			}
		}

		same(t, what+": repeated messages", marked, map[stats.Direction]uint64{stats.Transmit: 1, stats.Receive: 1})
	}
}

// instruments compares our histograms with those of grpc's own plugin, and checks exemplars and spans.
func instruments(t *testing.T, e *everything) {
	t.Helper()

	var all metricdata.ResourceMetrics
	if err := e.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}

	traces := make(map[string]bool)
	for _, s := range e.spans.GetSpans() {
		traces[s.SpanContext.TraceID().String()] = true
	}

	sums := make(map[string]int64)
	counts := make(map[string]int64)
	exemplars := 0

	for _, sm := range all.ScopeMetrics {
		for _, m := range sm.Metrics {
			h, ok := m.Data.(metricdata.Histogram[int64])
			if !ok {
				continue
			}

			for _, p := range h.DataPoints {
				direction, _ := p.Attributes.Value("network.io.direction")
				sums[m.Name+direction.AsString()] += p.Sum
				counts[m.Name+direction.AsString()] += int64(p.Count)

				for _, x := range p.Exemplars {
					if !strings.HasPrefix(m.Name, "otelproto.") {
						continue
					}

					exemplars++

					if id := hex.EncodeToString(x.TraceID); !traces[id] {
						t.Errorf("%s: an exemplar of trace %s, which no call has", m.Name, id)
					}
				}
			}
		}
	}

	// grpc's plugin counts compressed bytes without the prefix, once for each attempt.
	for grpcs, ours := range map[string]string{
		"grpc.client.attempt.sent_total_compressed_message_size": "otelproto.client.message.wire_sizetransmit",
		"grpc.client.attempt.rcvd_total_compressed_message_size": "otelproto.client.message.wire_sizereceive",
		"grpc.server.call.sent_total_compressed_message_size":    "otelproto.server.message.wire_sizetransmit",
		"grpc.server.call.rcvd_total_compressed_message_size":    "otelproto.server.message.wire_sizereceive",
	} {
		if want := sums[ours] - 5*counts[ours]; sums[grpcs] != want || want <= 0 {
			t.Errorf("%s is %d, ours less the prefixes %d", grpcs, sums[grpcs], want)
		}
	}

	if exemplars == 0 {
		t.Error("no exemplar in the histograms of sizes")
	}
}

// startChannelz serves grpc's own view of its connections.
func startChannelz(t *testing.T) channelzpb.ChannelzClient {
	t.Helper()

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	server := grpc.NewServer()
	service.RegisterChannelzServiceToServer(server)

	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()

	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		conn.Close()
		server.Stop()

		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	return channelzpb.NewChannelzClient(conn)
}

// messagesInChannelz gives how many messages the server at addr has sent and received.
func messagesInChannelz(t *testing.T, client channelzpb.ChannelzClient, addr string) (found [2]uint64) {
	t.Helper()

	ctx := t.Context()

	servers, err := client.GetServers(ctx, &channelzpb.GetServersRequest{})
	if err != nil {
		t.Fatal(err)
	}

	for _, s := range servers.GetServer() {
		sockets, err := client.GetServerSockets(ctx, &channelzpb.GetServerSocketsRequest{ServerId: s.GetRef().GetServerId()})
		if err != nil {
			t.Fatal(err)
		}

		for _, ref := range sockets.GetSocketRef() {
			socket, err := client.GetSocket(ctx, &channelzpb.GetSocketRequest{SocketId: ref.GetSocketId()})
			if err != nil {
				t.Fatal(err)
			}

			local := socket.GetSocket().GetLocal().GetTcpipAddress()
			if local == nil || (&net.TCPAddr{IP: local.GetIpAddress(), Port: int(local.GetPort())}).String() != addr {
				continue
			}

			found[0] += uint64(socket.GetSocket().GetData().GetMessagesSent())
			found[1] += uint64(socket.GetSocket().GetData().GetMessagesReceived())
		}
	}

	return found
}

func TestServeHTTPBesideEverything(t *testing.T) {
	binarylog.SetSink(newLog())

	e := newEverything(1)
	server := grpc.NewServer(e.serve...)
	testproto.RegisterTestServer(server, grpctest.Echo{}) // a failure comes after headers here, which no policy repeats

	web := httptest.NewUnstartedServer(http.HandlerFunc(server.ServeHTTP))
	web.EnableHTTP2 = true
	web.StartTLS()

	t.Cleanup(web.Close)

	transport, ok := web.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("no transport")
	}

	tls := transport.TLSClientConfig.Clone()
	tls.NextProtos = []string{"h2"}
	tls.ServerName = "example.com"

	conn, err := grpc.NewClient(web.Listener.Addr().String(), append(e.dial, grpc.WithTransportCredentials(credentials.NewTLS(tls)))...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })
	workload(t, testproto.NewTestClient(conn))

	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	for {
		mirrored := make(bytesOf)
		for w, c := range recorded(e.server) {
			mirrored.add(way{w.Method, !w.Transmit}, c)
		}

		d := cmp.Diff(recorded(e.client), mirrored)
		if d == "" && len(mirrored) > 0 {
			break
		}

		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("client and server (-client +server):\n%s", d)
		}
	}
}
