package journal_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
	"github.com/otelproto/otelproto-go/examples/invoke/journal"
)

func invocation(key string) *invokepb.Invocation {
	return &invokepb.Invocation{Worker: "w", IdempotencyKey: key}
}

func keys(invocations []*invokepb.Invocation) (keys []string) {
	for _, i := range invocations {
		keys = append(keys, i.GetIdempotencyKey())
	}
	return keys
}

func entry(key string, applied uint64) journal.Entry {
	return journal.Entry{
		Key: key, Worker: "w", State: journal.State{Total: int64(applied), Applied: applied},
		Outcome: &invokepb.Outcome{Version: applied},
	}
}

// accept accepts and tells whether that was news.
func accept(t *testing.T, j *journal.Journal, epoch uint64, key string) bool {
	t.Helper()
	fresh, err := j.Accept(0, epoch, invocation(key))
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

func TestAnInvocationHasOneOutcomeHoweverOftenItIsAccepted(t *testing.T) {
	j := journal.New(1)
	epoch, _ := j.Acquire(0)
	if !accept(t, j, epoch, "a") || accept(t, j, epoch, "a") {
		t.Error("accepting it is not news exactly once")
	}
	if err := j.Finish(0, epoch, entry("a", 1)); err != nil {
		t.Fatal(err)
	}
	if accept(t, j, epoch, "a") {
		t.Error("it is accepted anew after it has finished")
	}
	if err := j.Finish(0, epoch, entry("a", 2)); err == nil || err.Error() != `journal: "a" has an outcome already` {
		t.Errorf("finishing it again gives %v", err)
	}
	outcome, ok := j.Lookup(0, "a")
	if !ok || outcome.GetVersion() != 1 || j.Worker(0, "w").Applied != 1 {
		t.Errorf("the outcome is %v, %t, the worker's state %v", outcome, ok, j.Worker(0, "w"))
	}
	if err := j.Finish(0, epoch, entry("b", 2)); err == nil || err.Error() != `journal: "b" was never accepted` {
		t.Errorf("finishing what was never accepted gives %v", err)
	}
	if diff := cmp.Diff(journal.Counts{Accepted: 1, Outcomes: 1, Applied: 1}, j.Counts()); diff != "" {
		t.Error(diff)
	}
}

func TestTheNextOwnerGetsWhatHasNoOutcomeInTheOrderOfAcceptance(t *testing.T) {
	j := journal.New(2)
	epoch, pending := j.Acquire(0)
	if len(pending) > 0 {
		t.Errorf("an empty journal has %v", keys(pending))
	}
	for _, key := range []string{"c", "a", "b", "d"} {
		accept(t, j, epoch, key)
	}
	if err := j.Finish(0, epoch, entry("a", 1)); err != nil {
		t.Fatal(err)
	}
	epoch, pending = j.Acquire(0)
	accept(t, j, epoch, "e")
	if diff := cmp.Diff([]string{"c", "b", "d"}, keys(pending)); diff != "" {
		t.Error(diff)
	}
	if err := j.Finish(0, epoch, entry("c", 2)); err != nil {
		t.Fatal(err)
	}
	_, pending = j.Acquire(0)
	if diff := cmp.Diff([]string{"b", "d", "e"}, keys(pending)); diff != "" {
		t.Error(diff)
	}
	if _, pending := j.Acquire(1); len(pending) > 0 {
		t.Errorf("another shard has %v", keys(pending))
	}
}

func TestAnOwnerWhoseEpochHasPassedRecordsNothing(t *testing.T) {
	j := journal.New(1)
	old, _ := j.Acquire(0)
	accept(t, j, old, "a")
	epoch, _ := j.Acquire(0)
	if epoch <= old {
		t.Errorf("epoch %d comes after %d", epoch, old)
	}
	if err := j.Finish(0, old, entry("a", 1)); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("Finish gives %v", err)
	}
	if _, err := j.Accept(0, old, invocation("b")); !errors.Is(err, journal.ErrFenced) {
		t.Errorf("Accept gives %v", err)
	}
	if _, ok := j.Lookup(0, "a"); ok || j.Worker(0, "w") != (journal.State{}) {
		t.Error("the old owner has recorded an outcome or a state")
	}
	if !accept(t, j, epoch, "b") {
		t.Error("the old owner has accepted an invocation")
	}
}
