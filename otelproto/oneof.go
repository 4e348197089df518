package otelproto

import (
	"reflect"
	"unsafe"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// oneofField finds the field of a generated struct that holds a oneof, and gives its offset: an interface with the tag
// protobuf_oneof, in structs of the open and the opaque API and of the first API alike.
func oneofField(t reflect.Type, o protoreflect.OneofDescriptor) (offset uintptr, ok bool) {
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return 0, false
	}

	for f := range t.Elem().Fields() {
		if f.Tag.Get("protobuf_oneof") == string(o.Name()) && f.Type.Kind() == reflect.Interface && f.Type.NumMethod() > 0 {
			return f.Offset, true
		}
	}

	return 0, false
}

// oneofCase is the case that a oneof's field holds: the first word of the interface, which the runtime has once for each
// type that the interface may hold. It is nil if no case is set.
type oneofCase unsafe.Pointer

// caseAt reads the case of a oneof. payload is a pointer to the struct in which oneofField found the offset.
//
// Every message of an envelope passes here. Package reflect gives the same answer in three times the time, protobuf's
// WhichOneof in eleven times. If one type should ever have two first words, as plugins might bring about, the second
// is one more case with the same name.
func caseAt(payload any, offset uintptr) oneofCase {
	p := reflect.ValueOf(payload).UnsafePointer()
	if p == nil {
		return nil
	}

	field := (*[2]unsafe.Pointer)(unsafe.Add(p, offset)) // the field is an interface
	if field[1] == nil {                                 // a typed nil is unset
		return nil
	}

	return oneofCase(field[0])
}
