package pipeline_test

import (
	"context"
	"errors"
	"net/http"
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

			for _, b := range scraping(t, page) {
				arrives(t, b, "", ofRows(registry.Snapshot().Total))
				named(t, b, "by scrape", "", names, labels)
			}
		})
	}
}

// scraping gives a VictoriaMetrics and a Prometheus that scrape a handler, with the configuration of docs/collector but for the
// address and the pace.
func scraping(t *testing.T, handler http.Handler) []*pipeline.Backend {
	t.Helper()

	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)

	text, err := os.ReadFile(document(t, "collector", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}

	config := filepath.Join(t.TempDir(), "prometheus.yml")
	changed := strings.NewReplacer("127.0.0.1:9464", web.Listener.Addr().String(), "15s", "1s").Replace(string(text))

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
