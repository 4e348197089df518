package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/otelproto/otelproto-go/examples/compute/replica"
	"github.com/otelproto/otelproto-go/stats"
)

// A cluster is the replicas that run, by name.
type cluster struct {
	telemetry *telemetry
	processes int

	// mu guards what follows. Nothing is started or stopped while it is held.
	mu      sync.Mutex
	running map[string]*replica.Replica
	names   map[string]string // of processes that run or ran, by address
}

func newCluster(t *telemetry, processes int) *cluster {
	return &cluster{
		telemetry: t,
		processes: processes,
		running:   make(map[string]*replica.Replica),
		names:     make(map[string]string),
	}
}

// start starts a replica and returns its addresses.
func (c *cluster) start(name string) ([]string, error) {
	r, err := replica.Start(name, c.processes, func(process int) replica.Options {
		return replica.Options{Server: c.telemetry.serverOptions(name, process), Listener: c.telemetry.replicas.Listener}
	})
	if err != nil {
		return nil, fmt.Errorf("compute: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[name] = r
	for process, address := range r.Addresses() {
		c.names[address] = fmt.Sprintf("%s/%d", name, process)
	}
	return r.Addresses(), nil
}

// stop stops a replica as if it had crashed.
func (c *cluster) stop(name string) error {
	c.mu.Lock()
	r := c.running[name]
	delete(c.running, name)
	c.mu.Unlock()
	if r == nil {
		return nil
	}
	if err := r.Stop(); err != nil {
		return fmt.Errorf("compute: %w", err)
	}
	return nil
}

func (c *cluster) stopAll() error {
	c.mu.Lock()
	names := slices.Collect(maps.Keys(c.running))
	c.mu.Unlock()
	errs := make([]error, 0, len(names))
	for _, name := range names {
		errs = append(errs, c.stop(name))
	}
	return errors.Join(errs...)
}

// name is what to call a connection of the controller: the replica and process at its other end.
func (c *cluster) name(conn stats.ConnSnapshot) string {
	if conn.Info.Remote == nil {
		return conn.Info.Authority
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	address := conn.Info.Remote.String()
	if name, ok := c.names[address]; ok {
		return name
	}
	return address
}
