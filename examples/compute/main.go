// Command compute is a controller and its replicas: every command and response goes over one bidirectional stream per replica
// process, as a oneof in an envelope, and otelproto says what takes the bandwidth.
//
//	go run -C examples ./compute -duration 3s
//
// Without a collector it prints a table, again and again on a terminal and otherwise once at the end. With
// OTEL_EXPORTER_OTLP_ENDPOINT, or another variable of go.opentelemetry.io/contrib/exporters/autoexport, it exports instead.
//
// Where to look: run.go puts the parts together, telemetry.go is all that it takes to measure, and packages controller, replica and
// workload are what is measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second interrupt ends it at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if _, ok := errors.AsType[*usageError](err); ok {
		os.Exit(2)
	}
	os.Exit(1)
}
