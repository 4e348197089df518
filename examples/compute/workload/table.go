package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
	"github.com/otelproto/otelproto-go/examples/compute/replica"
)

// A table is one that is there from the beginning.
type table struct {
	plan *computepb.Dataflow
	keys uint64
	id   uint64 // of its index
	feed uint64 // of its subscription; 0: it has none
}

// Places of the tables in what tables returns.
const (
	accounts  = iota // many short rows
	orders           // rows of about 500 bytes, with a subscription
	documents        // rows of 256 bytes to 64 KiB
	blobs            // rows of 64 KiB to almost 1 MiB
)

func tables(random *rand.Rand) []*table {
	return []*table{
		accounts:  newTable(random, "accounts", 5_000, 400, 2, 32, index()),
		orders:    newTable(random, "orders", 2_000, 400, 128, 1024, index(), subscribe()),
		documents: newTable(random, "documents", 200, 400, 256, 64<<10, index()),
		blobs:     newTable(random, "blobs", 12, 120, 64<<10, 1000<<10, index()),
	}
}

func newTable(random *rand.Rand, name string, keys, period, minBytes, maxBytes uint64, exports ...*computepb.Export) *table {
	return &table{keys: keys, plan: &computepb.Dataflow{
		Name: name,
		Source: &computepb.Generator{
			Seed: random.Uint64(), Keys: keys, Period: period, MinBytes: minBytes, MaxBytes: maxBytes,
		},
		Exports: exports,
	}}
}

// view is a dataflow that somebody makes up over the orders: some of the rows, each joined with one of up to 1,000 labels that
// come with the plan, which makes a plan large.
func view(random *rand.Rand, orders *table, exports ...*computepb.Export) *computepb.Dataflow {
	labels := make([][]byte, 10+random.IntN(990))
	for n := range labels {
		labels[n] = fmt.Appendf(nil, "region %d, branch %03d: ", random.IntN(10), n)
	}
	modulus := 2 + random.Uint64N(20)
	return &computepb.Dataflow{
		Name:   "view",
		Source: orders.plan.GetSource(),
		Operators: []*computepb.Operator{
			{Kind: &computepb.Operator_Filter{Filter: &computepb.Filter{Modulus: modulus, Remainder: random.Uint64N(modulus)}}},
			{Kind: &computepb.Operator_Truncate{Truncate: &computepb.Truncate{Bytes: 64 + random.Uint64N(256)}}},
			{Kind: &computepb.Operator_Lookup{Lookup: &computepb.Lookup{Labels: labels}}},
		},
		Exports: exports,
	}
}

// configuration is parameters as somebody sets them who tunes an instance. Only the first of them means something to a replica.
func configuration(random *rand.Rand) map[string]string {
	parameters := map[string]string{replica.MaxResultBytes: strconv.Itoa(1 << 20)}
	for _, name := range []string{"arrangement_batch", "join_fuel", "merge_effort", "spill_threshold"} {
		parameters[name] = strconv.Itoa(random.IntN(1 << 20))
	}
	return parameters
}

func index() *computepb.Export {
	return &computepb.Export{Kind: &computepb.Export_Index{Index: &computepb.Index{}}}
}

func subscribe() *computepb.Export {
	return &computepb.Export{Kind: &computepb.Export_Subscribe{Subscribe: &computepb.Subscribe{}}}
}

func copyTo(uri string) *computepb.Export {
	return &computepb.Export{Kind: &computepb.Export_CopyTo{CopyTo: &computepb.CopyTo{Uri: uri}}}
}
