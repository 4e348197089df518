package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/otelproto/otelproto-go/e2e/dashboard"
	"github.com/otelproto/otelproto-go/e2e/pipeline"
	"github.com/otelproto/otelproto-go/e2e/traffic"
	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statsmetric"
)

// prometheus is the shared Prometheus that is sent OTLP, in which each test has an instance of its own.
var prometheus struct {
	sync.Once

	backend *pipeline.Backend
	err     error
}

// prometheusBackend gives the shared Prometheus, as backend does.
func prometheusBackend(t *testing.T) *pipeline.Backend {
	t.Helper()
	backend(t) // for the other programs

	prometheus.Do(func() {
		prometheus.backend, prometheus.err = pipeline.StartPrometheus(
			context.Background(), shared.dir, free(t), document(t, "collector", "prometheus-otlp.yml"))
	})

	if prometheus.err != nil {
		missing(t, "Prometheus can't be built or started, is the module proxy within reach? ", prometheus.err)
	}

	return prometheus.backend
}

// document gives the path of a file in docs.
func document(t *testing.T, name ...string) string {
	t.Helper()

	root, err := pipeline.Root()
	if err != nil {
		t.Fatal(err)
	}

	return filepath.Join(append([]string{root, "docs"}, name...)...)
}

// Straight into Prometheus' own receiver, or by way of the collector: each type's count, sum and buckets are the program's own.
func TestEveryValueArrivesInPrometheus(t *testing.T) {
	b := prometheusBackend(t)

	t.Parallel()

	for _, c := range []struct {
		name, temporality string
		collector         bool
	}{
		{"cumulative, sent by the program", "cumulative", false},
		{"delta, sent by the program", "delta", false},
		{"delta, by way of the collector", "delta", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			endpoint := b.OTLP()

			if c.collector {
				a := pipeline.CollectorAddr{GRPC: free(t), HTTP: free(t), Backend: b.URL, Config: "prometheus"}
				startCollector(t, a)

				endpoint = "http://" + a.HTTP
			}

			program := compute(t, endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
				"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="+c.temporality)
			severalExports(t, b, program)
			arrives(t, b, program.instance, program.report(t))
		})
	}
}

// everything lets the application of package traffic do everything that it can, and export to a backend by OTLP until the end of
// the test.
func everything(t *testing.T, b *pipeline.Backend) (id string) {
	t.Helper()

	exporter, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(b.OTLP()+"/v1/metrics"))
	if err != nil {
		t.Fatal(err)
	}

	id = instance(t)
	registry := stats.NewRegistry()
	provider := sdkmetric.NewMeterProvider(
		sdkmetric.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "traffic"), attribute.String("service.instance.id", id))),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithInterval(200*time.Millisecond),
			sdkmetric.WithProducer(statsmetric.NewProducer(registry)))))

	app, err := traffic.Start(t.Context(), traffic.Options{Registry: registry, MeterProvider: provider})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())

	var working sync.WaitGroup

	working.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()

		for n := 0; ; n++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}

			err := app.Step(ctx, n)
			if err == nil && n%20 == 10 {
				err = app.Restart(ctx)
			}

			if err != nil && ctx.Err() == nil {
				t.Error(err)

				return
			}
		}
	})

	t.Cleanup(func() {
		cancel()
		working.Wait()

		if err := errors.Join(app.Close(), provider.Shutdown(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})

	return id
}

// The dashboards are for both backends.
func TestEveryQueryOfThePanelsHasAnAnswerInPrometheus(t *testing.T) {
	b := prometheusBackend(t)

	t.Parallel()

	everything(t, b)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	for _, q := range dashboard.All() {
		if err := b.Answers(ctx, q.Expr); err != nil {
			t.Fatalf("%s: %v", q.Panel, err)
		}
	}
}

// The page's table of names is what the backends say, nothing more and nothing less.
func TestNamesInTheBackendsAreThoseOfThePage(t *testing.T) {
	backends := map[string]*pipeline.Backend{"VictoriaMetrics": backend(t), "Prometheus": prometheusBackend(t)}

	t.Parallel()

	want, labels := namesOfThePage(t)

	for name, b := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			id := everything(t, b)

			await(t, "all names are there", func() bool { return len(named(t, b, name, id, want, labels)) == len(want) })
		})
	}
}

// named gives the names of everything of an instance, and checks that the page has them, and their labels.
func named(t *testing.T, b *pipeline.Backend, how, instance string, want map[string]bool, labels []string) (names map[string]bool) {
	t.Helper()

	query := `last_over_time({__name__=~"otelproto.*"}[1h])`
	if instance != "" {
		query = fmt.Sprintf(`last_over_time({__name__=~"otelproto.*",%s=%q}[1h])`, b.Instance, instance)
	}

	samples, err := b.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}

	names = make(map[string]bool)

	for _, s := range samples {
		name := s.Labels["__name__"]
		if !want[name] {
			t.Fatalf("docs/backends.md has no name %s", name)
		}

		for l := range s.Labels {
			if !slices.Contains(labels, l) && !slices.Contains(own[how], l) {
				t.Fatalf("docs/backends.md has no label %s, of %v", l, s.Labels)
			}
		}

		names[name] = true
	}

	return names
}

// own are the labels that a backend adds: what it makes of the resource and the scope.
var own = map[string][]string{
	"VictoriaMetrics": {"__name__", "le", "service_instance_id", "service_name", "scope_name", "scope_version"},
	"Prometheus":      {"__name__", "le", "instance", "job"},
	"by scrape":       {"__name__", "le", "instance", "job", "otel_scope_name", "otel_scope_version", "otel_scope_schema_url"},
	"the collector's page": {"__name__", "le", "instance", "job", "exported_instance", "exported_job", "otel_scope_name",
		"otel_scope_version", "otel_scope_schema_url", "compute_process", "compute_replica"},
}

// namesOfThePage reads the table of docs/backends.md, and checks that it has all metrics of docs/metrics.md.
func namesOfThePage(t *testing.T) (names map[string]bool, labels []string) {
	t.Helper()

	text, err := os.ReadFile(document(t, "backends.md"))
	if err != nil {
		t.Fatal(err)
	}

	names = make(map[string]bool)

	row := regexp.MustCompile("(?m)^\\| `otelproto\\.[a-z_.]+` \\| .* \\| (.*) \\|$")

	for _, row := range row.FindAllStringSubmatch(string(text), -1) {
		name, suffixes, ok := strings.Cut(row[1], "` with `")
		name = strings.Trim(name, "`")

		if !ok {
			names[name] = true

			continue
		}

		for suffix := range strings.SplitSeq(strings.Trim(suffixes, "`"), "`, `") {
			names[name+suffix] = true
		}
	}

	contract, err := os.ReadFile(document(t, "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}

	metrics, attributes := dashboard.Translate(string(contract))
	if d := cmp.Diff(metrics, names); d != "" {
		t.Errorf("names in docs/backends.md (-metrics.md, translated +backends.md):\n%s", d)
	}

	for l := range attributes {
		labels = append(labels, l)
	}

	return names, labels
}
