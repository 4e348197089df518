package shards_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/otelproto/otelproto-go/examples/invoke/shards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A log is what was asked of all hosts, and the epoch that they share.
type log struct {
	epoch uint64
	calls []string
}

type host struct {
	name string
	log  *log
	err  error
}

func (h *host) Address() string { return h.name }

func (h *host) Acquire(shard int) (uint64, error) {
	h.log.calls = append(h.log.calls, fmt.Sprintf("%s takes %d", h.name, shard))
	h.log.epoch++
	return h.log.epoch, h.err
}

func (h *host) Release(shard int) {
	h.log.calls = append(h.log.calls, fmt.Sprintf("%s leaves %d", h.name, shard))
}

// pair is a manager of two shards on hosts a and b.
func pair(t *testing.T) (*shards.Manager, *log, *host) {
	t.Helper()
	l := &log{}
	b := &host{name: "b", log: l}
	m, err := shards.New(2, []shards.Host{&host{name: "a", log: l}, b})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a takes 0", "b takes 1"}, l.calls); diff != "" {
		t.Error(diff)
	}
	l.calls = nil
	return m, l, b
}

func TestAWorkerBelongsToOneShardAndAllShardsHaveSome(t *testing.T) {
	members := make([]int, 16)
	for n := range 1000 {
		name := fmt.Sprintf("worker-%d", n)
		members[shards.Of(name, 16)]++
		if shards.Of(name, 16) != shards.Of(name, 16) { //nolint:staticcheck // the same twice is the point
			t.Fatal(name)
		}
	}
	if slices.Min(members) == 0 {
		t.Error(members)
	}
}

func TestAShardMovesInOrderOrOutOfOrder(t *testing.T) {
	m, l, _ := pair(t)
	for _, move := range []struct {
		to      int
		inOrder bool
	}{{1, true}, {0, false}, {0, false}} {
		if err := m.Move(0, move.to, move.inOrder); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"a leaves 0", "b takes 0", "a takes 0", "b leaves 0", "a leaves 0", "a takes 0"}
	if diff := cmp.Diff(want, l.calls); diff != "" {
		t.Error(diff)
	}
	route, err := m.Route(t.Context(), 0, 0)
	if diff := cmp.Diff(shards.Route{Address: "a", Epoch: 5}, route); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestWhoAsksForALaterEpochWaitsUntilTheShardHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _ := pair(t)
		type answer struct {
			route shards.Route
			err   error
		}
		answers := make(chan answer, 1)
		go func() {
			route, err := m.Route(t.Context(), 0, 1)
			answers <- answer{route, err}
		}()
		synctest.Wait()
		select {
		case a := <-answers:
			t.Fatalf("got %v before the shard moved", a)
		default:
		}
		if err := m.Move(0, 1, true); err != nil {
			t.Fatal(err)
		}
		if a := <-answers; a.err != nil || a.route != (shards.Route{Address: "b", Epoch: 3}) {
			t.Errorf("got %v", a)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.Route(ctx, 0, 3); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting under a context that has ended gives %v", err)
		}
	})
}

func TestAHostThatRefusesAShardIsAnError(t *testing.T) {
	m, _, b := pair(t)
	b.err = errors.New("full")
	if err := m.Move(0, 1, false); !errors.Is(err, b.err) {
		t.Errorf("Move gives %v", err)
	}
	if _, err := shards.New(2, []shards.Host{b}); !errors.Is(err, b.err) {
		t.Errorf("New gives %v", err)
	}
}
