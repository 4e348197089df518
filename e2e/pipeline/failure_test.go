package pipeline_test

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/otelproto/otelproto-go/e2e/pipeline"
)

// await polls until f is true.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()

	tick := time.NewTicker(50 * time.Millisecond)
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

// givesUp lets an export fail after a second, so that a test needn't wait for long. What it had is in the next one.
const givesUp = "OTEL_METRIC_EXPORT_TIMEOUT=1000"

// kinds is how many messages compute tells apart, by direction, type and variant.
const kinds = 15

// arriving waits until the backend has each kind of a program's messages, and more of them than before, and gives how many.
func arriving(t *testing.T, b *pipeline.Backend, c *computing, before uint64) (n uint64) {
	t.Helper()

	of := ""
	if c.instance != "" {
		of = fmt.Sprintf(",%s=%q", b.Instance, c.instance)
	}

	query := "sum by (network_io_direction, otelproto_message_type, otelproto_message_variant) " +
		`(last_over_time({__name__=~"otelproto_(client|server)_message_size_bytes_count"` + of + `}[1h]))`

	await(t, "more of the program is in the backend", func() bool {
		samples, err := b.Query(t.Context(), query)
		n = 0

		for _, s := range samples {
			n += uint64(s.Value)
		}

		return err == nil && len(samples) >= kinds && n > before
	})

	return n
}

// failing waits until the program says that two more exports failed.
func failing(t *testing.T, c *computing) {
	t.Helper()

	said := func() int { return strings.Count(c.errors.String(), "failed to upload metrics") }
	before := said()

	await(t, "the program says that it can't export", func() bool { return said() >= before+2 })
}

func TestCollectorThatStartsAfterTheProgram(t *testing.T) {
	b := backend(t)

	t.Parallel()

	a := address(t, b)
	program := compute(t, "http://"+a.HTTP, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", givesUp)
	failing(t, program)
	startCollector(t, a)
	arriving(t, b, program, 0)
	arrives(t, b, program.instance, program.report(t))
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
			program := compute(t, "http://"+endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol, givesUp)

			arriving(t, b, program, 0)
			first.Kill()
			failing(t, program)

			before := arriving(t, b, program, 0) // what it forwarded until its end

			startCollector(t, a)
			arriving(t, b, program, before)
			arrives(t, b, program.instance, program.report(t))
		})
	}
}

func TestCollectorThatIsNeverThereDoesNotHoldTheProgramUp(t *testing.T) {
	backend(t)
	t.Parallel()

	program := compute(t, "http://"+free(t), "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", givesUp)
	failing(t, program)

	// The time of the last export, which it gives up after five seconds, and some for a busy machine.
	err := program.end()

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

	program := compute(t, "http://"+a.HTTP, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", givesUp)
	before := arriving(t, first, program, 0)
	first.Kill()
	failing(t, program)

	second, err := pipeline.StartBackend(t.Context(), dir, addr)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(second.Stop)
	arriving(t, second, program, before)
	arrives(t, second, program.instance, program.report(t))
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
