package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
)

// CollectorAddr is where a collector listens for OTLP, and what it writes and sends to.
type CollectorAddr struct {
	GRPC, HTTP string
	// Backend is the URL of a VictoriaMetrics, or of a Prometheus where Config says so.
	Backend string
	// Config is the file of docs/collector, without .yaml: victoriametrics if empty.
	Config string
	// File gets what came in, as JSON; empty for none.
	File string
	// Page is where Prometheus may scrape, if Config is prometheus-page.
	Page string
}

// StartCollector starts a collector with the configurations of docs/collector and returns when it listens. Its log goes to dir.
func StartCollector(ctx context.Context, dir string, a CollectorAddr) (*Process, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}

	path, err := Collector(ctx)
	if err != nil {
		return nil, err
	}

	if err := errors.Join(CheckFree(a.GRPC), CheckFree(a.HTTP)); err != nil {
		return nil, err
	}

	config := func(name string) string { return "--config=" + filepath.Join(root, "docs", "collector", name+".yaml") }

	args := []string{config(cmp.Or(a.Config, "victoriametrics"))}
	if a.File != "" {
		args = append(args, config("file"))
	}

	p, err := Start(dir, "collector", path, []string{
		"OTLP_GRPC=" + a.GRPC, "OTLP_HTTP=" + a.HTTP, "BACKEND=" + a.Backend, "OTLP_FILE=" + a.File, "PAGE=" + a.Page,
	}, args...)
	if err != nil {
		return nil, err
	}

	return p, p.ready(ctx, func() error { return errors.Join(dial(ctx, a.GRPC), dial(ctx, a.HTTP)) })
}

// Backend is a VictoriaMetrics or a Prometheus.
type Backend struct {
	*Process

	// URL is where it listens.
	URL string
	// Instance is the label that it makes of service.instance.id.
	Instance string
	// flush is the path that makes what was stored visible at once, if it has to be asked to.
	flush string
}

// OTLP is the URL under which it takes OTLP over HTTP, as OTEL_EXPORTER_OTLP_ENDPOINT has it: the SDK adds /v1/metrics.
func (b *Backend) OTLP() string {
	if b.Instance == "instance" {
		return b.URL + "/api/v1/otlp"
	}

	return b.URL + "/opentelemetry"
}

// StartBackend starts a VictoriaMetrics that keeps its data and log in dir, with the dashboards of docs/dashboards/vmui, and returns
// when it answers. More flags may be given.
func StartBackend(ctx context.Context, dir, addr string, flags ...string) (*Backend, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}

	path, err := VictoriaMetrics(ctx)
	if err != nil {
		return nil, err
	}

	if err := CheckFree(addr); err != nil {
		return nil, err
	}

	p, err := Start(dir, "victoria-metrics", path, nil, append(flags,
		"-httpListenAddr="+addr, "-storageDataPath="+filepath.Join(dir, "data"), "-retentionPeriod=1d", "-search.latencyOffset=0s",
		"-opentelemetry.usePrometheusNaming", "-vmui.customDashboardsPath="+filepath.Join(root, "docs", "dashboards", "vmui"))...)
	if err != nil {
		return nil, err
	}

	b := VictoriaMetricsAt("http://" + addr)
	b.Process = p

	return b, p.ready(ctx, func() error { return b.get(ctx, "/health", nil, nil) })
}

// VictoriaMetricsAt gives one that somebody else has started.
func VictoriaMetricsAt(url string) *Backend {
	return &Backend{URL: url, Instance: "service_instance_id", flush: "/internal/force_flush"}
}

// StartPrometheus starts a Prometheus with a configuration that keeps its data and log in dir, takes OTLP, deltas too, and returns
// when it answers.
func StartPrometheus(ctx context.Context, dir, addr, config string) (*Backend, error) {
	path, err := Prometheus(ctx)
	if err != nil {
		return nil, err
	}

	if err := CheckFree(addr); err != nil {
		return nil, err
	}

	p, err := Start(dir, "prometheus", path, nil, "--config.file="+config, "--web.listen-address="+addr,
		"--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--web.enable-otlp-receiver", "--enable-feature=otlp-deltatocumulative")
	if err != nil {
		return nil, err
	}

	b := &Backend{Process: p, URL: "http://" + addr, Instance: "instance"}

	return b, p.ready(ctx, func() error { return b.get(ctx, "/-/ready", nil, nil) })
}

// Sample is one series of a query's result.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Answers polls until a query has an answer with a series in it, or ctx ends.
func (b *Backend) Answers(ctx context.Context, query string) error {
	return Poll(ctx, func() error {
		series, err := b.Query(ctx, query)
		if err == nil && len(series) == 0 {
			err = fmt.Errorf("no answer to %s", query)
		}

		return err
	})
}

// Query runs PromQL, over everything that was stored up to now.
func (b *Backend) Query(ctx context.Context, query string) ([]Sample, error) {
	if b.flush != "" {
		if err := b.get(ctx, b.flush, nil, nil); err != nil {
			return nil, err
		}
	}

	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  [2]any            `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}

	if err := b.get(ctx, "/api/v1/query", url.Values{"query": {query}, "nocache": {"1"}}, &answer); err != nil {
		return nil, err
	}

	samples := make([]Sample, 0, len(answer.Data.Result))

	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)

		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("pipeline: the value of %v: %w", r.Metric, err)
		}

		samples = append(samples, Sample{r.Metric, v})
	}

	return samples, nil
}

func (b *Backend) get(ctx context.Context, path string, values url.Values, to any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL+path+"?"+values.Encode(), nil)
	if err != nil {
		return err
	}

	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()

	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}

	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("pipeline: %s: %s: %s", path, answer.Status, body)
	}

	if to == nil {
		return nil
	}

	return json.Unmarshal(body, to)
}
