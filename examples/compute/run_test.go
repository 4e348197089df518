package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	colmetricpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
	"github.com/otelproto/otelproto-go/examples/compute/controller"
	"github.com/otelproto/otelproto-go/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unset takes the variables away that ask for an export, whatever the tests' own environment says.
func unset(t *testing.T) {
	t.Helper()
	for _, name := range []string{"OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
		t.Setenv(name, "")
	}
}

// kinds are the names of all cases of an envelope.
func kinds(m protoreflect.ProtoMessage) []string {
	var names []string
	fields := m.ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for n := range fields.Len() {
		names = append(names, string(fields.Get(n).Name()))
	}
	return names
}

// longEnough tries with longer and longer durations, until there was time for what is to be seen even on a machine that is busy.
func longEnough(t *testing.T, try func(duration string) error) {
	t.Helper()
	var err error
	for duration := time.Second; duration <= 16*time.Second; duration *= 2 {
		if err = try(duration.String()); err == nil {
			return
		}
		t.Logf("in %v: %v", duration, err)
	}
	t.Fatal(err)
}

func TestTheTableHasARowForEveryKindOfEveryProcess(t *testing.T) {
	unset(t)
	longEnough(t, func(duration string) error {
		var out, stderr bytes.Buffer
		args := []string{"-duration", duration, "-rate", "50", "-replicas", "2", "-processes", "3", "-debug-addr", ""}
		err := run(t.Context(), args, &out, &stderr)
		if err != nil {
			t.Fatal(err)
		}
		if stderr.Len() > 0 {
			t.Errorf("stderr: %s", &stderr)
		}
		for _, want := range []string{"instance main", "4 dataflows", "5 collections", "connected: r1, r2"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("there is no %q in\n%s", want, &out)
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Error("there are control sequences in output that goes to no terminal")
		}
		return wantRows(out.String())
	})
}

// wantRows returns an error if the table lacks the row of a process, or of all, for a kind of message.
func wantRows(output string) error {
	have := make(map[string]bool)
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) > 4 {
			have[strings.Join(fields[:4], " ")] = true
		}
	}
	var errs []error
	for _, connection := range []string{"r1/0", "r1/1", "r1/2", "r2/0", "r2/1", "r2/2", "all"} {
		var want []string
		for _, kind := range kinds(&computepb.ComputeCommand{}) {
			want = append(want, "transmit "+connection+" compute.v1.ComputeCommand "+kind)
		}
		for _, kind := range kinds(&computepb.ComputeResponse{}) {
			want = append(want, "receive "+connection+" compute.v1.ComputeResponse "+kind)
		}
		for _, row := range want {
			if !have[row] {
				errs = append(errs, errors.New("there is no row "+row))
			}
		}
	}
	return errors.Join(errs...)
}

// runJSON returns what a run with -json and the given flags says.
func runJSON(t *testing.T, args ...string) report {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "-json"), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	// Addresses are of an interface type, which can't be read back.
	var got struct {
		Total    []stats.Row
		Replicas struct{ Total []stats.Row }
		Instance controller.Stats
	}
	//nolint:musttag // a snapshot is printed by the names that it has in Go
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	return report{
		Snapshot: stats.Snapshot{Total: got.Total}, Replicas: stats.Snapshot{Total: got.Replicas.Total}, Instance: got.Instance,
	}
}

func TestControllerAndReplicasCountTheSame(t *testing.T) {
	unset(t)
	for _, compress := range []string{"", "gzip"} {
		longEnough(t, func(duration string) error {
			got := runJSON(t, "-duration", duration, "-rate", "20", "-replicas", "1", "-compress", compress, "-seed", "3")
			arrived := slices.Clone(got.Replicas.Total)
			for n := range arrived { // as the other side sees it
				arrived[n].Client = true
				arrived[n].Key.Direction = stats.Receive - arrived[n].Key.Direction
			}
			if diff := cmp.Diff(rows(got.Total), rows(arrived)); diff != "" {
				t.Errorf("with compression %q (-controller +replicas):\n%s", compress, diff)
			}
			for _, r := range got.Total {
				if r.Key.Variant == "create_dataflow" && (r.Ratio() > 2) != (compress == "gzip") {
					t.Errorf("with compression %q the ratio of %s is %v", compress, r.Key.Variant, r.Ratio())
				}
			}
			return wantAll(got)
		})
	}
}

// wantAll returns an error if a kind of command, response or result didn't occur.
func wantAll(got report) error {
	if len(got.Total) != 15 {
		return fmt.Errorf("%d kinds flowed, want 15", len(got.Total))
	}
	c := got.Instance.Counts
	for what, n := range map[string]uint64{
		"rows": c.PeekRows, "errors": c.PeekErrors, "canceled": c.PeekCanceled,
		"batches": c.SubscribeBatches, "dropped": c.SubscribeDropped,
	} {
		if n == 0 {
			return errors.New("there are no responses with result " + what)
		}
	}
	if i := got.Instance; i.History == 0 || i.Dataflows == 0 || i.Collections == 0 || len(i.Connected) != 1 {
		return fmt.Errorf("gauges: %+v", i)
	}
	return nil
}

func rows(of []stats.Row) map[stats.Key]stats.Row {
	m := make(map[stats.Key]stats.Row)
	for _, r := range of {
		m[r.Key] = r
	}
	return m
}

func TestRestartedReplicasAreReplayed(t *testing.T) {
	unset(t)
	longEnough(t, func(duration string) error {
		got := runJSON(t, "-duration", duration, "-restart", "300ms", "-replicas", "1", "-processes", "1")
		c := got.Instance.Counts
		if c.Replays < 3 {
			return fmt.Errorf("%d replays, want 3 or more", c.Replays)
		}
		if c.Replayed/c.Replays > 100 {
			t.Errorf("%d commands a replay, of %d in all", c.Replayed/c.Replays, c.Commands)
		}
		return nil
	})
}

// collect starts a collector that keeps what it is sent, and returns the names of the metrics with the attributes' keys of each.
func collect(t *testing.T) (url string, metrics func() map[string][]string) {
	t.Helper()
	var mu sync.Mutex
	received := make(map[string][]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request colmetricpb.ExportMetricsServiceRequest
		if err := errors.Join(err, proto.Unmarshal(body, &request)); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range request.GetResourceMetrics() {
			for _, scope := range resource.GetScopeMetrics() {
				for _, m := range scope.GetMetrics() {
					keys := make(map[string]bool)
					for _, p := range m.GetHistogram().GetDataPoints() {
						for _, a := range p.GetAttributes() {
							keys[a.GetKey()] = true
						}
					}
					for _, p := range m.GetGauge().GetDataPoints() {
						for _, a := range p.GetAttributes() {
							keys[a.GetKey()] = true
						}
					}
					received[m.GetName()] = slices.Sorted(maps.Keys(keys))
				}
			}
		}
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() map[string][]string {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(received)
	}
}

func TestWithACollectorItExportsAndShowsNoTable(t *testing.T) {
	unset(t)
	url, metrics := collect(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-duration", "500ms"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	size := []string{
		"compute.process", "compute.replica", "network.io.direction", "otelproto.message.type", "otelproto.message.variant",
		"rpc.method", "rpc.system.name",
	}
	client := append(slices.Clone(size), "server.address", "server.port")
	instance := []string{"compute.instance"}
	want := map[string][]string{
		"otelproto.client.message.size":      client,
		"otelproto.client.message.wire_size": client,
		"otelproto.server.message.size":      size,
		"otelproto.server.message.wire_size": size,
		"compute.history.commands":           instance,
		"compute.dataflows":                  instance,
		"compute.collections":                instance,
	}
	if diff := cmp.Diff(want, metrics()); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(out.String(), "ComputeCommand") || !strings.Contains(out.String(), "instance main") {
		t.Errorf("output:\n%s", &out)
	}
}

func TestACollectorThatIsNotThereIsAnErrorAtTheEnd(t *testing.T) {
	unset(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	err := run(t.Context(), []string{"-duration", "100ms"}, io.Discard, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), "compute: exporting: ") {
		t.Errorf("got %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "pigeon")
	err = run(t.Context(), nil, io.Discard, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), "compute: setting up the export: ") {
		t.Errorf("got %v", err)
	}
}

func TestItRunsUntilItIsInterrupted(t *testing.T) {
	unset(t)
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-rate", "1000"}, io.Discard, io.Discard) }()
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMistakesInTheCommandLineAreNamed(t *testing.T) {
	tests := []struct {
		args string
		want string
	}{
		{"-replicas 0", "compute: -replicas is 0, want 1 to 64"},
		{"-replicas 65", "compute: -replicas is 65, want 1 to 64"},
		{"-processes -1", "compute: -processes is -1, want 1 to 64"},
		{"-rate 0", "compute: -rate is 0, want more than 0 and at most 100000"},
		{"-rate NaN", "compute: -rate is NaN, want more than 0 and at most 100000"},
		{"-rate 1e9", "compute: -rate is 1e+09, want more than 0 and at most 100000"},
		{"-duration -1s", "compute: -duration is -1s, want 0 or more"},
		{"-restart -1s", "compute: -restart is -1s, want 0 or more"},
		{"-compress zstd", `compute: -compress is "zstd", want gzip or nothing`},
		{"-duration 3", `compute: invalid value "3" for flag -duration: parse error`},
		{"-colour", "compute: flag provided but not defined: -colour"},
		{"now", `compute: unexpected arguments ["now"]`},
	}
	for _, test := range tests {
		err := run(t.Context(), strings.Fields(test.args), io.Discard, io.Discard)
		if _, ok := errors.AsType[*usageError](err); !ok || err.Error() != test.want {
			t.Errorf("%s\n got %v\nwant %s", test.args, err, test.want)
		}
	}
	var help bytes.Buffer
	err := run(t.Context(), []string{"-h"}, &help, io.Discard)
	if !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-duration") {
		t.Errorf("-h gives %v and prints %q", err, &help)
	}
}
