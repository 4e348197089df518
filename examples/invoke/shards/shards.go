// Package shards says which executor owns which shard, and moves shards from one to another.
package shards

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"

	"github.com/otelproto/otelproto-go/broadcast"
)

// Of is the shard, of so many, that a worker belongs to.
func Of(worker string, shards int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(worker))
	return int(h.Sum32() % uint32(shards))
}

// A Host is an executor, as far as shards are concerned.
type Host interface {
	// Address is where callers reach it.
	Address() string
	// Acquire makes it the owner of a shard and returns the epoch, higher than all before.
	Acquire(shard int) (epoch uint64, err error)
	// Release makes it give up a shard. Its callers who wait there learn of it at once.
	Release(shard int)
}

// A Route is where a shard is, in one epoch.
type Route struct {
	Address string
	Epoch   uint64
}

// A Manager is the one who assigns shards. Its methods may be called from any goroutine.
type Manager struct {
	hosts   []Host
	routes  []atomic.Pointer[Route]
	waiters broadcast.Waiters[int, Route] // by shard

	// mu guards owners, and makes moves come one after the other.
	mu     sync.Mutex
	owners []int
}

// New spreads so many shards over the hosts.
func New(shards int, hosts []Host) (*Manager, error) {
	m := &Manager{hosts: hosts, routes: make([]atomic.Pointer[Route], shards), owners: make([]int, shards)}
	for shard := range shards {
		m.owners[shard] = shard % len(hosts)
		if err := m.assign(shard, m.owners[shard]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Move gives a shard to another host, or to the same anew. In order, the old owner gives it up before the new one takes it. Not
// in order, as when an owner is unreachable and its lease has run out, the new one takes it first, and for a while both believe
// that it is theirs.
func (m *Manager) Move(shard, to int, inOrder bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := m.owners[shard]
	if from == to {
		inOrder = true // one host can't be of two minds
	}
	if inOrder {
		m.hosts[from].Release(shard)
	}
	if err := m.assign(shard, to); err != nil {
		return err
	}
	m.owners[shard] = to
	if !inOrder {
		m.hosts[from].Release(shard)
	}
	return nil
}

// Route returns where the shard is in an epoch after the given one, and waits for that if need be: 0 for a first call, and then
// the epoch in which the shard wasn't there any more.
func (m *Manager) Route(ctx context.Context, shard int, after uint64) (Route, error) {
	check := func(context.Context) (Route, bool, error) {
		route := m.routes[shard].Load()
		return *route, route.Epoch > after, nil
	}
	for {
		if route, ok, _ := check(ctx); ok {
			return route, nil // the usual case registers nobody
		}
		// A route is stored, and used, before it is announced: what wakes us may be the announcement of the one that we come from.
		route, err := m.waiters.Await(ctx, shard, check)
		if err != nil || route.Epoch > after {
			return route, err
		}
	}
}

func (m *Manager) assign(shard, to int) error {
	epoch, err := m.hosts[to].Acquire(shard)
	if err != nil {
		return err
	}
	route := Route{Address: m.hosts[to].Address(), Epoch: epoch}
	m.routes[shard].Store(&route) // before it is announced
	m.waiters.Complete(shard, route)
	return nil
}
