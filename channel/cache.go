package channel

import (
	"sync"
	"sync/atomic"
)

// Cache holds one Conn per target. It is safe for concurrent use.
type Cache struct {
	cfg  *config
	inst *instruments

	// clock orders the uses of handles; see touch.
	clock atomic.Uint64

	// handles is read without a lock.
	handles *table

	// mu guards what follows, and writes of handles and of the core of each
	// handle. Cores are never given up or closed under it, since they call
	// back.
	mu     sync.Mutex
	closed bool
	cores  map[*core]struct{} // all that may have connections
}

// NewCache returns a cache without targets. It fails if an option or a dial
// option can't be used. Close it.
func NewCache(opts ...Option) (*Cache, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	c := &Cache{cfg: cfg, handles: newTable(), cores: make(map[*core]struct{})}
	c.clock.Store(1) // so that a new handle, at 0, isn't the most recent
	c.inst, err = newInstruments(cfg.provider, c.eachCore)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Conn returns the handle on target, the same for everybody who asks. It does
// no I/O. If target can't be used, or the cache is closed, the handle's every
// use reports it, and the cache doesn't keep it.
func (c *Cache) Conn(target string) *Conn {
	if h := c.handles.get(target); h != nil && !h.closed.Load() {
		c.touch(h)
		return h
	}
	return c.add(target)
}

// Forget lets go of target: its connections take no more RPCs and are closed
// when those under way have ended. Handles stay usable; the next RPC dials
// again.
func (c *Cache) Forget(target string) {
	c.mu.Lock()
	h := c.handles.get(target)
	if h == nil {
		c.mu.Unlock()
		return
	}
	c.handles.remove(h)
	co := h.core.Load()
	c.mu.Unlock()
	co.giveUp(reasonForgotten, false)
}

// Retain forgets every target that isn't listed.
func (c *Cache) Retain(targets ...string) {
	keep := make(map[string]struct{}, len(targets))
	for _, t := range targets {
		keep[t] = struct{}{}
	}
	var others []*core
	c.mu.Lock()
	for h := range c.handles.all() {
		if _, ok := keep[h.target]; !ok {
			c.handles.remove(h)
			others = append(others, h.core.Load())
		}
	}
	c.mu.Unlock()
	for _, co := range others {
		co.giveUp(reasonForgotten, false)
	}
}

// Close ends all RPCs and connections, draining ones included, and waits for
// the goroutines. It is idempotent. What is used afterwards reports ErrClosed.
func (c *Cache) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	for h := range c.handles.all() {
		c.handles.remove(h)
	}
	cores := make([]*core, 0, len(c.cores))
	for co := range c.cores {
		cores = append(cores, co)
	}
	c.mu.Unlock()
	for _, co := range cores {
		co.giveUp(reasonClosed, true)
	}
	for _, co := range cores {
		co.wg.Wait()
	}
	if first {
		return c.inst.close()
	}
	return nil
}

// touch makes h the most recently used. While it is that already, as in a
// loop over one target, nothing is written.
func (c *Cache) touch(h *Conn) {
	if h.used.Load() != c.clock.Load() {
		h.used.Store(c.clock.Add(1))
	}
}

func (c *Cache) add(target string) *Conn {
	h := &Conn{target: target, hash: c.handles.hash(target), cache: c, cfg: c.cfg, inst: c.inst}
	if err := checkTarget(target, c.cfg); err != nil {
		h.err = err
		return h
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		h.err = &closedError{target}
		return h
	}
	if other := c.handles.get(target); other != nil && !other.closed.Load() {
		c.mu.Unlock()
		c.touch(other)
		return other
	}
	h.core.Store(c.newCoreLocked(target))
	victims := c.insertLocked(h)
	c.mu.Unlock()
	for _, v := range victims {
		v.giveUp(reasonMaxTargets, false)
	}
	return h
}

// insertLocked adds a handle and returns the cores of those that had to go.
func (c *Cache) insertLocked(h *Conn) []*core {
	c.touch(h)
	c.handles.put(h)
	var victims []*core
	for c.cfg.maxTargets > 0 && c.handles.size > c.cfg.maxTargets {
		victim := c.oldestLocked(h)
		c.handles.remove(victim)
		victims = append(victims, victim.core.Load())
	}
	return victims
}

func (c *Cache) oldestLocked(not *Conn) *Conn {
	var oldest *Conn
	for h := range c.handles.all() {
		if h != not && (oldest == nil || h.used.Load() < oldest.used.Load()) {
			oldest = h
		}
	}
	return oldest
}

func (c *Cache) newCoreLocked(target string) *core {
	co := newCore(c.cfg, target, c.inst, 0, hooks{c.idled, c.emptied})
	c.cores[co] = struct{}{}
	return co
}

// readmit gives a handle whose core was given up the core of its target,
// which may stand again by another handle, or comes back into the cache.
func (c *Cache) readmit(h *Conn, old *core) error {
	c.mu.Lock()
	if c.closed || h.closed.Load() {
		c.mu.Unlock()
		return &closedError{h.target}
	}
	if h.core.Load() != old {
		c.mu.Unlock()
		return nil
	}
	var victims []*core
	cur := c.handles.get(h.target)
	if cur == nil || cur.closed.Load() {
		cur = h
		victims = c.insertLocked(h)
	}
	if co := cur.core.Load(); co.isGone() {
		cur.core.Store(c.newCoreLocked(h.target))
	}
	h.core.Store(cur.core.Load())
	c.mu.Unlock()
	for _, v := range victims {
		v.giveUp(reasonMaxTargets, false)
	}
	return nil
}

func (c *Cache) remove(h *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handles.remove(h)
}

// idled takes an idle target out, unless its handle got another core.
func (c *Cache) idled(co *core) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.handles.get(co.target); h != nil && h.core.Load() == co {
		c.handles.remove(h)
	}
}

func (c *Cache) emptied(co *core) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cores, co)
}

func (c *Cache) eachCore(yield func(*core)) {
	c.mu.Lock()
	cores := make([]*core, 0, len(c.cores))
	for co := range c.cores {
		cores = append(cores, co)
	}
	c.mu.Unlock()
	for _, co := range cores {
		yield(co)
	}
}
