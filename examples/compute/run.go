package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/otelproto/otelproto-go/examples/compute/controller"
	"github.com/otelproto/otelproto-go/examples/compute/workload"
)

// run is the whole program. It returns when the duration has passed or ctx ends, and nothing of it is left then.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	c, err := parse(args, stdout)
	if err != nil {
		return err
	}
	t, err := newTelemetry(ctx, c.export)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.shutdown(ctx)) }()
	replicas := newCluster(t, c.processes)
	defer func() { err = errors.Join(err, replicas.stopAll()) }()

	page, err := servePage(ctx, c.debugAddr, t.controller)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.close()) }()
	display, err := newDisplay(t, replicas, page, stdout, stderr, c.json)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, display.close()) }()
	instance := controller.New(controller.Options{
		Name: "main",
		DialOptions: func(replica string, process int) []grpc.DialOption {
			return append(t.dialOptions(replica, process), grpc.WithTransportCredentials(insecure.NewCredentials()))
		},
		CallOptions:  c.callOptions(),
		OnDisconnect: func(_ string, err error) { display.event(err.Error()) },
	})
	defer instance.Close()
	if t.provider != nil {
		// The registration ends with the provider, after the last export.
		if _, err := instance.Observe(t.provider); err != nil {
			return fmt.Errorf("compute: %w", err)
		}
	}
	if err := operate(ctx, c, instance, replicas, display); err != nil {
		return err
	}
	// What was sent has arrived now, and the connections are still there to be shown and exported.
	cut := instance.Shutdown()
	return errors.Join(cut, display.final(instance), t.shutdown(ctx))
}

// operate starts the replicas and lets the workload use them until the duration has passed or ctx ends.
func operate(ctx context.Context, c config, instance *controller.Instance, replicas *cluster, display *display) error {
	if c.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.duration)
		defer cancel()
	}
	names := make([]string, c.replicas)
	for n := range names {
		names[n] = fmt.Sprintf("r%d", n+1)
		if err := begin(names[n], instance, replicas); err != nil {
			return err
		}
	}
	users := workload.New(instance, c.rate, c.seed)
	if err := users.SetUp(); err != nil {
		return fmt.Errorf("compute: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return users.Run(ctx) })
	group.Go(func() error { return display.run(ctx, instance) })
	group.Go(func() error { return restart(ctx, c.restart, names, instance, replicas, display) })
	return group.Wait()
}

// begin starts a replica and lets the instance know, which forgets an earlier one of that name.
func begin(name string, instance *controller.Instance, replicas *cluster) error {
	addresses, err := replicas.start(name)
	if err != nil {
		return err
	}
	if err := instance.AddReplica(name, addresses); err != nil {
		return fmt.Errorf("compute: %w", err)
	}
	return nil
}

// restart lets one replica after the other crash and come back, at other addresses and with nothing in memory.
func restart(
	ctx context.Context, period time.Duration, names []string, instance *controller.Instance, replicas *cluster, display *display,
) error {
	if period == 0 {
		return nil
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			name := names[n%len(names)]
			display.event("compute: restarting " + name)
			if err := errors.Join(replicas.stop(name), begin(name, instance, replicas)); err != nil {
				return err
			}
		}
	}
}

func (c config) callOptions() []grpc.CallOption {
	if c.compress == "" {
		return nil
	}
	return []grpc.CallOption{grpc.UseCompressor(c.compress)}
}
