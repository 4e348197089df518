package pipeline_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/otelproto/otelproto-go/e2e/pipeline"
	"github.com/otelproto/otelproto-go/e2e/traffic"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// gate stands before a collector and refuses what comes until it is opened.
type gate struct {
	collectorpb.UnimplementedMetricsServiceServer

	// refuse answers over HTTP, or, if it gives an error, by gRPC.
	refuse func(ctx context.Context, w http.ResponseWriter) error
	grpc   collectorpb.MetricsServiceClient
	http   http.Handler

	opened  chan struct{}
	refused atomic.Int32
}

func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// Export implements OTLP by gRPC.
func (g *gate) Export(ctx context.Context, r *collectorpb.ExportMetricsServiceRequest) (*collectorpb.ExportMetricsServiceResponse, error) {
	if !g.isOpen() {
		g.refused.Add(1)

		return nil, g.refuse(ctx, nil)
	}

	return g.grpc.Export(ctx, r)
}

// ServeHTTP implements OTLP by HTTP.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.isOpen() {
		g.refused.Add(1)
		io.Copy(io.Discard, r.Body) // before that the server doesn't see that the other end has gone
		g.refuse(r.Context(), w)

		return
	}

	g.http.ServeHTTP(w, r)
}

// code refuses by a gRPC code, with details if they are given.
func code(c codes.Code, details ...*errdetails.RetryInfo) func(context.Context, http.ResponseWriter) error {
	s := status.New(c, "refused")

	for _, d := range details {
		var err error
		if s, err = s.WithDetails(d); err != nil {
			panic("bug: " + err.Error())
		}
	}

	return func(context.Context, http.ResponseWriter) error { return s.Err() }
}

// answer refuses by an HTTP status, with Retry-After unless it is empty.
func answer(status int, retryAfter string) func(context.Context, http.ResponseWriter) error {
	return func(_ context.Context, w http.ResponseWriter) error {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}

		w.WriteHeader(status)

		return nil
	}
}

// silence gives no answer at all while the exporter waits.
func silence(ctx context.Context, _ http.ResponseWriter) error {
	<-ctx.Done()

	return status.FromContextError(ctx.Err()).Err()
}

// What is refused waits for nobody: the application goes on, and with the first export that is taken the backend has everything.
func TestReceiverThatRefuses(t *testing.T) {
	b := backend(t)

	t.Parallel()

	soon := &errdetails.RetryInfo{RetryDelay: durationpb.New(20 * time.Millisecond)}
	a := pipeline.CollectorAddr{GRPC: free(t), HTTP: free(t), Backend: b.URL}
	startCollector(t, a)

	for _, c := range []struct {
		name   string
		start  func(*testing.T, *gate, pipeline.CollectorAddr) sdkmetric.Exporter
		refuse func(context.Context, http.ResponseWriter) error
	}{
		{"gRPC, unavailable", byGRPC, code(codes.Unavailable)},
		{"gRPC, unavailable, with RetryInfo", byGRPC, code(codes.Unavailable, soon)},
		{"gRPC, resource exhausted", byGRPC, code(codes.ResourceExhausted)},
		{"gRPC, resource exhausted, with RetryInfo", byGRPC, code(codes.ResourceExhausted, soon)},
		{"gRPC, no answer", byGRPC, silence},
		{"HTTP, 429", byHTTP, answer(http.StatusTooManyRequests, "")},
		{"HTTP, 429, with Retry-After", byHTTP, answer(http.StatusTooManyRequests, "1")},
		{"HTTP, 503", byHTTP, answer(http.StatusServiceUnavailable, "")},
		{"HTTP, 503, with Retry-After", byHTTP, answer(http.StatusServiceUnavailable, "1")},
		{"HTTP, no answer", byHTTP, silence},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			g := &gate{refuse: c.refuse, opened: make(chan struct{})}
			id := instance(t)
			registry := stats.NewRegistry()
			// An export that was refused is given up with the exporter's timeout, whatever it would still repeat.
			provider := sdkmetric.NewMeterProvider(
				sdkmetric.WithResource(resource.NewSchemaless(attribute.String("service.instance.id", id))),
				sdkmetric.WithReader(sdkmetric.NewPeriodicReader(c.start(t, g, a),
					sdkmetric.WithInterval(20*time.Millisecond), sdkmetric.WithTimeout(200*time.Millisecond))))

			app, err := traffic.Start(t.Context(), traffic.Options{
				Registry: registry, MeterProvider: provider,
				Server: []grpc.ServerOption{grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithMeterProvider(provider)))},
				Dial:   otelproto.DialOptions(otelproto.WithMeterProvider(provider)),
			})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := app.Close(); err != nil {
					t.Error(err)
				}

				// Everything has arrived by then; the last export may be given up like the others.
				_ = provider.Shutdown(context.WithoutCancel(t.Context()))
			})

			steps := 0
			work := func(n int) {
				for range n {
					if err := app.Step(t.Context(), steps); err != nil {
						t.Fatal(err)
					}

					steps++
				}
			}

			// Each step's calls end although no export does.
			work(20)
			await(t, "three exports are refused", func() bool {
				work(1)

				return g.refused.Load() >= 3
			})

			if n := messages(registry); n != uint64(steps*20) {
				t.Errorf("%d messages of %d steps, ten at each end", n, steps)
			}

			close(g.opened)
			work(5)
			arrives(t, b, id, ofRows(registry.Snapshot().Total))
			t.Logf("%d steps while %d exports were refused", steps-5, g.refused.Load())
		})
	}
}

// messages is the number of messages that a registry counted, at both ends.
func messages(r *stats.Registry) (n uint64) {
	for _, row := range r.Snapshot().Total {
		n += row.Messages
	}

	return n
}

func byGRPC(t *testing.T, g *gate, a pipeline.CollectorAddr) sdkmetric.Exporter {
	t.Helper()

	conn, err := grpc.NewClient(a.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })

	g.grpc = collectorpb.NewMetricsServiceClient(conn)

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	server := grpc.NewServer()
	collectorpb.RegisterMetricsServiceServer(server, g)

	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()

	t.Cleanup(func() {
		server.Stop()

		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	exporter, err := otlpmetricgrpc.New(t.Context(), otlpmetricgrpc.WithEndpoint(lis.Addr().String()), otlpmetricgrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}

	return exporter
}

func byHTTP(t *testing.T, g *gate, a pipeline.CollectorAddr) sdkmetric.Exporter {
	t.Helper()

	g.http = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: a.HTTP})
	proxy := httptest.NewServer(g)
	t.Cleanup(proxy.Close)

	exporter, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(proxy.URL+"/v1/metrics"))
	if err != nil {
		t.Fatal(err)
	}

	return exporter
}
