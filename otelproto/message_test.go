package otelproto_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/internal/testproto/opaquepb"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// named gives type and variant of each payload as a handler with these options names them, in the order of the payloads.
func named(t *testing.T, opts []otelproto.Option, payloads ...any) []string {
	t.Helper()

	reg := stats.NewRegistry()
	h := otelproto.NewServerHandler(append(opts, otelproto.WithRegistry(reg))...)
	ctx := begin(h)

	var names []string

	before := reg.Snapshot()

	for _, p := range payloads {
		h.HandleRPC(ctx, &grpcstats.InPayload{Payload: p, Length: 10, WireLength: 15})

		after := reg.Snapshot()
		w := after.Sub(before)
		before = after

		if len(w.Total) != 1 || w.Total[0].Wire.Sum != 15 || w.Total[0].Size.Sum != 10 {
			t.Fatalf("%T: %+v", p, w.Total)
		}

		names = append(names, strings.TrimSuffix(w.Total[0].Key.Type+" "+w.Total[0].Key.Variant, " "))
	}

	return names
}

//revive:disable:var-naming // the generators of the first API name methods so

// oldMessage is as golang/protobuf of the first API and gogo generate them: no reflection, a descriptor or a name instead.
type oldMessage struct {
	Kind isOldKind `protobuf_oneof:"kind"`
}

type isOldKind interface{ isOldKind() }

func (*oldMessage) Reset()                     {}
func (*oldMessage) String() string             { return "" }
func (*oldMessage) ProtoMessage()              {}
func (*oldMessage) XXX_MessageName() string    { return "old.Message" }
func (*oldMessage) XXX_OneofWrappers() []any   { return []any{(*oldPut)(nil), (*oldGet)(nil)} }
func (*oldPut) isOldKind()                     {}
func (*oldGet) isOldKind()                     {}
func (*oldPart) Reset()                        {}
func (*oldPart) String() string                { return "" }
func (*oldPart) ProtoMessage()                 {}
func (*oldNameless) Reset()                    {}
func (*oldNameless) String() string            { return "" }
func (*oldNameless) ProtoMessage()             {}
func (*oldBroken) Reset()                      {}
func (*oldBroken) String() string              { return "" }
func (*oldBroken) ProtoMessage()               {}
func (*oldBroken) Descriptor() ([]byte, []int) { return []byte("not a descriptor"), []int{0} }

type (
	oldPut struct {
		Put *oldPart `protobuf:"bytes,1,opt,name=put,proto3,oneof"`
	}
	oldGet struct {
		Get *oldPart `protobuf:"bytes,2,opt,name=get,proto3,oneof"`
	}
	oldPart     struct{}
	oldNameless struct{}
	oldBroken   struct{}
)

// handMade is a message whose reflection panics.
type handMade struct{}

func (*handMade) ProtoReflect() protoreflect.Message { panic("none") }

func TestEveryPayloadIsNamedOrOpaque(t *testing.T) {
	command := (&testproto.Command{}).ProtoReflect().Descriptor()
	dynamic := dynamicpb.NewMessage(command)
	dynamic.Set(command.Fields().ByName("note"), protoreflect.ValueOfString("n"))

	var nothing *testproto.Command

	for _, c := range []struct {
		what    string
		payload any
		want    string
	}{
		{"generated", &testproto.Plain{}, "otelproto.test.Plain"},
		{"generated, opaque API", &opaquepb.Put{}, "otelproto.test.opaque.Put"},
		{"nil pointer to a generated one", nothing, "otelproto.test.Command"},
		{"nil", nil, "_OPAQUE"},
		{"bytes", []byte("x"), "_OPAQUE"},
		{"string", "x", "_OPAQUE"},
		{"struct", struct{ F func() }{}, "_OPAQUE"},
		{"prepared", &grpc.PreparedMsg{}, "_OPAQUE"},
		{"dynamic", dynamicpb.NewMessage(command), "otelproto.test.Command"},
		{"dynamic with a case", dynamic, "otelproto.test.Command note"},
		{"dynamic, empty", &dynamicpb.Message{}, "_OPAQUE"},
		{"dynamic, nil", (*dynamicpb.Message)(nil), "_OPAQUE"},
		{"first API", &oldMessage{}, "old.Message"},
		{"first API with a case", &oldMessage{Kind: &oldGet{&oldPart{}}}, "old.Message get"},
		{"first API, nil wrapper", &oldMessage{Kind: (*oldGet)(nil)}, "old.Message"},
		{"first API, nil", (*oldMessage)(nil), "old.Message"},
		{"first API without a name", &oldNameless{}, "_OPAQUE"},
		{"first API, broken", &oldBroken{}, "_OPAQUE"},
		{"hand-made", &handMade{}, "_OPAQUE"},
		{"hand-made, nil", (*handMade)(nil), "_OPAQUE"},
	} {
		// Twice, since the second one takes the short cut, and after another type.
		diff(t, c.what, named(t, nil, c.payload, c.payload, &testproto.Two{}, c.payload),
			[]string{c.want, c.want, "otelproto.test.Two", c.want})
	}
}

func TestVariantsOfEnvelopesAreAutomatic(t *testing.T) {
	put, get := &testproto.Put{}, &testproto.Get{}
	payloads := []any{
		&testproto.Command{Kind: &testproto.Command_Put{Put: put}},
		&testproto.Command{Kind: &testproto.Command_Get{Get: get}},
		&testproto.Command{Kind: &testproto.Command_Peek{Peek: get}}, // the same type behind another case
		&testproto.Command{Kind: &testproto.Command_Note{}},          // a case that is no message
		&testproto.Command{Kind: &testproto.Command_Put{}},           // set, with a nil message
		&testproto.Command{Kind: (*testproto.Command_Put)(nil)},
		&testproto.Command{Priority: proto.Uint32(1)}, // a synthetic oneof
		&testproto.Command{Kind: &testproto.Command_Put{Put: put}},
		opaquepb.Command_builder{Put: &opaquepb.Put{}}.Build(),
		opaquepb.Command_builder{Get: &opaquepb.Get{}}.Build(),
		&opaquepb.Command{},
		&testproto.Batch{Inner: &testproto.Batch_Get{Get: get}},
		&testproto.Choice{Choice: &testproto.Choice_Get{Get: get}}, // one message case only
		&testproto.Two{Left: &testproto.Two_LeftPut{LeftPut: put}}, // two oneofs
	}
	want := []string{
		"otelproto.test.Command put", "otelproto.test.Command get", "otelproto.test.Command peek", "otelproto.test.Command note",
		"otelproto.test.Command put", "otelproto.test.Command", "otelproto.test.Command", "otelproto.test.Command put",
		"otelproto.test.opaque.Command put", "otelproto.test.opaque.Command get", "otelproto.test.opaque.Command",
		"otelproto.test.Batch get", "otelproto.test.Choice", "otelproto.test.Two",
	}
	diff(t, "automatic", named(t, nil, payloads...), want)

	for i, w := range want {
		want[i], _, _ = strings.Cut(w, " ")
	}

	diff(t, "without", named(t, []otelproto.Option{otelproto.WithoutVariants()}, payloads...), want)
}

func TestDeclaredDiscriminators(t *testing.T) {
	detail, err := anypb.New(&testproto.Put{})
	if err != nil {
		t.Fatal(err)
	}

	header := func(kind string) *testproto.Tagged { return &testproto.Tagged{Header: &testproto.Header{Kind: kind}} }
	get := &testproto.Command{Kind: &testproto.Command_Get{Get: &testproto.Get{}}}
	blue := testproto.Color_COLOR_BLUE

	for _, c := range []struct {
		message protoreflect.FullName
		path    string
		payload proto.Message
		want    string
	}{
		{"otelproto.test.Tagged", "color", &testproto.Tagged{Color: testproto.Color_COLOR_RED}, "COLOR_RED"},
		{"otelproto.test.Tagged", "color", &testproto.Tagged{}, "COLOR_UNSPECIFIED"},
		{"otelproto.test.Tagged", "color", &testproto.Tagged{Color: 77}, "77"},
		{"otelproto.test.Tagged", "maybe_color", &testproto.Tagged{MaybeColor: &blue}, "COLOR_BLUE"},
		{"otelproto.test.Tagged", "maybe_color", &testproto.Tagged{}, ""},
		{"otelproto.test.Tagged", "name", &testproto.Tagged{Name: "name"}, "name"},
		{"otelproto.test.Tagged", "name", &testproto.Tagged{}, ""},
		{"otelproto.test.Tagged", "urgent", &testproto.Tagged{Urgent: true}, "true"},
		{"otelproto.test.Tagged", "urgent", &testproto.Tagged{}, "false"},
		{"otelproto.test.Tagged", "maybe_urgent", &testproto.Tagged{MaybeUrgent: new(false)}, "false"},
		{"otelproto.test.Tagged", "maybe_urgent", &testproto.Tagged{}, ""},
		{"otelproto.test.Tagged", "detail", &testproto.Tagged{Detail: detail}, "otelproto.test.Put"},
		{"otelproto.test.Tagged", "detail", &testproto.Tagged{}, ""},
		{"otelproto.test.Tagged", "header.kind", header("k"), "k"},
		{"otelproto.test.Tagged", "header.kind", &testproto.Tagged{}, ""},
		{"otelproto.test.Tagged", "header.command.kind", &testproto.Tagged{Header: &testproto.Header{Command: get}}, "get"},
		{"otelproto.test.Tagged", "header.command.get.key", &testproto.Tagged{Header: &testproto.Header{Command: get}}, ""},
		{"otelproto.test.Two", "left", &testproto.Two{Left: &testproto.Two_LeftGet{}}, "left_get"},
		{"otelproto.test.Two", "right", &testproto.Two{Left: &testproto.Two_LeftGet{}}, ""},
		{"otelproto.test.Choice", "choice", &testproto.Choice{Choice: &testproto.Choice_Text{}}, "text"},
		{"otelproto.test.Command", "id", &testproto.Command{Id: "declared", Kind: &testproto.Command_Get{}}, "declared"},
		{"otelproto.test.Command", "kind", nilCommand(), ""},
		{"otelproto.test.opaque.Put", "key", opaquepb.Put_builder{Key: new("k")}.Build(), "k"},
	} {
		t.Run(fmt.Sprintf("%s.%s/%s", c.message, c.path, c.want), func(t *testing.T) {
			reports := catchReports(t)
			want := strings.TrimSuffix(string(c.message)+" "+c.want, " ")
			other := &testproto.Plain{}

			// A dynamic message has the same discriminator as the generated one.
			payloads := []any{c.payload, c.payload, other, c.payload}
			wants := []string{want, want, "otelproto.test.Plain", want}

			if c.payload.ProtoReflect().IsValid() {
				d := dynamicpb.NewMessage(c.payload.ProtoReflect().Descriptor())

				b, err := proto.Marshal(c.payload)
				if err != nil {
					t.Fatal(err)
				}

				if err := proto.Unmarshal(b, d); err != nil {
					t.Fatal(err)
				}

				payloads, wants = append(payloads, d, d), append(wants, want, want)
			}

			diff(t, "variant", named(t, []otelproto.Option{otelproto.WithVariantField(c.message, c.path)}, payloads...), wants)
			diff(t, "reports", reports.all(), []string{})
		})
	}
}

func nilCommand() *testproto.Command { return nil }

func TestVariantFuncNamesWhateverItKnows(t *testing.T) {
	reports := catchReports(t)
	f := otelproto.WithVariantFunc(func(p any) (string, bool) {
		switch p := p.(type) {
		case []byte:
			return string(p[:1]), true // panics on empty frames
		case *testproto.Plain:
			return "plain", true
		default:
			return "ignored", false
		}
	})
	field := otelproto.WithVariantField("otelproto.test.Tagged", "name")

	got := named(t, []otelproto.Option{f, field},
		[]byte("ab"), []byte("ac"), []byte("b"), []byte{}, []byte{}, &testproto.Plain{},
		&testproto.Command{Kind: &testproto.Command_Get{}}, &testproto.Command{}, &testproto.Tagged{Name: "declared"}, 7)
	diff(t, "names", got, []string{
		"_OPAQUE a", "_OPAQUE a", "_OPAQUE b", "_OPAQUE", "_OPAQUE", "otelproto.test.Plain plain",
		"otelproto.test.Command get", "otelproto.test.Command", "otelproto.test.Tagged declared", "_OPAQUE",
	})

	if r := reports.all(); len(r) != 1 || !strings.Contains(r[0], "panic") {
		t.Errorf("reports of the panic: %q", r)
	}
}

func TestValuesOfStringDiscriminatorsAreLimited(t *testing.T) {
	for what, value := range map[string]func(i int) *testproto.Tagged{
		"string": func(i int) *testproto.Tagged { return &testproto.Tagged{Name: fmt.Sprint("v", i)} },
		"long":   func(i int) *testproto.Tagged { return &testproto.Tagged{Name: strings.Repeat("x", 257+i)} },
	} {
		t.Run(what, func(t *testing.T) {
			reports := catchReports(t)
			reg := stats.NewRegistry()
			h := otelproto.NewServerHandler(otelproto.WithRegistry(reg), otelproto.WithVariantField("otelproto.test.Tagged", "name"))
			ctx := begin(h)

			for i := range 1_000 {
				h.HandleRPC(ctx, &grpcstats.InPayload{Payload: value(i), WireLength: 5})
			}

			variants := make(map[string]uint64)
			for _, r := range reg.Snapshot().Total {
				variants[r.Key.Variant] = r.Messages
			}

			want := map[string]uint64{"_OTHER": 1_000}
			if what == "string" {
				want["_OTHER"] = 900
				for i := range 100 {
					want[fmt.Sprint("v", i)] = 1
				}
			}

			diff(t, "messages by variant", variants, want)
			diff(t, "reports", len(reports.all()), 1)
		})
	}
}

// A proxy may load descriptors again and again, and each makes its messages dynamically.
func TestDynamicTypesAreLimitedAndDescriptorsMayChange(t *testing.T) {
	reports := catchReports(t)
	message := func(file, name string) proto.Message {
		fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
			Name: new(file), Package: new("dyn"), Syntax: new("proto3"),
			MessageType: []*descriptorpb.DescriptorProto{{Name: new(name)}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}

		return dynamicpb.NewMessage(fd.Messages().Get(0))
	}

	reg := stats.NewRegistry()
	h := otelproto.NewServerHandler(otelproto.WithRegistry(reg), otelproto.WithSeriesLimit(5_000))
	ctx := begin(h)

	for i := range 50 {
		h.HandleRPC(ctx, &grpcstats.InPayload{Payload: message(fmt.Sprint("again", i), "Same"), WireLength: 5})
	}

	diff(t, "series of one name", len(reg.Snapshot().Total), 1)

	for i := range 1_500 {
		h.HandleRPC(ctx, &grpcstats.InPayload{Payload: message(fmt.Sprint("f", i), fmt.Sprint("M", i)), WireLength: 5})
	}

	s := reg.Snapshot()
	diff(t, "series", len(s.Total), 1_001)
	diff(t, "the last one", s.Total[1_000].Key.Type, "_OTHER")
	diff(t, "its messages", s.Total[1_000].Messages, uint64(501))
	diff(t, "reports", len(reports.all()), 1)
}

func TestSeriesBeyondTheLimitFoldIntoOther(t *testing.T) {
	for sink, options := range map[string]func() ([]otelproto.Option, func() []stats.Key){
		"registry": func() ([]otelproto.Option, func() []stats.Key) {
			reg := stats.NewRegistry()

			return []otelproto.Option{otelproto.WithRegistry(reg)}, func() (keys []stats.Key) {
				for _, r := range reg.Snapshot().Total {
					keys = append(keys, r.Key)
				}

				return keys
			}
		},
		"instruments": func() ([]otelproto.Option, func() []stats.Key) {
			reader, mp := newReader()

			return []otelproto.Option{otelproto.WithMeterProvider(mp)}, func() (keys []stats.Key) {
				for k := range asRows(t, points(t, reader)) {
					keys = append(keys, k)
				}

				return keys
			}
		},
	} {
		t.Run(sink, func(t *testing.T) {
			reports := catchReports(t)
			opts, keys := options()
			h := otelproto.NewClientHandler(append(opts, otelproto.WithSeriesLimit(3))...)

			for i := range 100 {
				send(context.Background(), h, fmt.Sprintf("/s/m%d", i), fmt.Sprint("host", i%2))()
			}

			got := keys()
			want := map[string]bool{"s/m0": true, "s/m1": true, "s/m2": true, "_OTHER": true}

			for _, k := range got {
				if !want[k.Method] || (k.Type == "_OTHER") != (k.Method == "_OTHER") {
					t.Errorf("%+v", k)
				}
			}

			diff(t, "series", len(got), 4)
			diff(t, "reports", len(reports.all()), 1)
		})
	}
}

// An error handler may itself use gRPC, with the same handler and on the same connection.
func TestAReportMayComeBack(t *testing.T) {
	reg := stats.NewRegistry()
	h := otelproto.NewServerHandler(otelproto.WithRegistry(reg), otelproto.WithSeriesLimit(1),
		otelproto.WithVariantField("otelproto.test.Tagged", "name"))
	ctx := begin(h)
	record := func(p any) { h.HandleRPC(ctx, &grpcstats.InPayload{Payload: p, WireLength: 5}) }
	n := 0

	before := otel.GetErrorHandler()
	defer otel.SetErrorHandler(before)

	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {
		n++

		record(&testproto.Plain{})
		record(&testproto.Tagged{Name: strings.Repeat("x", 300)})
	}))

	record(&testproto.Put{})
	record(&testproto.Get{})
	record(&testproto.Tagged{Name: strings.Repeat("x", 300)})
	diff(t, "reports", n, 2)
}

// Many methods on one connection: what the connection keeps for them is limited too.
func TestMethodsOfAConnectionAreLimited(t *testing.T) {
	reports := catchReports(t)
	reg := stats.NewRegistry()
	h := otelproto.NewServerHandler(otelproto.WithRegistry(reg), otelproto.WithSeriesLimit(10))
	conn := h.TagConn(t.Context(), &grpcstats.ConnTagInfo{})

	for i := range 1_000 {
		ctx := h.TagRPC(conn, &grpcstats.RPCTagInfo{FullMethodName: fmt.Sprintf("/s/m%d", i)})
		h.HandleRPC(ctx, &grpcstats.Begin{})
		h.HandleRPC(ctx, &grpcstats.InPayload{Payload: &emptypb.Empty{}, WireLength: 5})
		h.HandleRPC(ctx, &grpcstats.End{})
	}

	s := reg.Snapshot()
	diff(t, "series", len(s.Total), 11)
	diff(t, "other", s.Total[10].Messages, uint64(990))
	diff(t, "reports", len(reports.all()), 1)
}
