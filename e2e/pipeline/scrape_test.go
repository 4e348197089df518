package pipeline_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"

	"github.com/otelproto/otelproto-go/e2e/pipeline"
	"github.com/otelproto/otelproto-go/e2e/traffic"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

// By scrape the names are the same as by OTLP, so that one dashboard serves both.
func TestScrapedByPrometheusFormat(t *testing.T) {
	prometheusBackend(t)
	t.Parallel()

	names, labels := namesOfThePage(t)

	for _, sink := range []string{"instruments", "producer"} {
		t.Run(sink, func(t *testing.T) {
			t.Parallel()

			scraped := client.NewRegistry()
			registry := stats.NewRegistry()
			opts := []otelprometheus.Option{otelprometheus.WithRegisterer(scraped)}

			if sink == "producer" {
				opts = append(opts, otelprometheus.WithProducer(statsmetric.NewProducer(registry)))
			}

			exporter, err := otelprometheus.New(opts...)
			if err != nil {
				t.Fatal(err)
			}

			provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
			o := traffic.Options{Registry: registry, MeterProvider: provider}

			if sink == "instruments" {
				o.Dial = otelproto.DialOptions(otelproto.WithMeterProvider(provider))
				o.Server = []grpc.ServerOption{grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithMeterProvider(provider)))}
			}

			app, err := traffic.Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := errors.Join(app.Close(), provider.Shutdown(context.WithoutCancel(t.Context()))); err != nil {
					t.Error(err)
				}
			})

			for n := range 30 {
				if err := app.Step(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}

			page := promhttp.HandlerFor(scraped, promhttp.HandlerOpts{})

			web := httptest.NewServer(page)
			t.Cleanup(web.Close)

			for _, b := range scraping(t, web.Listener.Addr().String()) {
				arrives(t, b, "", ofRows(registry.Snapshot().Total))
				named(t, b, "by scrape", "", names, labels)
			}
		})
	}
}

// The collector has a page too.
func TestCollectorScrapedByPrometheus(t *testing.T) {
	prometheusBackend(t)
	t.Parallel()

	a := pipeline.CollectorAddr{GRPC: free(t), HTTP: free(t), Config: "prometheus-page", Page: free(t)}
	startCollector(t, a)

	program := compute(t, "http://"+a.HTTP, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
		"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta")
	names, labels := namesOfThePage(t)

	backends := scraping(t, a.Page)

	for _, b := range backends {
		severalExports(t, b, &computing{}) // of whoever is scraped, there is but one
	}

	want := program.report(t)

	for _, b := range backends {
		arrives(t, b, "", want)
		named(t, b, "the collector's page", "", names, labels)
	}
}

// scraping gives a VictoriaMetrics and a Prometheus that scrape an address, with the configuration of docs/collector but for the
// address and the pace.
func scraping(t *testing.T, addr string) []*pipeline.Backend {
	t.Helper()

	text, err := os.ReadFile(document(t, "collector", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}

	config := filepath.Join(t.TempDir(), "prometheus.yml")
	changed := strings.NewReplacer("127.0.0.1:9464", addr, "15s", "500ms").Replace(string(text))

	if err := os.WriteFile(config, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}

	var backends []*pipeline.Backend

	for _, start := range []func() (*pipeline.Backend, error){
		func() (*pipeline.Backend, error) {
			return pipeline.StartBackend(t.Context(), t.TempDir(), free(t), "-promscrape.config="+config)
		},
		func() (*pipeline.Backend, error) {
			return pipeline.StartPrometheus(t.Context(), t.TempDir(), free(t), config)
		},
	} {
		b, err := start()
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(b.Stop)

		backends = append(backends, b)
	}

	return backends
}
