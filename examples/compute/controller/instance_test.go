package controller_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
	"github.com/otelproto/otelproto-go/examples/compute/controller"
	"github.com/otelproto/otelproto-go/examples/compute/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newInstance returns an instance with a fast clock, which is closed when the test ends.
func newInstance(t *testing.T) *controller.Instance {
	t.Helper()
	i := controller.New(controller.Options{
		Tick: 2 * time.Millisecond,
		Lag:  1000, // so that no test has to hurry to read at the time that it has in hand
		DialOptions: func(string, int) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		},
	})
	t.Cleanup(i.Close)
	return i
}

// start starts a replica, connects the instance to it, and returns what stops it.
func start(t *testing.T, i *controller.Instance, name string, processes int) (stop func()) {
	t.Helper()
	r, err := replica.Start(name, processes, nil)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	if err := i.AddReplica(name, r.Addresses()); err != nil {
		t.Fatal(err)
	}
	return stop
}

func plan(exports ...*computepb.Export) *computepb.Dataflow {
	return &computepb.Dataflow{
		Name:    "table",
		Source:  &computepb.Generator{Seed: 1, Keys: 100, Period: 20, MinBytes: 8, MaxBytes: 80},
		Exports: exports,
	}
}

func index() *computepb.Export {
	return &computepb.Export{Kind: &computepb.Export_Index{Index: &computepb.Index{}}}
}

func subscription() *computepb.Export {
	return &computepb.Export{Kind: &computepb.Export_Subscribe{Subscribe: &computepb.Subscribe{}}}
}

func copyTo() *computepb.Export {
	return &computepb.Export{Kind: &computepb.Export_CopyTo{CopyTo: &computepb.CopyTo{Uri: "mem://copy"}}}
}

func install(t *testing.T, i *controller.Instance, d *computepb.Dataflow) []uint64 {
	t.Helper()
	ids, err := i.Install(d)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func initialize(t *testing.T, i *controller.Instance) {
	t.Helper()
	if err := i.Initialize(); err != nil {
		t.Fatal(err)
	}
}

// newest waits until the collection is complete now, and returns the newest time that it can be read at.
func newest(t *testing.T, i *controller.Instance, id uint64) uint64 {
	t.Helper()
	if err := i.AwaitUpper(t.Context(), id, i.Now()+1); err != nil {
		t.Fatal(err)
	}
	upper, _ := i.Upper(id)
	return upper - 1
}

func peek(t *testing.T, i *controller.Instance, id, at uint64) []*computepb.Row {
	t.Helper()
	rows, err := i.Peek(t.Context(), controller.Peek{Collection: id, Timestamp: at, EndKey: math.MaxUint64})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// rowsAt returns the rows that a single worker of its own computes.
func rowsAt(t *testing.T, d *computepb.Dataflow, at uint64) []*computepb.Row {
	t.Helper()
	w := replica.NewWorker()
	d = &computepb.Dataflow{Id: 1, AsOf: at, Source: d.GetSource(), Operators: d.GetOperators(), Exports: []*computepb.Export{index()}}
	commands := []*computepb.ComputeCommand{
		{Kind: &computepb.ComputeCommand_CreateTimely{CreateTimely: &computepb.CreateTimely{Processes: 1}}},
		{Kind: &computepb.ComputeCommand_CreateInstance{CreateInstance: &computepb.CreateInstance{TickNanos: 1}}},
		{Kind: &computepb.ComputeCommand_CreateDataflow{CreateDataflow: &computepb.CreateDataflow{Dataflow: d}}},
		{Kind: &computepb.ComputeCommand_Schedule{Schedule: &computepb.Schedule{Dataflow: 1}}},
		{Kind: &computepb.ComputeCommand_Peek{Peek: &computepb.Peek{Timestamp: at, EndKey: math.MaxUint64}}},
		{Kind: &computepb.ComputeCommand_InitializationComplete{InitializationComplete: &computepb.InitializationComplete{}}},
	}
	for _, c := range commands {
		if _, err := w.Handle(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range w.Advance(at + 1) {
		if rows := r.GetPeekResponse().GetRows(); rows != nil {
			return rows.GetRows()
		}
	}
	t.Fatal("no answer")
	return nil
}

// diffRows is "" if the rows are the same. (Comparing messages by reflection takes most of a test's time.)
func diffRows(want, got []*computepb.Row) string {
	same := func(a, b *computepb.Row) bool {
		return a.GetKey() == b.GetKey() && bytes.Equal(a.GetValue(), b.GetValue())
	}
	if slices.EqualFunc(want, got, same) {
		return ""
	}
	return cmp.Diff(want, got, protocmp.Transform())
}

func TestAPeekIsAnsweredFromAllProcesses(t *testing.T) {
	i := newInstance(t)
	start(t, i, "r1", 3)
	start(t, i, "r2", 2)
	d := plan(index())
	ids := install(t, i, d)
	initialize(t, i)
	for range 20 {
		at := newest(t, i, ids[0])
		if diff := diffRows(rowsAt(t, d, at), peek(t, i, ids[0], at)); diff != "" {
			t.Fatalf("rows at %d (-computed alone +answered):\n%s", at, diff)
		}
	}
}

func TestAPeekEndsWithItsContext(t *testing.T) {
	i := newInstance(t)
	start(t, i, "r1", 2)
	id := install(t, i, plan(index()))[0]
	initialize(t, i)
	at := newest(t, i, id)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Millisecond, errors.New("lost patience"))
	defer cancel()
	_, err := i.Peek(ctx, controller.Peek{Collection: id, Timestamp: at + 1_000_000})
	if err == nil || err.Error() != "controller: peek: lost patience" {
		t.Errorf("got %v", err)
	}
	until(t, i, "both processes cancel the peek", func(s controller.Stats) bool {
		return s.Counts.PeekCanceled == 2 && s.Counts.PeekLate == 2 && s.Peeks == 0
	})
}

// until waits for the instance's figures to fit.
func until(t *testing.T, i *controller.Instance, what string, fit func(controller.Stats) bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !fit(i.Stats()) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within a minute: %+v", what, i.Stats())
		}
	}
}

func TestAReplicaRefusesWithAReason(t *testing.T) {
	i := newInstance(t)
	start(t, i, "r1", 2)
	id := install(t, i, plan(index()))[0]
	initialize(t, i)
	newest(t, i, id)
	if err := i.Configure(map[string]string{replica.MaxResultBytes: "100"}); err != nil {
		t.Fatal(err)
	}
	_, err := i.Peek(t.Context(), controller.Peek{Collection: id, Timestamp: newest(t, i, id), EndKey: 1000})
	if _, ok := errors.AsType[*controller.PeekError](err); !ok {
		t.Errorf("got %v, want a *PeekError", err)
	}
	if _, err := i.Peek(t.Context(), controller.Peek{Collection: id + 50}); err == nil {
		t.Error("a collection that there isn't can be peeked at")
	}
}

func TestAnIndexForgetsTheTimesThatNobodyReads(t *testing.T) {
	i := controller.New(controller.Options{
		Tick: 2 * time.Millisecond,
		Lag:  5,
		DialOptions: func(string, int) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		},
	})
	t.Cleanup(i.Close)
	start(t, i, "r1", 2)
	id := install(t, i, plan(index()))[0]
	first := i.Now()
	initialize(t, i)
	if err := i.AwaitUpper(t.Context(), id, first+100); err != nil {
		t.Fatal(err)
	}
	_, err := i.Peek(t.Context(), controller.Peek{Collection: id, Timestamp: first, EndKey: 1000})
	if refused, ok := errors.AsType[*controller.PeekError](err); !ok || !strings.Contains(refused.Message, "compacted") {
		t.Errorf("got %v, want a *PeekError that says it's compacted", err)
	}
}

func TestACopyIsTheWholeWhoeverWritesIt(t *testing.T) {
	var digests []uint64
	for _, processes := range []int{1, 3} {
		i := newInstance(t)
		start(t, i, "r1", processes)
		d := plan(copyTo())
		d.Source.Period = 1 << 20 // so that the time of the copy makes no difference
		id := install(t, i, d)[0]
		initialize(t, i)
		result, err := i.AwaitCopy(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if result.GetRows() != 100 {
			t.Errorf("%d rows are copied, want 100", result.GetRows())
		}
		digests = append(digests, result.GetDigest())
		if err := i.Drop(id); err != nil {
			t.Error(err)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("one process and three write different copies: %x", digests)
	}
}

// follow reads a subscription up to the time, checks that it has no gap and nothing twice, and returns the rows that it amounts to.
func follow(t *testing.T, i *controller.Instance, id uint64, rows map[uint64]string, from, to uint64) uint64 {
	t.Helper()
	for from < to {
		batch, err := i.Next(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if batch.GetLower() != from || batch.GetUpper() <= from {
			t.Fatalf("batch [%d, %d) follows %d", batch.GetLower(), batch.GetUpper(), from)
		}
		from = batch.GetUpper()
		seen := make(map[[2]uint64]bool)
		for _, u := range batch.GetUpdates() {
			at := [2]uint64{u.GetTime(), u.GetRow().GetKey()}
			if seen[at] || u.GetTime() < batch.GetLower() || u.GetTime() >= batch.GetUpper() {
				t.Fatalf("update %v comes twice or is not of [%d, %d)", at, batch.GetLower(), batch.GetUpper())
			}
			seen[at] = true
			rows[u.GetRow().GetKey()] = string(u.GetRow().GetValue())
		}
	}
	return from
}

func TestASubscriptionHasNoGapAndNothingTwiceWhileReplicasComeAndGo(t *testing.T) {
	i := newInstance(t)
	stop := start(t, i, "r1", 2)
	d := plan(subscription(), index())
	ids := install(t, i, d)
	initialize(t, i)
	rows := make(map[uint64]string)
	batch, err := i.Next(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(batch.GetUpdates()) < 100 {
		t.Errorf("the first batch has %d updates, want all 100 rows", len(batch.GetUpdates()))
	}
	for _, u := range batch.GetUpdates() {
		rows[u.GetRow().GetKey()] = string(u.GetRow().GetValue())
	}
	at := follow(t, i, ids[0], rows, batch.GetUpper(), batch.GetUpper()+50)
	names := []string{"r2", "r1"}
	for n := range 6 {
		again := start(t, i, names[n%2], 1+n%3)
		stop()
		i.DropReplica(names[(n+1)%2])
		stop = again
		at = follow(t, i, ids[0], rows, at, at+50)
		want := make(map[uint64]string)
		for _, r := range rowsAt(t, d, at-1) {
			want[r.GetKey()] = string(r.GetValue())
		}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Fatalf("rows at %d (-computed alone +subscribed):\n%s", at-1, diff)
		}
	}
	if err := i.Drop(ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Next(t.Context(), ids[0]); !errors.Is(err, io.EOF) {
		t.Errorf("after Drop: %v, want io.EOF", err)
	}
	until(t, i, "the replica says that it dropped the subscription", func(s controller.Stats) bool {
		return s.Counts.SubscribeDropped > 0 && s.Collections == 1 && s.Dataflows == 1
	})
}

func TestARestartedReplicaIsBroughtUpToDateByTheCompactedHistory(t *testing.T) {
	i := newInstance(t)
	stop := start(t, i, "r1", 2)
	kept := plan(index())
	kept.Name = "kept"
	id := install(t, i, kept)[0]
	initialize(t, i)
	for range 30 {
		dropped := install(t, i, plan(index()))[0]
		peek(t, i, dropped, newest(t, i, dropped))
		if err := i.Drop(dropped); err != nil {
			t.Fatal(err)
		}
	}
	before := i.Stats()
	i.DropReplica("r1")
	stop()

	// A peek that is asked for while nobody is there waits for the replica to come back.
	type answer struct {
		rows []*computepb.Row
		err  error
	}
	answered := make(chan answer, 1)
	upper, _ := i.Upper(id)
	go func() {
		rows, err := i.Peek(t.Context(), controller.Peek{Collection: id, Timestamp: upper - 1, EndKey: math.MaxUint64})
		answered <- answer{rows, err}
	}()
	until(t, i, "the peek waits", func(s controller.Stats) bool { return s.Peeks == 1 })
	start(t, i, "r1", 3)
	got := <-answered
	if got.err != nil {
		t.Fatal(got.err)
	}
	if diff := diffRows(rowsAt(t, kept, upper-1), got.rows); diff != "" {
		t.Errorf("rows after the restart (-computed alone +answered):\n%s", diff)
	}
	at := newest(t, i, id)
	if diff := diffRows(rowsAt(t, kept, at), peek(t, i, id, at)); diff != "" {
		t.Errorf("rows later (-computed alone +answered):\n%s", diff)
	}

	after := i.Stats()
	replayed := after.Counts.Replayed - before.Counts.Replayed
	// create_timely, create_instance, create_dataflow, schedule, allow_compaction, peek, initialization_complete
	if after.Counts.Replays != before.Counts.Replays+1 || replayed > 7 {
		t.Errorf("%d commands were replayed in %d replays, want at most 7 of %d in 1",
			replayed, after.Counts.Replays-before.Counts.Replays, before.Counts.Commands)
	}
}

func TestAReplicaWhoseStreamFailsIsConnectedAgain(t *testing.T) {
	failed := make(chan error, 100)
	i := controller.New(controller.Options{
		Tick: 2 * time.Millisecond,
		DialOptions: func(string, int) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		},
		OnDisconnect: func(_ string, err error) { failed <- err },
	})
	t.Cleanup(i.Close)
	start(t, i, "r1", 2)
	// A parameter that no replica takes: each ends its stream, and is told the same again when it connects, until the history
	// says something else.
	if err := i.Configure(map[string]string{replica.MaxResultBytes: "many"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-failed; err == nil {
			t.Error("a stream failed without a reason")
		}
	}
	if err := i.Configure(map[string]string{replica.MaxResultBytes: "1000000"}); err != nil {
		t.Fatal(err)
	}
	id := install(t, i, plan(index()))[0]
	initialize(t, i)
	if rows := peek(t, i, id, newest(t, i, id)); len(rows) != 100 {
		t.Errorf("%d rows, want 100", len(rows))
	}
}

func TestAClosedInstanceSaysSo(t *testing.T) {
	i := newInstance(t)
	start(t, i, "r1", 2)
	ids := install(t, i, plan(index(), subscription(), copyTo()))
	waiting := make(chan error, 4)
	go func() {
		_, err := i.Peek(t.Context(), controller.Peek{Collection: ids[0], Timestamp: 1 << 40})
		waiting <- err
	}()
	go func() {
		_, err := i.Next(t.Context(), ids[1])
		waiting <- err
	}()
	go func() {
		_, err := i.AwaitCopy(t.Context(), ids[2])
		waiting <- err
	}()
	go func() { waiting <- i.AwaitUpper(t.Context(), ids[0], 1<<40) }()
	until(t, i, "the peek waits", func(s controller.Stats) bool { return s.Peeks == 1 && len(s.Connected) == 1 })
	for range 2 {
		if err := i.Shutdown(); err != nil {
			t.Error(err)
		}
	}
	for range 4 {
		if err := <-waiting; !errors.Is(err, controller.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	i.Close()
	i.Close()
	if _, err := i.Install(plan(index())); !errors.Is(err, controller.ErrClosed) {
		t.Errorf("Install: %v, want ErrClosed", err)
	}
	for name, err := range map[string]error{
		"Drop": i.Drop(ids[0]), "Initialize": i.Initialize(), "Configure": i.Configure(nil),
		"AddReplica": i.AddReplica("r2", []string{"x"}),
	} {
		if !errors.Is(err, controller.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
}

func TestClosingDoesNotWaitForAReplicaThatIsNotThere(t *testing.T) {
	i := newInstance(t)
	if err := i.AddReplica("r1", []string{"127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if err := i.AddReplica("r2", nil); err == nil {
		t.Error("a replica without addresses is taken")
	}
	i.Close()
}

func TestManyUseAnInstanceAtOnce(t *testing.T) {
	i := newInstance(t)
	start(t, i, "r1", 2)
	start(t, i, "r2", 2)
	initialize(t, i)
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 5 {
				ids, err := i.Install(plan(index(), copyTo()))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := i.AwaitCopy(t.Context(), ids[1]); err != nil {
					t.Error(err)
				}
				rows, err := i.Peek(t.Context(), controller.Peek{Collection: ids[0], Timestamp: controller.Newest, EndKey: 1000})
				if err != nil || len(rows) != 100 {
					t.Errorf("%d rows and %v, want 100 and nil", len(rows), err)
				}
				for _, id := range ids {
					if err := i.Drop(id); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	users.Wait()
	if s := i.Stats(); s.Dataflows != 0 || s.Collections != 0 || s.Peeks != 0 {
		t.Errorf("something is left: %+v", s)
	}
}
