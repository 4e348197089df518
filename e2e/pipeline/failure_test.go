package pipeline_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/otelproto/otelproto-go/e2e/pipeline"
)

// await polls until f is true.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	deadline := time.After(20 * time.Second)

	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("not within 20 s: ", what)
		}
	}
}

// arriving waits until the backend has something of a program.
func arriving(t *testing.T, b *pipeline.Backend, c *computing) {
	t.Helper()

	await(t, "something of the program is in the backend", func() bool {
		got, err := ofBackend(t.Context(), b, c.instance)

		return err == nil && len(got) > 0
	})
}

func TestCollectorThatStartsAfterTheProgram(t *testing.T) {
	b := backend(t)

	t.Parallel()

	a := address(t, b)
	program := compute(t, 5*time.Second, "http://"+a.HTTP, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
	startCollector(t, a)
	arrives(t, b, program.instance, program.report(t, 20*time.Second))
}

func TestCollectorThatIsKilledAndComesBack(t *testing.T) {
	b := backend(t)

	t.Parallel()

	for name, protocol := range map[string]string{"grpc": "grpc", "http": "http/protobuf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			a := address(t, b)
			first := startCollector(t, a)
			endpoint := map[string]string{"grpc": a.GRPC, "http": a.HTTP}[name]
			program := compute(t, 8*time.Second, "http://"+endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol)

			arriving(t, b, program)
			first.Kill()
			startCollector(t, a)
			arrives(t, b, program.instance, program.report(t, 20*time.Second))
		})
	}
}

func TestCollectorThatIsNeverThereDoesNotHoldTheProgramUp(t *testing.T) {
	backend(t)
	t.Parallel()

	program := compute(t, 2*time.Second, "http://"+free(t), "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")

	// Its own time, that of the last export, which it gives up after five seconds, and some for a busy machine.
	err := program.wait(20 * time.Second)

	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(program.errors.String(), "connection refused") {
		t.Errorf("%v, expected that the program says what it couldn't export: %s", err, &program.errors)
	}

	program.counted(t)
}

func TestBackendThatIsKilledAndComesBack(t *testing.T) {
	backend(t)
	t.Parallel()

	dir, addr := t.TempDir(), free(t)

	first, err := pipeline.StartBackend(t.Context(), dir, addr)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(first.Stop)

	a := address(t, first)
	startCollector(t, a)

	program := compute(t, 8*time.Second, "http://"+a.HTTP, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
	arriving(t, first, program)
	first.Kill()

	second, err := pipeline.StartBackend(t.Context(), dir, addr)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(second.Stop)
	arrives(t, second, program.instance, program.report(t, 20*time.Second))
}

func TestCollectorThatRefuses(t *testing.T) {
	b := backend(t)

	t.Parallel()

	for name, status := range map[string]int{
		"too many requests": http.StatusTooManyRequests, "unavailable": http.StatusServiceUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			a := address(t, b)
			startCollector(t, a)

			var requests atomic.Int32

			next := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: a.HTTP})
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) <= 3 {
					w.WriteHeader(status)

					return
				}

				next.ServeHTTP(w, r)
			}))

			t.Cleanup(proxy.Close)

			program := compute(t, 6*time.Second, proxy.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf")
			arrives(t, b, program.instance, program.report(t, 20*time.Second))

			if n := requests.Load(); n <= 3 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestPortThatIsTakenSaysWhatToDo(t *testing.T) {
	b := backend(t)

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()

	a := address(t, b)
	a.GRPC = lis.Addr().String()

	_, collectorErr := pipeline.StartCollector(t.Context(), t.TempDir(), a)
	_, backendErr := pipeline.StartBackend(t.Context(), t.TempDir(), a.GRPC)

	for what, err := range map[string]error{"collector": collectorErr, "backend": backendErr} {
		if want := a.GRPC + " is taken: end what listens there"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", what, err, want)
		}
	}
}
