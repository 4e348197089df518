package otelproto

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// repeated tells where the elements of a message are.
type repeated struct {
	// steps are the message fields that lead to the one with the list.
	steps []protoreflect.FieldDescriptor
	list  protoreflect.FieldDescriptor
	// holder is the generated type of the message with the list, nil where there is none, and offset and slice its field for
	// the list: protobuf's reflection would allocate.
	holder reflect.Type
	offset uintptr
	slice  reflect.Type
	// element is what is known of the elements. It has the name of the whole message.
	element *messageType
}

// newRepeated follows a path from the message with this name; t is nil where there is no struct.
func newRepeated(name string, p *variantPath, t reflect.Type) *repeated {
	r := &repeated{steps: p.steps, list: p.list, element: &messageType{name: name, descriptor: p.list.Message(), path: p.inner}}

	var element reflect.Type
	if holder := typeAt(t, p.steps); holder != nil {
		if f, ok := sliceField(holder, p.list); ok {
			r.holder, r.offset, r.slice = holder, f.Offset, f.Type
			element = elementType(f.Type)
		}
	}

	r.element.dynamic = element == nil
	r.element.setHow(p.inner.topOneof(), element)

	return r
}

// typeAt gives the generated type of the message to which steps lead.
func typeAt(t reflect.Type, steps []protoreflect.FieldDescriptor) (at reflect.Type) {
	if t == nil || len(steps) == 0 {
		return t
	}

	defer func() {
		if recover() != nil { // a step to no message that this protobuf module knows
			at = nil
		}
	}()

	m := protoReflect(reflect.New(t.Elem()).Interface())
	for _, f := range steps {
		m = m.Get(f).Message()
	}

	return reflect.TypeOf(goMessage(m))
}

// goMessage gives the message as the generated struct's pointer, of either API.
func goMessage(m protoreflect.Message) any { return protoadapt.MessageV1Of(m.Interface()) }

// sliceField finds the field of a generated struct that holds a list: a slice, in the opaque API a pointer to one. Lists that are
// decoded when they are first used are left to reflection.
func sliceField(t reflect.Type, list protoreflect.FieldDescriptor) (field reflect.StructField, ok bool) {
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return field, false
	}

	if l, ok := list.(interface{ IsLazy() bool }); ok && l.IsLazy() {
		return field, false
	}

	want := []string{strconv.Itoa(int(list.Number())), "rep"}

	for f := range t.Elem().Fields() {
		if tag := strings.Split(f.Tag.Get("protobuf"), ","); len(tag) > 2 && slices.Equal(tag[1:3], want) {
			return f, elementType(f.Type) != nil
		}
	}

	return field, false
}

// elementType gives the type of a pointer to an element of a list's field; nil if that is no message.
func elementType(field reflect.Type) reflect.Type {
	if field.Kind() == reflect.Pointer {
		field = field.Elem()
	}

	if field.Kind() != reflect.Slice {
		return nil
	}

	t := field.Elem()
	if t.Kind() == reflect.Struct { // gogo's, not nullable
		t = reflect.PointerTo(t)
	}

	if t.Implements(reflect.TypeFor[proto.Message]()) || t.Implements(reflect.TypeFor[protoadapt.MessageV1]()) {
		return t
	}

	return nil
}

// elements is a list of messages, either a Go slice or protobuf's reflection of one.
type elements struct {
	slice reflect.Value
	list  protoreflect.List
}

// elements gives the list in a message.
func (r *repeated) elements(payload any) elements {
	holder := payload

	if len(r.steps) > 0 || r.holder == nil {
		m := protoReflect(payload)

		for _, f := range r.steps {
			m = m.Get(f).Message() // an empty one, if it isn't set
		}

		if r.holder == nil {
			return elements{list: m.Get(r.list).List()}
		}

		holder = goMessage(m)
	}

	if reflect.TypeOf(holder) != r.holder {
		panic(errNoMessage)
	}

	p := reflect.ValueOf(holder).UnsafePointer()
	if p == nil {
		return elements{}
	}

	v := reflect.NewAt(r.slice, unsafe.Add(p, r.offset)).Elem()
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}

	return elements{slice: v}
}

func (e elements) len() int {
	switch {
	case e.list != nil:
		return e.list.Len()
	case e.slice.IsValid():
		return e.slice.Len()
	default:
		return 0
	}
}

// at gives an element as a payload.
func (e elements) at(i int) any {
	if e.list != nil {
		return e.list.Get(i).Message().Interface()
	}

	v := e.slice.Index(i)
	if v.Kind() == reflect.Struct {
		v = v.Addr()
	}

	return v.Interface()
}
