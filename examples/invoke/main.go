// Command invoke is executors of workers and their callers, who wait for the outcomes of what they invoke and lose none: not when
// they lag behind a broadcast with a window of one event, and not when a worker's shard moves to another executor meanwhile.
//
//	go run -C examples ./invoke -calls 100000 -completion topic -window 1 -chaos
//
// It prints what became of the calls and what went over the wire, and exits with 1 if any outcome was lost.
//
// Where to look: run.go puts the parts together. Package executor is the point, and its documentation says what the order of
// things has to be; journal, component and shards are what it relies on, and caller is who finds out whether it's true.
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
	err := run(ctx, os.Args[1:], os.Stdout)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if _, ok := errors.AsType[*usageError](err); ok {
		os.Exit(2)
	}
	os.Exit(1)
}
