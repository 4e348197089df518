package otelproto_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/internal/testproto/opaquepb"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// byVariant is what was counted of one message type.
type byVariant map[string]counts

// recorders gives handlers with both sinks, and what they have recorded as type and variant.
func recorders(t *testing.T, opts ...otelproto.Option) map[string]func() (grpcstats.Handler, func() map[string]byVariant) {
	t.Helper()

	add := func(m map[string]byVariant, k stats.Key, c counts) {
		if m[k.Type] == nil {
			m[k.Type] = byVariant{}
		}

		m[k.Type][k.Variant] = c
	}

	return map[string]func() (grpcstats.Handler, func() map[string]byVariant){
		"registry": func() (grpcstats.Handler, func() map[string]byVariant) {
			reg := stats.NewRegistry()

			return otelproto.NewServerHandler(append(opts, otelproto.WithRegistry(reg))...), func() map[string]byVariant {
				m := make(map[string]byVariant)
				for k, c := range rowsOf(reg.Snapshot().Total, false) {
					add(m, k, c)
				}

				return m
			}
		},
		"instruments": func() (grpcstats.Handler, func() map[string]byVariant) {
			reader, mp := newReader()

			return otelproto.NewServerHandler(append(opts, otelproto.WithMeterProvider(mp))...), func() map[string]byVariant {
				m := make(map[string]byVariant)
				for k, r := range asRows(t, points(t, reader)) {
					add(m, k, counts{r.Messages, r.Wire.Sum, r.Size.Sum})
				}

				return m
			}
		},
	}
}

// dynamically gives the same message as package dynamicpb has it.
func dynamically(t *testing.T, m proto.Message) proto.Message {
	t.Helper()

	d := dynamicpb.NewMessage(m.ProtoReflect().Descriptor())

	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}

	if err := proto.Unmarshal(b, d); err != nil {
		t.Fatal(err)
	}

	return d
}

func putOf(n int) *testproto.Command { // n + 4 bytes, for n from 1 to 123
	return &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: make([]byte, n)}}}
}

func getOf(key string) *testproto.Command { // 4 bytes more than the key
	return &testproto.Command{Kind: &testproto.Command_Get{Get: &testproto.Get{Key: key}}}
}

func bundle(commands ...*testproto.Command) *testproto.Bundle {
	return &testproto.Bundle{Commands: commands}
}

func tags(tagged ...*testproto.Tagged) *testproto.Bundle { return &testproto.Bundle{Tagged: tagged} }

// Each message comes with 100 bytes uncompressed and 55 on the wire.
func TestElementsOfARepeatedFieldCountOneByOne(t *testing.T) {
	detail, err := anypb.New(&testproto.Put{})
	if err != nil {
		t.Fatal(err)
	}

	opaque := func(m func(b *opaquepb.Bundle_builder, commands ...*opaquepb.Command)) proto.Message {
		b := opaquepb.Bundle_builder{}
		m(&b,
			opaquepb.Command_builder{Put: opaquepb.Put_builder{Key: new("1234")}.Build()}.Build(),
			opaquepb.Command_builder{Get: opaquepb.Get_builder{Key: new("123456789012")}.Build()}.Build())

		return b.Build()
	}
	opaqueParts := byVariant{"put": {1, 18, 33}, "get": {1, 37, 67}} // 8 and 16 bytes

	for _, c := range []struct {
		what    string
		path    string
		payload proto.Message
		want    byVariant
	}{
		{"no element", "commands.kind", &testproto.Bundle{Ids: []uint64{1, 2}}, byVariant{"": {1, 55, 100}}},
		{"one element has all", "commands.kind", bundle(getOf("k")), byVariant{"get": {1, 55, 100}}},
		{"equal elements", "commands.kind", bundle(getOf("k"), getOf("k")), byVariant{"get": {2, 55, 100}}},
		{
			"by size", "commands.kind", bundle(putOf(6), getOf("12345678901234567890123456")), // 10 and 30 bytes
			byVariant{"put": {1, 13, 25}, "get": {1, 42, 75}},
		},
		{
			"the other order", "commands.kind", bundle(getOf("12345678901234567890123456"), putOf(6)),
			byVariant{"put": {1, 14, 25}, "get": {1, 41, 75}},
		},
		{
			"thirds", "commands.kind", bundle(putOf(1), getOf("k"), &testproto.Command{Kind: &testproto.Command_Note{Note: "123"}}),
			byVariant{"put": {1, 18, 33}, "get": {1, 18, 33}, "note": {1, 19, 34}},
		},
		{
			"no case", "commands.kind", bundle(&testproto.Command{Id: "123"}, getOf("k")),
			byVariant{"": {1, 27, 50}, "get": {1, 28, 50}},
		},
		{
			"an empty element counts", "commands.kind", bundle(&testproto.Command{}, getOf("k"), &testproto.Command{}),
			byVariant{"": {2, 0, 0}, "get": {1, 55, 100}},
		},
		{
			"all empty", "commands.kind", bundle(&testproto.Command{}, &testproto.Command{}, &testproto.Command{}),
			byVariant{"": {3, 55, 100}},
		},
		{
			"a case with an empty message", "commands.kind", bundle(&testproto.Command{Kind: &testproto.Command_Put{}}, getOf("")),
			byVariant{"put": {1, 27, 50}, "get": {1, 28, 50}},
		},
		{
			"enum", "tagged.color", tags(&testproto.Tagged{Color: 1}, &testproto.Tagged{Color: 2}, &testproto.Tagged{Number: 1}),
			byVariant{"COLOR_RED": {1, 18, 33}, "COLOR_BLUE": {1, 18, 33}, "COLOR_UNSPECIFIED": {1, 19, 34}},
		},
		{
			"string", "tagged.name", tags(&testproto.Tagged{Name: "a"}, &testproto.Tagged{Number: 128}, &testproto.Tagged{Name: "b"}),
			byVariant{"a": {1, 18, 33}, "": {1, 18, 33}, "b": {1, 19, 34}},
		},
		{
			"bool", "tagged.urgent", tags(&testproto.Tagged{Urgent: true}, &testproto.Tagged{Number: 1}),
			byVariant{"true": {1, 27, 50}, "false": {1, 28, 50}},
		},
		{"Any", "tagged.detail", tags(&testproto.Tagged{Detail: detail}), byVariant{"otelproto.test.Put": {1, 55, 100}}},
		{
			"nested", "tagged.header.command.kind",
			tags(&testproto.Tagged{Header: &testproto.Header{Command: getOf("")}}, &testproto.Tagged{Name: "1234"}),
			byVariant{"get": {1, 27, 50}, "": {1, 28, 50}},
		},
		{
			"below a message", "inner.commands.kind", &testproto.Bundle{Inner: bundle(putOf(1), getOf("k"))},
			byVariant{"put": {1, 27, 50}, "get": {1, 28, 50}},
		},
		{"the message is not set", "inner.commands.kind", bundle(putOf(1)), byVariant{"": {1, 55, 100}}},
		{"below a case", "batch.commands.kind", &testproto.Command{Kind: &testproto.Command_Batch{
			Batch: &testproto.Batch{Commands: []*testproto.Command{putOf(1), getOf("k")}},
		}}, byVariant{"put": {1, 27, 50}, "get": {1, 28, 50}}},
		{"another case", "batch.commands.kind", getOf("k"), byVariant{"": {1, 55, 100}}},
		{"an envelope too", "commands.kind", &testproto.Batch{
			Inner: &testproto.Batch_Get{Get: &testproto.Get{}}, Commands: []*testproto.Command{putOf(1)},
		}, byVariant{"put": {1, 55, 100}}},
		{"opaque API", "commands.kind", opaque(func(b *opaquepb.Bundle_builder, c ...*opaquepb.Command) { b.Commands = c }), opaqueParts},
		{"opaque API, lazy", "late.kind", opaque(func(b *opaquepb.Bundle_builder, c ...*opaquepb.Command) { b.Late = c }), opaqueParts},
		{"opaque API, empty", "commands.kind", &opaquepb.Bundle{}, byVariant{"": {1, 55, 100}}},
		{"opaque API, nested", "inner.commands.kind", opaque(func(b *opaquepb.Bundle_builder, c ...*opaquepb.Command) {
			b.Inner = opaquepb.Bundle_builder{Commands: c}.Build()
		}), opaqueParts},
	} {
		name := c.payload.ProtoReflect().Descriptor().FullName()

		decoded := c.payload.ProtoReflect().New().Interface()
		if b, err := proto.Marshal(c.payload); err != nil || proto.Unmarshal(b, decoded) != nil {
			t.Fatal(err)
		}

		for kind, payload := range map[string]proto.Message{
			"generated": c.payload, "decoded": decoded, "dynamic": dynamically(t, c.payload),
		} {
			for sink, start := range recorders(t, otelproto.WithVariantField(name, c.path)) {
				t.Run(c.what+"/"+kind+"/"+sink, func(t *testing.T) {
					reports := catchReports(t)
					h, recorded := start()
					ctx := begin(h)
					want := make(byVariant)

					for range 3 { // known kinds are found in another way than new ones, and so are those after another message
						h.HandleRPC(ctx, &grpcstats.InPayload{Payload: payload, Length: 100, WireLength: 55})
						h.HandleRPC(ctx, &grpcstats.InPayload{Payload: &testproto.Plain{}, Length: 1, WireLength: 6})
					}

					for v, n := range c.want {
						want[v] = counts{3 * n.Messages, 3 * n.Wire, 3 * n.Size}
					}

					diff(t, "parts", recorded(), map[string]byVariant{string(name): want, "otelproto.test.Plain": {"": {3, 18, 3}}})
					diff(t, "reports", reports.all(), []string{})
				})
			}
		}
	}
}

// The same type may stand in a repeated field and be a message itself.
func TestElementsAndMessagesOfOneTypeStayApart(t *testing.T) {
	opts := []otelproto.Option{
		otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind"),
		otelproto.WithVariantField("otelproto.test.Batch", "commands.id"),
	}
	for sink, start := range recorders(t, opts...) {
		t.Run(sink, func(t *testing.T) {
			h, recorded := start()
			ctx := begin(h)

			for range 3 {
				for _, p := range []any{
					getOf("k"), bundle(getOf("k")), bundle(), &testproto.Batch{Commands: []*testproto.Command{getOf("k")}},
					&testproto.Batch{}, bundle(&testproto.Command{}), &testproto.Command{},
				} {
					h.HandleRPC(ctx, &grpcstats.InPayload{Payload: p, Length: 10, WireLength: 15})
				}
			}

			diff(t, "counts", recorded(), map[string]byVariant{
				"otelproto.test.Command": {"get": {3, 45, 30}, "": {3, 45, 30}},
				"otelproto.test.Bundle":  {"get": {3, 45, 30}, "": {6, 90, 60}},
				"otelproto.test.Batch":   {"": {6, 90, 60}},
			})
		})
	}
}

// A generated message remembers its size from the last time that it was asked for, and may have changed since.
func TestTheSizesOfElementsAreThoseOfNow(t *testing.T) {
	for sink, start := range recorders(t, otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind")) {
		t.Run(sink, func(t *testing.T) {
			b := bundle(putOf(6), getOf("12345678901234567890123456"))
			diff(t, "size at first", proto.Size(b), 10+30+4)
			b.GetCommands()[0].GetPut().Value = make([]byte, 86)

			h, recorded := start()
			h.HandleRPC(begin(h), &grpcstats.OutPayload{Payload: b, Length: 120, WireLength: 60})
			diff(t, "parts", recorded(), map[string]byVariant{"otelproto.test.Bundle": {"put": {1, 45, 90}, "get": {1, 15, 30}}})
		})
	}
}

// naive divides a message's sizes among its elements as the documentation says it, in the plainest way.
func naive(into byVariant, elements []proto.Message, variant func(proto.Message) string, wire, size int) error {
	encoded := make([]int64, len(elements))
	total := int64(0)

	for i, e := range elements {
		b, err := proto.Marshal(e)
		if err != nil {
			return err
		}

		encoded[i] = int64(len(b))
		total += encoded[i]
	}

	if len(elements) == 0 {
		elements, encoded, total, variant = []proto.Message{nil}, []int64{1}, 1, func(proto.Message) string { return "" }
	}

	if total == 0 {
		for i := range encoded {
			encoded[i] = 1
		}

		total = int64(len(encoded))
	}

	upTo := func(whole int, n int64) uint64 {
		p := new(big.Int).Mul(big.NewInt(int64(whole)), big.NewInt(n))

		return p.Div(p, big.NewInt(total)).Uint64()
	}
	before := int64(0)

	for i, e := range elements {
		v := variant(e)
		c := into[v]
		c.Messages++
		c.Wire += upTo(wire, before+encoded[i]) - upTo(wire, before)
		c.Size += upTo(size, before+encoded[i]) - upTo(size, before)
		into[v] = c
		before += encoded[i]
	}

	return nil
}

func kindOf(m proto.Message) string { return caseOf(m, "kind") }

func caseOf(m proto.Message, oneof protoreflect.Name) string {
	r := m.ProtoReflect()

	f := r.WhichOneof(r.Descriptor().Oneofs().ByName(oneof))
	if f == nil {
		return ""
	}

	return string(f.Name())
}

func asMessages[M proto.Message](ms []M) (all []proto.Message) {
	for _, m := range ms {
		all = append(all, m)
	}

	return all
}

// randomCommand gives commands of 0 to some 1,000 bytes, many of them small.
func randomCommand(r *rand.Rand) *testproto.Command {
	text := strings.Repeat("x", r.IntN(1+r.IntN(1_000)))

	switch r.IntN(8) {
	case 0:
		return &testproto.Command{}
	case 1:
		return &testproto.Command{Id: text}
	case 2:
		return &testproto.Command{Kind: &testproto.Command_Note{Note: text}}
	case 3:
		return &testproto.Command{Kind: &testproto.Command_Peek{Peek: &testproto.Get{Key: text}}}
	case 4:
		return &testproto.Command{Kind: &testproto.Command_Batch{Batch: &testproto.Batch{
			Commands: []*testproto.Command{{Id: text}, getOf("k")},
		}}}
	case 5:
		return nil
	case 6:
		return getOf(text)
	default:
		return putOf(r.IntN(100))
	}
}

func randomSize(r *rand.Rand) int { return int(r.Uint64() >> (24 + r.IntN(40))) }

func TestPartsAddUpToTheMessage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	for sink, start := range recorders(t,
		otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind"),
		otelproto.WithVariantField("otelproto.test.opaque.Bundle", "inner.commands.kind"),
		otelproto.WithVariantField("otelproto.test.Batch", "commands.id"),
	) {
		t.Run(sink, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			h, recorded := start()
			ctx := begin(h)
			want := map[string]byVariant{"otelproto.test.Bundle": {}, "otelproto.test.opaque.Bundle": {}, "otelproto.test.Batch": {}}
			sent := make(map[string]counts)

			for range 2_000 {
				var (
					payload  proto.Message
					elements []proto.Message
				)

				variant := kindOf

				switch r.IntN(4) {
				case 0, 1:
					b := &testproto.Bundle{Ids: make([]uint64, r.IntN(3))}
					for range r.IntN(20) {
						b.Commands = append(b.Commands, randomCommand(r))
					}

					payload, elements = b, asMessages(b.GetCommands())
				case 2:
					b := opaquepb.Bundle_builder{}
					for range r.IntN(5) {
						b.Commands = append(b.Commands, opaquepb.Command_builder{Get: opaquepb.Get_builder{Key: new("k")}.Build()}.Build())
					}

					payload, elements = opaquepb.Bundle_builder{Inner: b.Build()}.Build(), asMessages(b.Commands)
				default:
					b := &testproto.Batch{}
					for range r.IntN(5) {
						b.Commands = append(b.Commands, &testproto.Command{Id: strconv.Itoa(r.IntN(50)), Trace: new("123")})
					}

					payload, elements = b, asMessages(b.GetCommands())
					variant = func(m proto.Message) string { return m.(*testproto.Command).GetId() }
				}

				name := string(payload.ProtoReflect().Descriptor().FullName())
				wire, size := randomSize(r), randomSize(r)

				if r.IntN(2) == 0 {
					wire = size + 5
				}

				if err := naive(want[name], elements, variant, wire, size); err != nil {
					t.Fatal(err)
				}

				c := sent[name]
				sent[name] = counts{c.Messages + uint64(max(len(elements), 1)), c.Wire + uint64(wire), c.Size + uint64(size)}

				if r.IntN(4) == 0 {
					payload = dynamically(t, payload)
				}

				h.HandleRPC(ctx, &grpcstats.InPayload{Payload: payload, Length: size, WireLength: wire})
			}

			got := recorded()
			diff(t, "parts", got, want)

			for name, parts := range got {
				var sum counts
				for _, c := range parts {
					sum = counts{sum.Messages + c.Messages, sum.Wire + c.Wire, sum.Size + c.Size}
				}

				diff(t, "sum of "+name, sum, sent[name])
			}
		})
	}
}

// splitWitness divides grpc's own numbers for each Command with a batch among the batch's commands.
type splitWitness struct{ witness }

func (w *splitWitness) add(d stats.Direction, payload any, wire, size int) {
	m := payload.(proto.Message)
	k := stats.Key{Direction: d, Type: string(m.ProtoReflect().Descriptor().FullName())}
	parts := byVariant{}

	if c, ok := m.(*testproto.Command); ok {
		if err := naive(parts, asMessages(c.GetBatch().GetCommands()), kindOf, wire, size); err != nil {
			panic(err)
		}
	} else {
		parts[caseOf(m, "result")] = counts{1, uint64(wire), uint64(size)}
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if w.rows == nil {
		w.rows = make(map[stats.Key]counts)
	}

	for v, c := range parts {
		k.Variant = v
		w.rows[k] = w.rows[k].plus(c)
	}
}

func (w *splitWitness) HandleRPC(_ context.Context, rs grpcstats.RPCStats) {
	switch rs := rs.(type) {
	case *grpcstats.InPayload:
		w.add(stats.Receive, rs.Payload, rs.WireLength, rs.Length)
	case *grpcstats.OutPayload:
		w.add(stats.Transmit, rs.Payload, rs.WireLength, rs.Length)
	}
}

func (c counts) plus(o counts) counts {
	return counts{c.Messages + o.Messages, c.Wire + o.Wire, c.Size + o.Size}
}

// folded forgets the methods and which attempts were retries.
func folded(rows map[stats.Key]counts) map[stats.Key]counts {
	m := make(map[stats.Key]counts)

	for k, c := range rows {
		k.Method, k.Retry = "", false
		m[k] = m[k].plus(c)
	}

	return m
}

// batches makes calls whose commands carry from none to many commands.
func batches(t *testing.T, client testproto.TestClient, opts ...grpc.CallOption) {
	t.Helper()

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	r := rand.New(rand.NewPCG(seed, 2))

	var commands []*testproto.Command

	for n := range 20 { // the longest first, of which the first calls repeat some
		b := &testproto.Batch{}
		for range 20 - n {
			b.Commands = append(b.Commands, randomCommand(r))
		}

		commands = append(commands, &testproto.Command{Kind: &testproto.Command_Batch{Batch: b}})
	}

	for _, c := range append(commands, getOf("k")) {
		if _, err := client.Unary(t.Context(), c, opts...); err != nil {
			t.Fatal(err)
		}
	}

	up, err := client.ClientStream(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range commands {
		if err := up.Send(c); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}

	if _, err := up.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
}

func TestBothSidesSplitWhatGRPCCounts(t *testing.T) {
	for name, c := range map[string]struct {
		call     []grpc.CallOption
		failures int32
		retried  bool
	}{
		"plain": {}, "gzip": {call: []grpc.CallOption{useGzip()}}, "retries": {failures: 2, retried: true},
	} {
		t.Run(name, func(t *testing.T) {
			var atClient, atServer splitWitness

			reg := stats.NewRegistry()
			reader, mp := newReader()
			declared := otelproto.WithVariantField("otelproto.test.Command", "batch.commands.kind")
			service := &flaky{}
			service.failures.Store(c.failures)

			p := grpctest.New(t, grpctest.Options{
				Service: service,
				Server: []grpc.ServerOption{
					grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithMeterProvider(mp), declared)), grpc.StatsHandler(&atServer),
				},
				Dial: append(otelproto.DialOptions(otelproto.WithRegistry(reg), declared), grpc.WithStatsHandler(&atClient),
					grpc.WithDefaultServiceConfig(retryConfig)),
			})
			batches(t, p.Client, c.call...)
			p.Close()

			client := rowsOf(reg.Snapshot().Total, true)
			server := make(map[stats.Key]counts)

			for k, r := range asRows(t, points(t, reader)) {
				server[k] = counts{r.Messages, r.Wire.Sum, r.Size.Sum}
			}

			diff(t, "client and grpc", folded(client), atClient.rows)
			diff(t, "server and grpc", folded(server), atServer.rows)
			diff(t, "server and client", mirrored(server), client)

			retried := false
			for k := range client {
				retried = retried || k.Retry && k.Type == "otelproto.test.Command" && k.Variant != ""
			}

			diff(t, "retried parts", retried, c.retried)
		})
	}
}

func TestSixtyFiveThousandElements(t *testing.T) {
	const n = 1 << 16

	big := bundle(make([]*testproto.Command, n)...) // of nil, as if a caller had forgotten to fill them in
	for i := range n / 2 {
		big.Commands[2*i] = getOf("key")
	}

	for sink, start := range recorders(t, otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind")) {
		for kind, payload := range map[string]proto.Message{"generated": big, "dynamic": dynamically(t, big)} {
			t.Run(sink+"/"+kind, func(t *testing.T) {
				h, recorded := start()
				h.HandleRPC(begin(h), &grpcstats.InPayload{Payload: payload, Length: 7*n + 1, WireLength: 7*n + 6})
				diff(t, "parts", recorded(), map[string]byVariant{
					"otelproto.test.Bundle": {"get": {n / 2, 7*n + 6, 7*n + 1}, "": {n / 2, 0, 0}},
				})
			})
		}
	}
}

func TestWhatIsBeyondSixtyFiveThousandElementsCountsAsOneOther(t *testing.T) {
	const n, beyond = 1 << 16, 3

	huge := bundle()
	for range n + beyond {
		huge.Commands = append(huge.Commands, getOf("key")) // 7 bytes
	}

	for sink, start := range recorders(t, otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind")) {
		t.Run(sink, func(t *testing.T) {
			reports := catchReports(t)
			h, recorded := start()
			ctx := begin(h)

			for range 2 {
				h.HandleRPC(ctx, &grpcstats.InPayload{Payload: huge, Length: 9 * (n + beyond), WireLength: 3 * (n + beyond)})
			}

			diff(t, "parts", recorded(), map[string]byVariant{
				"otelproto.test.Bundle": {"get": {2 * n, 2 * 3 * n, 2 * 9 * n}, "_OTHER": {2, 2 * 3 * beyond, 2 * 9 * beyond}},
			})
			diff(t, "reports", len(reports.all()), 1)
		})
	}
}

// What is beyond the limits folds together, and its parts still add up.
func TestPartsBeyondTheLimitsFoldIntoOther(t *testing.T) {
	for sink, start := range recorders(t,
		otelproto.WithSeriesLimit(1), otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind")) {
		t.Run("series/"+sink, func(t *testing.T) {
			reports := catchReports(t)
			h, recorded := start()
			ctx := begin(h)

			for range 2 {
				h.HandleRPC(ctx, &grpcstats.InPayload{
					Payload: bundle(getOf("k"), putOf(1), getOf("k"), putOf(1)), Length: 40, WireLength: 45,
				})
			}

			diff(t, "parts", recorded(), map[string]byVariant{"otelproto.test.Bundle": {"get": {4, 44, 40}}, "_OTHER": {"": {4, 46, 40}}})
			diff(t, "reports", len(reports.all()), 1)
		})
	}

	for sink, start := range recorders(t, otelproto.WithVariantField("otelproto.test.Bundle", "tagged.name")) {
		t.Run("values/"+sink, func(t *testing.T) {
			reports := catchReports(t)
			h, recorded := start()
			ctx := begin(h)

			for i := range 100 {
				b := &testproto.Bundle{}
				for j := range 10 {
					b.Tagged = append(b.Tagged, &testproto.Tagged{Name: fmt.Sprintf("%03d", 10*i+j)})
				}

				h.HandleRPC(ctx, &grpcstats.InPayload{Payload: b, Length: 100, WireLength: 105})
			}

			got := recorded()["otelproto.test.Bundle"]
			diff(t, "variants", len(got), 101)
			diff(t, "the others", got["_OTHER"], counts{900, 90 * 105, 9_000})
			diff(t, "reports", len(reports.all()), 1)
		})
	}
}

// One message may be sent on many streams at once, and a registry be read meanwhile.
func TestAMessageMaySplitOnManyStreamsAtOnce(t *testing.T) {
	b := bundle(getOf("k"), putOf(1), getOf("12345"), nil, &testproto.Command{Id: "id"})

	for sink, start := range recorders(t, otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind")) {
		t.Run(sink, func(t *testing.T) {
			h, recorded := start()
			ctx := begin(h)

			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 500 {
						h.HandleRPC(ctx, &grpcstats.OutPayload{Payload: b, Length: 200, WireLength: 105})
					}
				})
			}
			wg.Wait()

			want := byVariant{}
			if err := naive(want, asMessages(b.GetCommands()), kindOf, 105, 200); err != nil {
				t.Fatal(err)
			}

			for v, c := range want {
				want[v] = counts{2_000 * c.Messages, 2_000 * c.Wire, 2_000 * c.Size}
			}

			diff(t, "parts", recorded(), map[string]byVariant{"otelproto.test.Bundle": want})
		})
	}
}
