package otelproto

import (
	"errors"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// variantValue is a discriminator's value. The zero value is unset.
type variantValue struct {
	// oneof is the case that the oneof's field holds.
	oneof oneofCase
	text  string
	set   bool
	// listed is true for text that comes from the schema, so that there can't be many different ones.
	listed bool
}

// clone lets go of the payload's memory.
func (v variantValue) clone() variantValue {
	v.text = strings.Clone(v.text)

	return v
}

// describes tells whether payload, which has the Go type of an entry, has this message type.
func (m *messageType) describes(payload any) bool {
	if !m.dynamic {
		return true
	}

	defer func() { _ = recover() }() // false, then

	p, ok := payload.(proto.Message)

	return ok && m.descriptor != nil && p.ProtoReflect().Descriptor() == m.descriptor
}

// value reads the discriminator.
func (m *messageType) value(payload any) (v variantValue) {
	switch m.how {
	case byType:
		return variantValue{}
	case byField:
		return variantValue{oneof: caseAt(payload, m.field)}
	case byElements: // its elements have one
		return variantValue{}
	case byValue:
	}

	// The function is the user's and the message may be nobody's; neither may break the RPC.
	defer func() {
		if p := recover(); p != nil {
			v = variantValue{}

			m.reported.handlef("otelproto: the variant of %s: panic: %v", m.name, p)
		}
	}()

	if m.fn != nil {
		if text, ok := m.fn(payload); ok {
			return variantValue{text: text, set: text != ""}
		}
	}

	switch {
	case m.hasField:
		return variantValue{oneof: caseAt(payload, m.field)}
	case m.path != nil:
		return m.path.read(protoReflect(payload))
	default:
		return variantValue{}
	}
}

// variant gives the attribute's value; empty if the discriminator is unset.
func (m *messageType) variant(v variantValue, payload any) string {
	switch {
	case v.oneof != nil:
		return m.caseName(v.oneof, payload)
	case !v.set:
		return ""
	case v.listed:
		return v.text
	default:
		return m.limited(v.text)
	}
}

// caseName gives the field name of the case.
func (m *messageType) caseName(c oneofCase, payload any) string {
	if name, ok := m.cases.Load(c); ok {
		s, _ := name.(string)

		return s
	}

	name := m.readCase(payload)
	m.cases.Store(c, name)

	return name
}

func (m *messageType) readCase(payload any) (name string) {
	defer func() {
		if p := recover(); p != nil { // no descriptor that fits the struct
			m.reported.handlef("otelproto: the variant of %s: panic: %v", m.name, p)
		}
	}()

	p := m.path
	if p == nil {
		p = &variantPath{oneof: envelope(m.descriptor)}
	}

	return p.read(protoReflect(payload)).text
}

// limited gives text, or other if it isn't one of the first maxValues.
func (m *messageType) limited(text string) string {
	if len(text) > maxValueLen || !utf8.ValidString(text) {
		m.reportValues()

		return other
	}

	m.mu.Lock()
	_, ok := m.values[text]

	if !ok && len(m.values) < maxValues {
		if m.values == nil {
			m.values = make(map[string]struct{})
		}

		text, ok = strings.Clone(text), true // the payload must not be retained
		m.values[text] = struct{}{}
	}
	m.mu.Unlock()

	if !ok {
		m.reportValues()

		return other
	}

	return text
}

func (m *messageType) reportValues() {
	m.reported.handlef("otelproto: variants of %s beyond %d values of at most %d bytes are counted as %s",
		m.name, maxValues, maxValueLen, other)
}

var errNoMessage = errors.New("otelproto: bug: not a message")

// protoReflect gives the reflection of a message of either API.
func protoReflect(payload any) protoreflect.Message {
	switch p := payload.(type) {
	case proto.Message:
		return p.ProtoReflect()
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(p).ProtoReflect()
	default:
		panic(errNoMessage)
	}
}
