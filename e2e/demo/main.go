// Command demo brings up the whole pipeline on this machine: examples/compute under a load that changes, a small application with a
// channel and a broadcast, a collector, and a backend with the dashboards. It prints one URL. Ctrl-C ends everything that it started.
//
//	make demo
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/otelproto/otelproto-go/e2e/pipeline"
)

func main() {
	var a addresses

	flag.StringVar(&a.backend, "backend", "127.0.0.1:8428", "where the backend listens")
	flag.StringVar(&a.grpc, "otlp-grpc", "127.0.0.1:4317", "where the collector listens for OTLP by gRPC")
	flag.StringVar(&a.http, "otlp-http", "127.0.0.1:4318", "where the collector listens for OTLP by HTTP")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, a, os.Stdout)

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type addresses struct{ backend, grpc, http string }

// checkFree says what to do if an address is taken, before anything is built or started.
func (a addresses) checkFree() error {
	var errs []error

	for _, l := range []struct{ flag, addr string }{{"-backend", a.backend}, {"-otlp-grpc", a.grpc}, {"-otlp-http", a.http}} {
		if pipeline.CheckFree(l.addr) != nil {
			errs = append(errs, fmt.Errorf(
				"demo: %s is taken: end what listens there, or choose another address: make demo ARGS='%s 127.0.0.1:PORT'", l.addr, l.flag))
		}
	}

	return errors.Join(errs...)
}

// load is one run of examples/compute. They follow each other round and round, so that the panels have something to show.
type load struct {
	rate, compress string
	restart        time.Duration
}

// Every run has connections of its own, two and those after a restart. Of those in five minutes, which the page shows, there are
// fewer than the twenty lines that it draws in a panel.
const loadPeriod = time.Minute

func loads() []load {
	return []load{{rate: "60"}, {rate: "300"}, {rate: "150", compress: "gzip"}, {rate: "100", restart: 25 * time.Second}}
}

// run runs the demo until ctx ends, or until something of it ends by itself.
func run(ctx context.Context, a addresses, out io.Writer) error {
	if err := a.checkFree(); err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "otelproto-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	fmt.Fprintln(out, "building what isn't there yet ...")

	compute, err := pipeline.Compute(ctx, dir)
	if err != nil {
		return err
	}

	backend, err := pipeline.StartBackend(ctx, dir, a.backend)
	if err != nil {
		return err
	}
	defer backend.Stop()

	collector, err := pipeline.StartCollector(ctx, dir, pipeline.CollectorAddr{GRPC: a.grpc, HTTP: a.http, Backend: backend.URL})
	if err != nil {
		return err
	}
	defer collector.Stop()

	traffic, err := startTraffic(ctx, a.grpc)
	if err != nil {
		return err
	}
	defer traffic.stop()

	fmt.Fprintf(out, "\n    %s\n\nThe first panels fill within half a minute. Ctrl-C ends everything.\n", page(backend))

	for n := 0; ; n++ {
		ended, err := runLoad(ctx, dir, compute, "http://"+a.grpc, n, backend.Process, collector)
		if ended || err != nil {
			return err
		}
	}
}

// page is what to look at.
func page(b *pipeline.Backend) string {
	return b.URL + "/vmui/?#/dashboards?g0.range_input=5m&g0.relative_time=last_5_minutes"
}

// runLoad runs the nth load and returns when its time is over, or with ended or an error when the demo is.
func runLoad(
	ctx context.Context, dir, compute, endpoint string, n int, others ...*pipeline.Process,
) (ended bool, err error) {
	l := loads()[n%len(loads())]

	p, err := pipeline.Start(dir, "compute", compute, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_METRIC_EXPORT_INTERVAL=1000",
		fmt.Sprint("OTEL_RESOURCE_ATTRIBUTES=service.instance.id=run-", n),
	}, "-duration="+loadPeriod.String(), "-processes=1", "-debug-addr=",
		"-rate="+l.rate, "-compress="+l.compress, "-restart="+l.restart.String())
	if err != nil {
		return false, err
	}
	defer p.Stop()

	select {
	case <-ctx.Done():
		return true, nil
	case <-p.Ended():
		return false, p.Err()
	case <-others[0].Ended():
		return false, fmt.Errorf("demo: the backend ended:\n%s", others[0].Log())
	case <-others[1].Ended():
		return false, fmt.Errorf("demo: the collector ended:\n%s", others[1].Log())
	}
}
