package replica

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// What follows is one function per kind of command and export, for tests.
func timely(process, processes uint32) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_CreateTimely{
		CreateTimely: &computepb.CreateTimely{Process: process, Processes: processes},
	}}
}

func instance() *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_CreateInstance{
		CreateInstance: &computepb.CreateInstance{Name: "test", TickNanos: 1},
	}}
}

func initialized() *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_InitializationComplete{
		InitializationComplete: &computepb.InitializationComplete{},
	}}
}

func configure(name, value string) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_UpdateConfiguration{
		UpdateConfiguration: &computepb.UpdateConfiguration{Parameters: map[string]string{name: value}},
	}}
}

func create(d *computepb.Dataflow) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_CreateDataflow{
		CreateDataflow: &computepb.CreateDataflow{Dataflow: d},
	}}
}

func schedule(id uint64) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_Schedule{Schedule: &computepb.Schedule{Dataflow: id}}}
}

func compact(id, frontier uint64) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_AllowCompaction{
		AllowCompaction: &computepb.AllowCompaction{Collection: id, Frontier: &frontier},
	}}
}

func drop(id uint64) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_AllowCompaction{
		AllowCompaction: &computepb.AllowCompaction{Collection: id},
	}}
}

func allowWrites(id uint64) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_AllowWrites{
		AllowWrites: &computepb.AllowWrites{Collection: id},
	}}
}

func peek(uuid string, id, timestamp uint64) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_Peek{Peek: &computepb.Peek{
		Uuid: []byte(uuid), Collection: id, Timestamp: timestamp, EndKey: math.MaxUint64,
	}}}
}

func cancel(uuid string) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_CancelPeek{
		CancelPeek: &computepb.CancelPeek{Uuid: []byte(uuid)},
	}}
}

func indexed(id uint64) *computepb.Export {
	return &computepb.Export{Collection: id, Kind: &computepb.Export_Index{Index: &computepb.Index{}}}
}

func subscribed(id uint64) *computepb.Export {
	return &computepb.Export{Collection: id, Kind: &computepb.Export_Subscribe{Subscribe: &computepb.Subscribe{}}}
}

func copied(id uint64) *computepb.Export {
	return &computepb.Export{Collection: id, Kind: &computepb.Export_CopyTo{CopyTo: &computepb.CopyTo{}}}
}

var table = &computepb.Generator{Seed: 7, Keys: 40, Period: 8, MinBytes: 4, MaxBytes: 64}

// told returns a worker that was given the commands.
func told(t *testing.T, commands ...*computepb.ComputeCommand) *Worker {
	t.Helper()
	w := NewWorker()
	tell(t, w, commands...)
	return w
}

// tell gives the worker the commands and returns its responses, each in the notation of describe.
func tell(t *testing.T, w *Worker, commands ...*computepb.ComputeCommand) []string {
	t.Helper()
	var all []string
	for _, c := range commands {
		responses, err := w.Handle(c)
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		all = append(all, describe(responses)...)
	}
	return all
}

func describe(responses []*computepb.ComputeResponse) []string {
	var all []string
	for _, r := range responses {
		all = append(all, describeOne(r))
	}
	return all
}

func describeOne(r *computepb.ComputeResponse) string {
	switch kind := r.GetKind().(type) {
	case *computepb.ComputeResponse_Frontiers:
		if kind.Frontiers.Upper == nil {
			return fmt.Sprintf("frontier %d closed", kind.Frontiers.GetCollection())
		}
		return fmt.Sprintf("frontier %d %d", kind.Frontiers.GetCollection(), kind.Frontiers.GetUpper())
	case *computepb.ComputeResponse_PeekResponse:
		switch result := kind.PeekResponse.GetResult().(type) {
		case *computepb.PeekResponse_Rows:
			return fmt.Sprintf("peek %s %d rows", kind.PeekResponse.GetUuid(), len(result.Rows.GetRows()))
		case *computepb.PeekResponse_Error:
			return fmt.Sprintf("peek %s error %s", kind.PeekResponse.GetUuid(), result.Error.GetMessage())
		}
		return fmt.Sprintf("peek %s canceled", kind.PeekResponse.GetUuid())
	case *computepb.ComputeResponse_SubscribeResponse:
		id := kind.SubscribeResponse.GetCollection()
		if b := kind.SubscribeResponse.GetBatch(); b != nil {
			return fmt.Sprintf("batch %d [%d, %d) %d updates", id, b.GetLower(), b.GetUpper(), len(b.GetUpdates()))
		}
		return fmt.Sprintf("dropped %d at %d", id, kind.SubscribeResponse.GetDropped().GetFrontier())
	case *computepb.ComputeResponse_CopyToResponse:
		return fmt.Sprintf("copied %d %d rows", kind.CopyToResponse.GetCollection(), kind.CopyToResponse.GetRows())
	case *computepb.ComputeResponse_Status:
		return fmt.Sprintf("status %d %d rows", kind.Status.GetDataflow(), kind.Status.GetRows())
	}
	return fmt.Sprintf("unknown %T", r.GetKind())
}

func TestADataflowRunsOnceItIsScheduledAndTheReplayHasEnded(t *testing.T) {
	plan := &computepb.Dataflow{Id: 1, Source: table, Exports: []*computepb.Export{indexed(2)}, AsOf: 3}
	w := told(t, timely(0, 1), instance(), create(plan), initialized())
	if got := describe(w.Advance(10)); got != nil {
		t.Errorf("before schedule: %q", got)
	}
	w = told(t, timely(0, 1), instance(), create(plan), schedule(1))
	if got := describe(w.Advance(10)); got != nil {
		t.Errorf("before initialization_complete: %q", got)
	}
	tell(t, w, initialized())
	if got := describe(w.Advance(3)); got != nil {
		t.Errorf("before as_of has passed: %q", got)
	}
	want := []string{"status 1 40 rows", "frontier 2 10"}
	if diff := cmp.Diff(want, describe(w.Advance(10))); diff != "" {
		t.Error(diff)
	}
	if got := describe(w.Advance(10)); got != nil {
		t.Errorf("when no time has passed: %q", got)
	}
	if diff := cmp.Diff([]string{"frontier 2 12"}, describe(w.Advance(12))); diff != "" {
		t.Error(diff)
	}
}

func TestAPeekWaitsForItsTime(t *testing.T) {
	w := told(t, timely(0, 1), instance(), initialized(),
		create(&computepb.Dataflow{Id: 1, Source: table, Exports: []*computepb.Export{indexed(2)}}), schedule(1))
	if got := tell(t, w, peek("a", 2, 4), peek("b", 2, 5)); got != nil {
		t.Errorf("before anything is computed: %q", got)
	}
	want := []string{"status 1 40 rows", "frontier 2 5", "peek a 40 rows"}
	if diff := cmp.Diff(want, describe(w.Advance(5))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"peek b canceled"}, tell(t, w, cancel("b"), cancel("b"), cancel("a"), cancel("c"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"peek c 40 rows"}, tell(t, w, peek("c", 2, 4))); diff != "" {
		t.Error(diff)
	}
}

func TestAPeekThatCannotBeAnsweredSaysWhy(t *testing.T) {
	w := told(t, timely(0, 1), instance(), initialized(), configure(MaxResultBytes, "1000"),
		create(&computepb.Dataflow{Id: 1, Source: table, Exports: []*computepb.Export{indexed(2), subscribed(3), indexed(4)}}),
		schedule(1), compact(2, 6), peek("d", 4, 100))
	w.Advance(9)
	tests := []struct {
		command *computepb.ComputeCommand
		want    string
	}{
		{peek("a", 2, 5), "peek a error collection 2 can't be read at 5 any more: it is compacted up to 6"},
		{peek("a", 3, 5), "peek a error collection 3 is not an index"},
		{peek("a", 9, 5), "peek a error there is no collection 9"},
		{drop(4), "peek d error there is no collection 4"},
		{peek("a", 2, 7), "peek a error the rows take up 1045 bytes, more than max_result_bytes = 1000"},
	}
	for _, test := range tests {
		got := tell(t, w, test.command)
		if got[len(got)-1] != test.want {
			t.Errorf("%v\n got %q\nwant %q", test.command, got, test.want)
		}
	}
}

func TestACollectionWritesNothingBeforeItMay(t *testing.T) {
	w := told(t, timely(0, 1), instance(), initialized(),
		create(&computepb.Dataflow{Id: 1, Source: table, Exports: []*computepb.Export{subscribed(2), copied(3)}, AsOf: 16}),
		schedule(1))
	if diff := cmp.Diff([]string{"status 1 40 rows"}, describe(w.Advance(24))); diff != "" {
		t.Error(diff)
	}
	// Of 40 rows, the 7 whose phase is 0 get their next value at 16, in the first rows already.
	want := []string{"batch 2 [16, 24) 73 updates", "frontier 2 24", "copied 3 40 rows", "frontier 3 closed"}
	if diff := cmp.Diff(want, tell(t, w, allowWrites(2), allowWrites(3), allowWrites(3))); diff != "" {
		t.Error(diff)
	}
	want = []string{"batch 2 [24, 32) 40 updates", "frontier 2 32"}
	if diff := cmp.Diff(want, describe(w.Advance(32))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"dropped 2 at 32", "frontier 2 closed"}, tell(t, w, drop(2), drop(3))); diff != "" {
		t.Error(diff)
	}
	if left := w.State().Dataflows; len(left) != 0 {
		t.Errorf("a dataflow without collections is left: %v", left)
	}
}

func TestEveryTimeCanBeReadUntilItIsCompactedAway(t *testing.T) {
	plan := &computepb.Dataflow{Id: 1, Source: table, Exports: []*computepb.Export{indexed(2)}}
	began := make(map[uint64]map[uint64]string)
	late := func(asOf uint64) map[uint64]string {
		if rows, ok := began[asOf]; ok {
			return rows
		}
		p := &computepb.Dataflow{Id: 1, Source: table, Exports: []*computepb.Export{indexed(2)}, AsOf: asOf}
		w := told(t, timely(0, 1), instance(), initialized(), create(p), schedule(1))
		w.Advance(asOf + 1)
		began[asOf] = rowsOf(w.collections[2].trace, asOf)
		return began[asOf]
	}
	w := told(t, timely(0, 1), instance(), initialized(), create(plan), schedule(1))
	w.Advance(50)
	for _, since := range []uint64{0, 10, 11, 30} {
		tell(t, w, compact(2, since))
		for at := since; at < 50; at++ {
			got := rowsOf(w.collections[2].trace, at)
			if diff := cmp.Diff(late(at), got); diff != "" {
				t.Fatalf("rows at %d, compacted to %d, differ from those of a dataflow that began then:\n%s", at, since, diff)
			}
		}
	}
	if n := len(w.collections[2].trace.updates); n >= 40*20/8+40 {
		t.Errorf("%d updates are left after compaction to 30 of 50", n)
	}
}

func TestProcessesShareTheRows(t *testing.T) {
	plan := &computepb.Dataflow{Id: 1, Source: table, Exports: []*computepb.Export{indexed(2), copied(3)}, Operators: []*computepb.Operator{
		{Kind: &computepb.Operator_Filter{Filter: &computepb.Filter{Modulus: 4, Remainder: 1}}},
		{Kind: &computepb.Operator_Lookup{Lookup: &computepb.Lookup{Labels: [][]byte{[]byte("x:"), []byte("y:")}}}},
		{Kind: &computepb.Operator_Truncate{Truncate: &computepb.Truncate{Bytes: 5}}},
	}}
	one := told(t, timely(0, 1), instance(), initialized(), create(plan), schedule(1))
	one.Advance(20)
	whole := one.State().Dataflows[1].Collections

	parts := make(map[uint64]string)
	var digest uint64
	for p := range uint32(3) {
		w := told(t, timely(p, 3), instance(), initialized(), create(plan), schedule(1))
		w.Advance(20)
		part := w.State().Dataflows[1].Collections
		digest ^= part[3].Copied.GetDigest()
		for key, value := range part[2].Last {
			if key%3 != uint64(p) {
				t.Errorf("process %d holds key %d", p, key)
			}
			parts[key] = value
		}
	}
	if diff := cmp.Diff(whole[2].Last, parts); diff != "" {
		t.Errorf("one process and three hold different rows:\n%s", diff)
	}
	if digest != whole[3].Copied.GetDigest() {
		t.Errorf("digest of three processes is %x, of one %x", digest, whole[3].Copied.GetDigest())
	}
	if len(parts) != 10 {
		t.Errorf("%d rows are left by the filter, want 10", len(parts))
	}
	for key, value := range parts {
		if !strings.HasPrefix(value, "y:") || len(value) != 5 {
			t.Errorf("row %d is %q, want y: and three bytes", key, value)
		}
	}
}

func TestCommandsThatMakeNoSenseAreErrors(t *testing.T) {
	plan := func(change func(*computepb.Dataflow)) *computepb.ComputeCommand {
		d := &computepb.Dataflow{
			Id: 5, Source: &computepb.Generator{Keys: 1, Period: 1, MinBytes: 1, MaxBytes: 1}, Exports: []*computepb.Export{indexed(6)},
		}
		change(d)
		return create(d)
	}
	source := func(keys, period, minBytes, maxBytes uint64) func(*computepb.Dataflow) {
		return func(d *computepb.Dataflow) {
			d.Source = &computepb.Generator{Keys: keys, Period: period, MinBytes: minBytes, MaxBytes: maxBytes}
		}
	}
	exports := func(e ...*computepb.Export) func(*computepb.Dataflow) {
		return func(d *computepb.Dataflow) { d.Exports = e }
	}
	operator := func(o *computepb.Operator) func(*computepb.Dataflow) {
		return func(d *computepb.Dataflow) { d.Operators = []*computepb.Operator{o} }
	}
	tests := []struct {
		command *computepb.ComputeCommand
		want    string
	}{
		{&computepb.ComputeCommand{}, "unknown kind of command <nil>"},
		{timely(0, 1), "create_timely comes a second time"},
		{instance(), "create_instance comes a second time"},
		{schedule(9), "schedule names dataflow 9, which there isn't"},
		{allowWrites(9), "allow_writes names collection 9, which there isn't"},
		{compact(9, 1), "allow_compaction names collection 9, which there isn't"},
		{configure(MaxResultBytes, "-1"), `max_result_bytes is "-1", want a number of bytes of 1 or more`},
		{plan(func(d *computepb.Dataflow) { d.Id = 1 }), "dataflow 1 is created a second time"},
		{plan(exports(indexed(2))), "dataflow 5: collection 2 is created a second time"},
		{plan(exports()), "dataflow 5: it has no exports, want 1 or more"},
		{plan(exports(&computepb.Export{Collection: 6})), "dataflow 5: collection 6 has unknown kind <nil>"},
		{plan(func(d *computepb.Dataflow) { d.Source = nil }), "dataflow 5: source has 0 keys, want 1 to 1048576"},
		{plan(source(1, 0, 1, 1)), "dataflow 5: source has period 0, want 1 to 1048576"},
		{plan(source(1, 1, 2, 1)), "dataflow 5: source has values of 2 to 1 bytes, want 1 to 1048576"},
		{
			plan(source(2000, 1, 1, 1<<20)),
			"dataflow 5: source has 2000 keys of up to 1048576 bytes, want at most 1073741824 bytes in all",
		},
		{plan(operator(&computepb.Operator{})), "dataflow 5: operator 0: unknown kind <nil>"},
		{
			plan(operator(&computepb.Operator{Kind: &computepb.Operator_Filter{}})),
			"dataflow 5: operator 0: filter has modulus 0, want 1 or more",
		},
		{
			plan(operator(&computepb.Operator{Kind: &computepb.Operator_Lookup{}})),
			"dataflow 5: operator 0: lookup has no labels, want 1 or more",
		},
	}
	w := told(t, timely(0, 1), instance(), create(&computepb.Dataflow{Id: 1, Source: table, Exports: []*computepb.Export{indexed(2)}}))
	for _, test := range tests {
		before := w.State()
		if _, err := w.Handle(test.command); err == nil || err.Error() != "replica: "+test.want {
			t.Errorf("%v\n got %v\nwant %s", test.command, err, test.want)
		}
		if diff := cmp.Diff(before, w.State(), protocmp.Transform()); diff != "" {
			t.Errorf("%v changed something:\n%s", test.command, diff)
		}
	}
	empty := NewWorker()
	for _, command := range []*computepb.ComputeCommand{initialized(), instance(), timely(2, 2)} {
		if _, err := empty.Handle(command); err == nil {
			t.Errorf("%v is taken as the first command", command)
		}
	}
}
