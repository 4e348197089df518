package pipeline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/e2e/pipeline"
	"github.com/otelproto/otelproto-go/stats"
)

// shared is what all tests of the package use: programs, and a backend in which each has an instance of its own.
var shared struct {
	sync.Once

	dir, compute string
	backend      *pipeline.Backend
	err          error
}

func TestMain(m *testing.M) {
	flag.Parse()

	// The tests wait for programs more than they compute: unless somebody asks for another number, more of them run at a time than
	// there are cores.
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		flag.Set("test.parallel", "5")
	}

	code := m.Run()

	for _, b := range []*pipeline.Backend{shared.backend, prometheus.backend} {
		if b != nil {
			b.Stop()
		}
	}

	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}

	os.Exit(code)
}

// backend gives the shared backend. Where the programs can't be built the test is skipped, or fails where CI=true.
func backend(t *testing.T) *pipeline.Backend {
	t.Helper()

	shared.Do(func() {
		ctx := context.Background()

		if shared.dir, shared.err = os.MkdirTemp("", "pipeline"); shared.err != nil { //nolint:usetesting // of all tests
			return
		}

		var errs [3]error

		_, errs[0] = pipeline.Collector(ctx)
		shared.compute, errs[1] = pipeline.Compute(ctx, shared.dir)
		_, errs[2] = pipeline.VictoriaMetrics(ctx)

		if shared.err = errors.Join(errs[:]...); shared.err == nil {
			shared.backend, shared.err = pipeline.StartBackend(ctx, shared.dir, free(t))
		}
	})

	if shared.err != nil {
		missing(t, "the programs of the pipeline can't be built or started, is the module proxy within reach? ", shared.err)
	}

	return shared.backend
}

// missing skips the test on a laptop, and fails it where nothing may be skipped.
func missing(t *testing.T, what ...any) {
	t.Helper()

	if os.Getenv("CI") == "true" {
		t.Fatal(what...)
	}

	t.Skip(what...)
}

// port counts the ports that were given out: below those that the system gives to connections, so that nobody else takes them
// between the giving and the listening.
var port atomic.Int32

// free gives an address that nobody listens at.
func free(t *testing.T) string {
	t.Helper()

	for range 1000 {
		addr := fmt.Sprint("127.0.0.1:", 20_000+(int32(os.Getpid())*100+port.Add(1))%12_000)
		if pipeline.CheckFree(addr) == nil {
			return addr
		}
	}

	t.Fatal("no free port from 20000 to 32000")

	return ""
}

// address gives a collector that isn't there yet, with a file, in front of a backend.
func address(t *testing.T, b *pipeline.Backend) pipeline.CollectorAddr {
	t.Helper()

	return pipeline.CollectorAddr{
		GRPC: free(t), HTTP: free(t), Backend: b.URL, File: filepath.Join(t.TempDir(), "otlp.json"),
	}
}

func startCollector(t *testing.T, a pipeline.CollectorAddr) *pipeline.Process {
	t.Helper()

	p, err := pipeline.StartCollector(t.Context(), t.TempDir(), a)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(p.Stop)

	return p
}

// computing is a run of examples/compute.
type computing struct {
	command     *exec.Cmd
	instance    string
	out, errors output
}

// output is what a program wrote, which may be read while it writes.
type output struct {
	// mu guards text.
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.text.String()
}

// instance gives a name under which no other test exports.
func instance(t *testing.T) string {
	return strings.NewReplacer("/", ".", " ", "_", ",", "").Replace(t.Name()) + fmt.Sprint(".", time.Now().UnixNano())
}

// compute starts examples/compute, which exports twice a second to endpoint, an URL, until it is told to end.
func compute(t *testing.T, endpoint string, env ...string) *computing {
	t.Helper()

	return computeWith(t, []string{"-duration=5m", "-rate=30", "-json"}, endpoint, env...)
}

func computeWith(t *testing.T, args []string, endpoint string, env ...string) *computing {
	t.Helper()

	c := &computing{command: exec.Command(shared.compute, args...), instance: instance(t)}
	c.command.Stdout, c.command.Stderr = &c.out, &c.errors
	c.command.Env = append(os.Environ(), append([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_METRIC_EXPORT_INTERVAL=500",
		"OTEL_RESOURCE_ATTRIBUTES=service.instance.id=" + c.instance,
	}, env...)...)

	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		c.command.Process.Kill()
		c.command.Wait()
	})

	return c
}

// report ends the program, which it does in time whatever the collector does, and gives its own count.
func (c *computing) report(t *testing.T) histograms {
	t.Helper()

	if err := c.end(); err != nil {
		t.Fatalf("%v: %s", err, &c.errors)
	}

	return c.counted(t)
}

// end tells the program to end and waits for it, for so long that only a program that is held up isn't done.
func (c *computing) end() error {
	late := time.AfterFunc(20*time.Second, func() { c.command.Process.Kill() })
	defer late.Stop()

	if err := c.command.Process.Signal(os.Interrupt); err != nil {
		return err
	}

	return c.command.Wait()
}

func (c *computing) counted(t *testing.T) histograms {
	t.Helper()

	var report struct {
		Total    []stats.Row
		Replicas struct{ Total []stats.Row }
	}

	if err := json.Unmarshal([]byte(c.out.String()), &report); err != nil { //nolint:musttag // a snapshot has the names that it has in Go
		t.Fatal(err)
	}

	all := ofRows(append(report.Total, report.Replicas.Total...))
	if len(all) < 40 {
		t.Fatalf("%d histograms", len(all))
	}

	return all
}

// arrives waits until the backend has exactly what the program counted.
func arrives(t *testing.T, b *pipeline.Backend, instance string, want histograms) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	if err := pipeline.Poll(ctx, func() error {
		got, err := ofBackend(ctx, b, instance)
		if err != nil {
			return err
		}

		if d := cmp.Diff(want, got); d != "" {
			return fmt.Errorf("%d of %d histograms in the backend (-program +backend):\n%s", len(got), len(want), d)
		}

		return nil
	}); err != nil {
		t.Fatal(err)
	}

	var sum histogram
	for _, h := range want {
		sum.Count += h.Count
		sum.Sum += h.Sum
	}

	t.Logf("%d histograms, %d values, %d bytes: the backend has the program's own numbers, bucket by bucket", len(want), sum.Count, sum.Sum)
}

// severalExports waits until a program has exported a few times.
func severalExports(t *testing.T, b *pipeline.Backend, c *computing) {
	t.Helper()

	before := uint64(0)
	for range 3 {
		before = arriving(t, b, c, before)
	}
}

func TestEveryValueArrives(t *testing.T) {
	b := backend(t)

	t.Parallel()

	for _, c := range []struct {
		name, protocol, export string
		temporality            int
	}{
		{"cumulative", "grpc", "instruments", cumulative},
		{"delta", "http/protobuf", "instruments", delta},
		{"cumulative, by connection from the registry", "grpc", "registry", cumulative},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			a := address(t, b)
			collector := startCollector(t, a)
			endpoint := "http://" + a.GRPC

			if c.protocol != "grpc" {
				endpoint = "http://" + a.HTTP
			}

			preference, _, _ := strings.Cut(c.name, ",")
			program := computeWith(t, []string{"-duration=5m", "-rate=30", "-json", "-export=" + c.export}, endpoint,
				"OTEL_EXPORTER_OTLP_PROTOCOL="+c.protocol, "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE="+preference)
			severalExports(t, b, program)

			want := program.report(t)

			if c.export == "registry" { // which is the controller's
				maps.DeleteFunc(want, func(k key, _ histogram) bool { return strings.HasPrefix(k.Metric, "otelproto.server.") })
			}

			arrives(t, b, program.instance, want)
			collector.Stop() // so that the file is whole

			got, _ := ofFile(t, a.File, c.temporality)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the collector's file (-program +file):\n%s", d)
			}
		})
	}
}
