package otelproto

import (
	"reflect"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoimpl"
)

const (
	// opaque is the type of a payload that has no protobuf name.
	opaque = "_OPAQUE"
	// maxDynamic is how many message types without a Go type of their own a handler tells apart.
	maxDynamic = 1_000
	// maxValues is how many values of a string discriminator a handler tells apart for each message type.
	maxValues = 100
	// maxValueLen is the longest value, in bytes, of a discriminator: longer text is no name of a command.
	maxValueLen = 256
)

// how tells what has to be looked at to know that two messages have the same type and variant.
type how uint8

const (
	// byType: the Go type alone.
	byType how = iota
	// byField: the Go type and the case that the struct's field for the oneof holds.
	byField
	// byValue: the discriminator's value, by reflection over the message or by a function.
	byValue
	// byElements: not at all, since each element of a repeated field has a variant of its own.
	byElements
)

// messageType is what a handler knows of a message type.
type messageType struct {
	// name is the full protobuf name, or opaque.
	name string
	how  how
	// descriptor is nil for opaque payloads. dynamic is true where the Go type doesn't determine it.
	descriptor protoreflect.MessageDescriptor
	dynamic    bool
	// field is the offset of the struct's field that holds the oneof, with byField, or with byValue if hasField.
	field    uintptr
	hasField bool
	// path leads to the discriminator, with byValue; nil where there is none or hasField.
	path *variantPath
	// fn is asked first, with byValue.
	fn func(any) (string, bool)
	// repeated tells where the elements are, with byElements.
	repeated *repeated

	// cases has the field name of each oneofCase that was seen.
	cases sync.Map

	// mu guards values, those of an unlimited discriminator that have been seen.
	mu     sync.Mutex
	values map[string]struct{}

	reported onlyOnce
}

// namer knows the message types that a handler has seen.
type namer struct {
	automatic bool
	fn        func(any) (string, bool)
	declared  map[protoreflect.FullName]*declaration

	// byGoType has a *messageType for each Go type whose messages all have one descriptor, nil for others.
	byGoType sync.Map
	// mu guards dynamic. It is not held while a descriptor is read.
	mu      sync.RWMutex
	dynamic map[protoreflect.FullName]*messageType
	beyond  messageType

	reported onlyOnce
}

func newNamer(c config) *namer {
	return &namer{
		automatic: c.automatic,
		fn:        c.variantFunc,
		declared:  c.variantFields,
		dynamic:   make(map[protoreflect.FullName]*messageType),
		beyond:    messageType{name: other, dynamic: true, how: byValue},
	}
}

// message gives the type of a payload, whatever it is.
func (n *namer) message(payload any) *messageType {
	t := reflect.TypeOf(payload)

	found, ok := n.byGoType.Load(t)
	if !ok {
		m, dynamic := n.describe(payload)
		if !dynamic {
			found, _ = n.byGoType.LoadOrStore(t, m)
		} else {
			found, _ = n.byGoType.LoadOrStore(t, (*messageType)(nil))
		}
	}

	if m, _ := found.(*messageType); m != nil {
		return m
	}

	return n.dynamicMessage(payload)
}

// describe finds out what a payload is. dynamic is true where the Go type doesn't say it.
func (n *namer) describe(payload any) (m *messageType, dynamic bool) {
	// Payloads may have any type, and messages that no generator made may do anything.
	defer func() {
		if recover() != nil {
			m, dynamic = n.newMessageType(nil, nil), false
		}
	}()

	t := reflect.TypeOf(payload)
	if t == nil {
		return n.newMessageType(nil, nil), false
	}

	switch p := payload.(type) {
	case proto.Message:
		if !isGenerated(t) {
			return nil, true
		}

		return n.newMessageType(p.ProtoReflect().Descriptor(), t), false
	case protoadapt.MessageV1:
		if !isNamed(p) || t.Kind() != reflect.Pointer {
			return n.newMessageType(nil, nil), false
		}

		// An empty message, since the payload may be a nil pointer, and messages of other generators may look into it.
		empty, _ := reflect.TypeAssert[protoadapt.MessageV1](reflect.New(t.Elem()))

		return n.newMessageType(protoadapt.MessageV2Of(empty).ProtoReflect().Descriptor(), t), false
	default:
		return n.newMessageType(nil, nil), false
	}
}

// isGenerated tells that all messages of this Go type have one descriptor, as those do that protoc-gen-go made, but not
// those of package dynamicpb and the like.
func isGenerated(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return false
	}

	state := reflect.TypeFor[protoimpl.MessageState]()
	for f := range t.Elem().Fields() {
		if f.Type == state {
			return true
		}
	}

	return false
}

// isNamed tells that a message of the first API has a protobuf name. Without a descriptor or a name of its own the protobuf
// module would make one up from the Go type's.
func isNamed(m protoadapt.MessageV1) bool {
	switch m.(type) {
	case interface{ Descriptor() ([]byte, []int) }, interface{ XXX_MessageName() string }:
		return true
	default:
		return false
	}
}

// dynamicMessage gives the type of a message that only its descriptor tells.
func (n *namer) dynamicMessage(payload any) (m *messageType) {
	defer func() {
		if recover() != nil { // a nil pointer, or a message that no generator made
			m = n.nameless()
		}
	}()

	p, _ := payload.(proto.Message)

	d := p.ProtoReflect().Descriptor()
	if d == nil {
		return n.nameless()
	}

	n.mu.RLock()
	m = n.dynamic[d.FullName()]
	n.mu.RUnlock()

	if m != nil && m.descriptor == d {
		return m
	}

	m = n.newMessageType(d, nil)

	n.mu.Lock()
	_, known := n.dynamic[d.FullName()]
	full := !known && len(n.dynamic) >= maxDynamic

	if !full {
		n.dynamic[d.FullName()] = m
	}
	n.mu.Unlock()

	if !full {
		return m
	}

	n.reported.handlef("otelproto: more than %d dynamic message types: further ones are counted as %s", maxDynamic, other)

	return &n.beyond
}

// nameless is the type of what looks like a message but doesn't say which.
func (n *namer) nameless() *messageType {
	found, _ := n.byGoType.LoadOrStore(nil, n.newMessageType(nil, nil))
	m, _ := found.(*messageType)

	return m
}

// newMessageType makes a type from a descriptor; d is nil for opaque payloads, t is nil where there is no struct.
func (n *namer) newMessageType(d protoreflect.MessageDescriptor, t reflect.Type) *messageType {
	m := &messageType{name: opaque, descriptor: d}
	if d == nil {
		m.fn = n.fn
		m.setHow(nil, nil)

		return m
	}

	m.name, m.dynamic = string(d.FullName()), t == nil

	switch p := n.declaredPath(d); {
	case p == nil:
		var oneof protoreflect.OneofDescriptor

		if m.fn = n.fn; n.automatic {
			oneof = envelope(d)
		}

		m.setHow(oneof, t)
	case p.list != nil:
		m.repeated, m.how = newRepeated(m.name, p, t), byElements
	default:
		m.path = p
		m.setHow(p.topOneof(), t)
	}

	return m
}

// setHow finds out what has to be looked at. oneof is the discriminator, if it is one of the message itself.
func (m *messageType) setHow(oneof protoreflect.OneofDescriptor, t reflect.Type) {
	if oneof != nil {
		m.field, m.hasField = oneofField(t, oneof)
		if !m.hasField && m.path == nil {
			m.path = &variantPath{oneof: oneof}
		}
	}

	switch {
	case m.dynamic || m.fn != nil || m.path != nil && !m.hasField:
		m.how = byValue
	case m.hasField:
		m.how = byField
	}
}

// declaration is what WithVariantField says of a message.
type declaration struct {
	path     string
	reported onlyOnce
}

// declaredPath gives the declared path, nil where there is none or it doesn't fit: the message wasn't linked in when it was
// declared, or this one, made dynamically, has another descriptor.
func (n *namer) declaredPath(d protoreflect.MessageDescriptor) *variantPath {
	declared := n.declared[d.FullName()]
	if declared == nil {
		return nil
	}

	p, err := newVariantPath(d, declared.path)
	if err != nil {
		declared.reported.handlef("otelproto: WithVariantField(%q, %q): %w", d.FullName(), declared.path, err)

		return nil
	}

	return p
}
