package otelproto_test

import (
	"bytes"
	"compress/gzip"
	"math"
	"strings"
	"sync"
	"testing"

	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/otelproto"
)

// gogoFile is a file that only gogo's registry would know.
func gogoFile() *descriptorpb.FileDescriptorProto {
	type label = descriptorpb.FieldDescriptorProto_Label

	field := func(name string, number int32, message string, label label) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{
			Name: &name, Number: &number, Label: &label, TypeName: &message, Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(),
		}
	}
	repeated, optional := descriptorpb.FieldDescriptorProto_LABEL_REPEATED, descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
	put, get := field("put", 1, ".gogo.Word", optional), field("get", 2, ".gogo.Word", optional)
	put.OneofIndex, get.OneofIndex = proto.Int32(0), proto.Int32(0)

	return &descriptorpb.FileDescriptorProto{
		Name: new("gogo.proto"), Package: new("gogo"), Syntax: new("proto3"), Dependency: []string{"elsewhere.proto"},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: new("Bundle"), Field: []*descriptorpb.FieldDescriptorProto{
				field("parts", 1, ".gogo.Part", repeated), field("values", 2, ".gogo.Part", repeated),
				field("part", 3, ".gogo.Part", optional), field("bundle", 4, ".gogo.Bundle", optional),
				field("other", 5, ".elsewhere.Other", optional),
			}},
			{
				Name: new("Part"), Field: []*descriptorpb.FieldDescriptorProto{put, get},
				OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: new("kind")}},
			},
			{Name: new("Word")},
		},
	}
}

var gogoDescriptor = sync.OnceValue(func() []byte {
	b, err := proto.Marshal(gogoFile())
	if err != nil {
		panic(err)
	}

	var zipped bytes.Buffer

	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(b)
	_ = w.Close()

	return zipped.Bytes()
})

//revive:disable:var-naming // the generators of the first API name methods so

// gogoBundle is as gogo generates it: slices of pointers and, not nullable, of structs.
type gogoBundle struct {
	Parts  []*gogoPart `protobuf:"bytes,1,rep,name=parts,proto3"`
	Values []gogoPart  `protobuf:"bytes,2,rep,name=values,proto3"`
	Part   *gogoPart   `protobuf:"bytes,3,opt,name=part,proto3"`
	Bundle *gogoBundle `protobuf:"bytes,4,opt,name=bundle,proto3"`
	Other  *oldPart    `protobuf:"bytes,5,opt,name=other,proto3"`
}

type gogoPart struct {
	Kind isGogoKind `protobuf_oneof:"kind"`
	// size is what the generated code would compute; it panics below zero.
	size int
	// later are the sizes that follow.
	later []int
}

type (
	isGogoKind interface{ isGogoKind() }
	gogoPut    struct {
		Put *gogoWord `protobuf:"bytes,1,opt,name=put,proto3,oneof"`
	}
	gogoGet struct {
		Get *gogoWord `protobuf:"bytes,2,opt,name=get,proto3,oneof"`
	}
	gogoWord struct{}
)

func (*gogoBundle) Reset()                      {}
func (*gogoBundle) String() string              { return "" }
func (*gogoBundle) ProtoMessage()               {}
func (*gogoBundle) Descriptor() ([]byte, []int) { return gogoDescriptor(), []int{0} }
func (*gogoPart) Reset()                        {}
func (*gogoPart) String() string                { return "" }
func (*gogoPart) ProtoMessage()                 {}
func (*gogoPart) Descriptor() ([]byte, []int)   { return gogoDescriptor(), []int{1} }
func (*gogoPart) XXX_OneofWrappers() []any      { return []any{(*gogoPut)(nil), (*gogoGet)(nil)} }
func (*gogoWord) Reset()                        {}
func (*gogoWord) String() string                { return "" }
func (*gogoWord) ProtoMessage()                 {}
func (*gogoWord) Descriptor() ([]byte, []int)   { return gogoDescriptor(), []int{2} }
func (*gogoPut) isGogoKind()                    {}
func (*gogoGet) isGogoKind()                    {}

func (m *gogoPart) XXX_Size() int {
	if m == nil {
		return 0
	}

	if m.size < 0 {
		panic("no size")
	}

	size := m.size
	if len(m.later) > 0 {
		m.size, m.later = m.later[0], m.later[1:]
	}

	return size
}

func TestADeclarationHoldsForAMessageThatTurnsUp(t *testing.T) {
	put, get := gogoPart{Kind: &gogoPut{}, size: 10}, gogoPart{Kind: &gogoGet{}, size: 30}
	whole := byVariant{"": {2, 110, 200}}

	for _, c := range []struct {
		what, path string
		payload    any
		want       byVariant
		// The reports after that of the construction.
		reports []string
	}{
		{"pointers", "parts.kind", &gogoBundle{Parts: []*gogoPart{&put, &get}}, byVariant{"put": {2, 26, 50}, "get": {2, 84, 150}}, nil},
		{"structs", "values.kind", &gogoBundle{Values: []gogoPart{put, get}}, byVariant{"put": {2, 26, 50}, "get": {2, 84, 150}}, nil},
		{
			"nested", "bundle.values.kind", &gogoBundle{Bundle: &gogoBundle{Values: []gogoPart{put, get}}},
			byVariant{"put": {2, 26, 50}, "get": {2, 84, 150}}, nil,
		},
		{"nil element", "parts.kind", &gogoBundle{Parts: []*gogoPart{nil, &get}}, byVariant{"": {2, 0, 0}, "get": {2, 110, 200}}, nil},
		{"nil case", "parts.kind", &gogoBundle{Parts: []*gogoPart{{Kind: (*gogoGet)(nil), size: 1}}}, whole, nil},
		{"no element", "parts.kind", &gogoBundle{}, whole, nil},
		{"nil", "parts.kind", (*gogoBundle)(nil), whole, nil},
		{"not repeated", "part.kind", &gogoBundle{Part: &get}, byVariant{"get": {2, 110, 200}}, nil},
		{
			"a size that panics", "parts.kind", &gogoBundle{Parts: []*gogoPart{&put, {size: -1}}},
			whole, []string{"elements of gogo.Bundle", "no size"},
		},
		{
			"wrong path", "parts.nothing", &gogoBundle{Parts: []*gogoPart{&put}},
			whole, []string{"WithVariantField", `no field or oneof "nothing"`},
		},
		{
			"a path to a file that nobody knows", "other.kind", &gogoBundle{Other: &oldPart{}},
			whole, []string{"WithVariantField", "elsewhere.Other is in a file that isn't linked in"},
		},
	} {
		for sink, start := range recorders(t, otelproto.WithVariantField("gogo.Bundle", c.path)) {
			t.Run(c.what+"/"+sink, func(t *testing.T) {
				reports := catchReports(t)
				h, recorded := start()

				r := reports.all()
				if len(r) != 1 || !strings.Contains(r[0], "registry of golang/protobuf") || !strings.Contains(r[0], "turns up") {
					t.Fatalf("reports of the construction: %q", r)
				}

				ctx := begin(h)
				for range 2 {
					h.HandleRPC(ctx, &grpcstats.InPayload{Payload: c.payload, Length: 100, WireLength: 55})
				}

				diff(t, "parts", recorded(), map[string]byVariant{"gogo.Bundle": c.want})

				r = reports.all()[1:]
				if len(r) != min(len(c.reports), 1) {
					t.Fatalf("reports: %q", r)
				}

				for _, w := range c.reports {
					if !strings.Contains(r[0], w) {
						t.Errorf("report %q doesn't say %q", r[0], w)
					}
				}
			})
		}
	}
}

// A caller may change a message that it has sent, against gRPC's rules, and a generated Size may do anything: the parts add up.
func TestPartsAddUpWhateverTheElementsSay(t *testing.T) {
	for _, c := range []struct {
		what  string
		parts func() []gogoPart
		want  byVariant
	}{
		{"smaller", func() []gogoPart {
			return []gogoPart{{Kind: &gogoPut{}, size: 10, later: []int{5}}, {Kind: &gogoGet{}, size: 30, later: []int{1}}}
		}, byVariant{"put": {1, 6, 12}, "get": {1, 49, 88}}},
		{"larger", func() []gogoPart {
			return []gogoPart{{Kind: &gogoPut{}, size: 10, later: []int{50}}, {Kind: &gogoGet{}, size: 30}}
		}, byVariant{"put": {1, 55, 100}, "get": {1, 0, 0}}},
		{"panic", func() []gogoPart {
			return []gogoPart{{Kind: &gogoPut{}, size: 10}, {Kind: &gogoGet{}, size: 10, later: []int{-1}}}
		}, byVariant{"put": {1, 27, 50}, "": {1, 28, 50}}},
		{"enormous", func() []gogoPart {
			p := gogoPart{Kind: &gogoPut{}, size: math.MaxInt}

			return []gogoPart{p, p, p, {Kind: &gogoGet{}, size: math.MaxInt}}
		}, byVariant{"put": {3, 41, 75}, "get": {1, 14, 25}}},
		{"none", func() []gogoPart {
			return []gogoPart{{Kind: &gogoPut{}, later: []int{7}}, {Kind: &gogoGet{}}}
		}, byVariant{"put": {1, 27, 50}, "get": {1, 28, 50}}},
	} {
		for sink, start := range recorders(t, otelproto.WithVariantField("gogo.Bundle", "values.kind")) {
			t.Run(c.what+"/"+sink, func(t *testing.T) {
				reports := catchReports(t)
				h, recorded := start()
				h.HandleRPC(begin(h), &grpcstats.OutPayload{Payload: &gogoBundle{Values: c.parts()}, Length: 100, WireLength: 55})
				diff(t, "parts", recorded(), map[string]byVariant{"gogo.Bundle": c.want})

				if _, unread := c.want[""]; unread != (len(reports.all()) == 2) {
					t.Errorf("reports: %q", reports.all())
				}
			})
		}
	}
}

// A proxy that loads descriptors may declare before it does, and may load another one of the same name.
func TestADeclarationHoldsForDescriptorsThatAreLoadedLater(t *testing.T) {
	for sink, start := range recorders(t, otelproto.WithVariantField("gogo.Bundle", "parts.kind")) {
		t.Run(sink, func(t *testing.T) {
			reports := catchReports(t)
			h, recorded := start()
			ctx := begin(h)

			for i := range 4 {
				file := gogoFile()
				if i%2 == 1 { // the field has another name, and what is automatic holds: nothing
					file.GetMessageType()[0].GetField()[0].Name = new("others")
				}

				fd, err := protodesc.FileOptions{AllowUnresolvable: true}.New(file, new(protoregistry.Files))
				if err != nil {
					t.Fatal(err)
				}

				m := dynamicpb.NewMessage(fd.Messages().Get(0))
				parts := m.Mutable(m.Descriptor().Fields().ByNumber(1)).List()

				for range 2 {
					parts.AppendMutable().Message().Mutable(fd.Messages().Get(1).Fields().ByName("get"))
				}

				h.HandleRPC(ctx, &grpcstats.InPayload{Payload: m, Length: 100, WireLength: 105})
			}

			diff(t, "parts", recorded(), map[string]byVariant{"gogo.Bundle": {"get": {4, 210, 200}, "": {2, 210, 200}}})

			if r := reports.all(); len(r) != 2 || !strings.Contains(r[1], `no field or oneof "parts"`) {
				t.Errorf("reports: %q", r)
			}
		})
	}
}

// Where a declared path is wrong for the message that turns up, what is automatic stays.
func TestAWrongDeclarationLeavesWhatIsAutomatic(t *testing.T) {
	reports := catchReports(t)
	opts := []otelproto.Option{otelproto.WithVariantField("old.Message", "nothing.kind")}

	diff(t, "names", named(t, opts, &oldMessage{Kind: &oldGet{}}, &oldMessage{Kind: &oldPut{}}, &oldMessage{}, &testproto.Plain{}),
		[]string{"old.Message get", "old.Message put", "old.Message", "otelproto.test.Plain"})
	diff(t, "reports", len(reports.all()), 2)
}
