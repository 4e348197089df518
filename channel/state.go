package channel

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/connectivity"
)

// State is a snapshot of one target.
type State struct {
	Target       string
	Closed       bool
	Connectivity connectivity.State // of the best current connection; Idle: none; Connecting: one is attempted; Shutdown: closed
	Generation   uint64             // of the newest current connection; 0: none
	Age          time.Duration      // of that connection
	Outstanding  int                // RPCs under way, on draining connections too
	Connections  []Connection       // by generation
	StreamLimit  int                // concurrent streams per connection that the server was seen to allow; 0: not known
	Attempts     int                // connection attempts since an RPC last succeeded
	NextAttempt  time.Time          // earliest time of the next; zero: at once
	LastFailure  error              // of a connection attempt, or a suspect RPC; nil: none yet
	FailedAt     time.Time          // when that was
}

// Connection is a snapshot of one generation.
type Connection struct {
	Generation   uint64
	Created      time.Time
	Connectivity connectivity.State
	Draining     bool
	Outstanding  int
	Suspects     int // suspect failures since the last success
}

// State returns a snapshot of the target.
func (c *Conn) State() State {
	if c.err != nil {
		return State{Target: c.target, Closed: true, Connectivity: connectivity.Shutdown, LastFailure: c.err}
	}
	s := c.core.Load().snapshot()
	if c.closed.Load() {
		s.Closed, s.Connectivity = true, connectivity.Shutdown
	}
	return s
}

// Snapshot returns a snapshot of every target, sorted by name. A target that
// was let go of and still drains is listed too.
func (c *Cache) Snapshot() []State {
	var all []State
	c.eachCore(func(co *core) { all = append(all, co.snapshot()) })
	slices.SortFunc(all, func(a, b State) int { return cmp.Compare(a.Target, b.Target) })
	return all
}

func (co *core) snapshot() State {
	co.mu.Lock()
	defer co.mu.Unlock()
	s := State{
		Target:       co.target,
		Closed:       co.closed.Load(),
		Connectivity: connectivity.Idle,
		StreamLimit:  int(co.limit),
		Attempts:     co.attempts,
		NextAttempt:  co.next,
		LastFailure:  co.failure,
		FailedAt:     co.failedAt,
	}
	if co.connecting != nil {
		s.Connectivity = connectivity.Connecting
	}
	best := -1
	for g := range co.all {
		n := Connection{
			Generation:   g.id,
			Created:      g.created,
			Connectivity: g.cc.GetState(),
			Draining:     g.draining(),
			Outstanding:  int(g.outstanding()),
			Suspects:     int(g.suspects.Load()),
		}
		s.Outstanding += n.Outstanding
		s.Connections = append(s.Connections, n)
		if !co.currentLocked(g) {
			continue
		}
		if n.Generation > s.Generation {
			s.Generation, s.Age = n.Generation, time.Since(n.Created)
		}
		if r := rank(n.Connectivity); r > best {
			best, s.Connectivity = r, n.Connectivity
		}
	}
	if s.Closed {
		s.Connectivity = connectivity.Shutdown
	}
	slices.SortFunc(s.Connections, func(a, b Connection) int { return cmp.Compare(a.Generation, b.Generation) })
	return s
}

// rank orders states by how soon an RPC could run.
func rank(s connectivity.State) int {
	switch s {
	case connectivity.Ready:
		return 4
	case connectivity.Connecting:
		return 3
	case connectivity.Idle:
		return 2
	case connectivity.TransientFailure:
		return 1
	default:
		return 0
	}
}

// DebugSection gives the snapshot as a table, for the debug page of package
// stats/statshttp (WithSection) or another that takes the same.
func (c *Cache) DebugSection() (title string, columns []string, rows [][]any) {
	return "Channels", debugColumns(), debugRows(c.Snapshot())
}

// DebugSection gives the state as a table, as Cache.DebugSection does.
func (c *Conn) DebugSection() (title string, columns []string, rows [][]any) {
	return "Channel", debugColumns(), debugRows([]State{c.State()})
}

func debugColumns() []string {
	return []string{"Target", "State", "Generation", "Age", "Outstanding", "Connections", "Draining", "Last failure", "Next attempt"}
}

func debugRows(states []State) [][]any {
	rows := make([][]any, 0, len(states))
	for _, s := range states {
		draining := 0
		for _, n := range s.Connections {
			if n.Draining {
				draining++
			}
		}
		failure, next := "", ""
		if s.LastFailure != nil {
			failure = fmt.Sprintf("%v ago: %v", time.Since(s.FailedAt).Round(time.Millisecond), s.LastFailure)
		}
		if wait := time.Until(s.NextAttempt); wait > 0 {
			next = "in " + wait.Round(time.Millisecond).String()
		}
		rows = append(rows, []any{
			s.Target, s.Connectivity.String(), s.Generation, s.Age.Round(time.Millisecond),
			s.Outstanding, len(s.Connections) - draining, draining, failure, next,
		})
	}
	return rows
}
