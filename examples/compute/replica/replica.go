package replica

import (
	"errors"
	"fmt"
)

// A Replica is a number of processes that do an instance's work together. Every replica of an instance does all of it.
type Replica struct {
	name      string
	processes []*Process
}

// Start starts a replica. The options of each of its processes come from options, which may be nil.
func Start(name string, processes int, options func(process int) Options) (*Replica, error) {
	if processes < 1 {
		return nil, fmt.Errorf("replica: %s has %d processes, want 1 or more", name, processes)
	}
	r := &Replica{name: name}
	for i := range processes {
		var o Options
		if options != nil {
			o = options(i)
		}
		p, err := StartProcess(o)
		if err != nil {
			return nil, errors.Join(err, r.Stop())
		}
		r.processes = append(r.processes, p)
	}
	return r, nil
}

// Name is the name that the replica was started with.
func (r *Replica) Name() string { return r.name }

// Addresses are where the processes listen, in order.
func (r *Replica) Addresses() []string {
	addresses := make([]string, len(r.processes))
	for i, p := range r.processes {
		addresses[i] = p.Address()
	}
	return addresses
}

// Stop ends all processes and their streams at once, and returns when they have ended. It must be called once.
func (r *Replica) Stop() error {
	errs := make([]error, 0, len(r.processes))
	for _, p := range r.processes {
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}
