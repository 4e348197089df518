package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

func TestWhatAReplicaSentBeforeItsStreamFailedIsNotHeardTwice(t *testing.T) {
	i := New(Options{Tick: time.Hour})
	defer i.Close()
	ids, err := i.Install(&computepb.Dataflow{Exports: []*computepb.Export{
		{Kind: &computepb.Export_Subscribe{Subscribe: &computepb.Subscribe{}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{name: "r1", addresses: []string{"a", "b"}}
	batch := func(index int, upper uint64, times ...uint64) {
		b := &computepb.Batch{Upper: upper}
		for _, at := range times {
			b.Updates = append(b.Updates, &computepb.Update{Time: at, Row: &computepb.Row{Key: uint64(index)}})
		}
		i.handle(&process{replica: r, index: index}, &computepb.ComputeResponse{
			Kind: &computepb.ComputeResponse_SubscribeResponse{SubscribeResponse: &computepb.SubscribeResponse{
				Collection: ids[0], Result: &computepb.SubscribeResponse_Batch{Batch: b},
			}},
		})
	}
	type update struct{ Time, Key uint64 }
	expect := func(want ...update) {
		t.Helper()
		next, err := i.Next(t.Context(), ids[0])
		if err != nil {
			t.Fatal(err)
		}
		var got []update
		for _, u := range next.GetUpdates() {
			got = append(got, update{u.GetTime(), u.GetRow().GetKey()})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("[%d, %d):\n%s", next.GetLower(), next.GetUpper(), diff)
		}
	}
	batch(0, 5, 0, 3)
	batch(1, 8, 0, 6) // ahead of the other process, when both are lost
	expect(update{0, 0}, update{0, 1}, update{3, 0})
	i.detach(r)
	batch(1, 10, 4, 6, 9)
	batch(0, 10, 4, 7)
	expect(update{6, 1}, update{7, 0}, update{9, 1})
}
