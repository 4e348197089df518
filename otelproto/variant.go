package otelproto

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// envelope gives the oneof that makes a message an envelope: its only real one, of which at least two cases are messages.
func envelope(d protoreflect.MessageDescriptor) protoreflect.OneofDescriptor {
	var found protoreflect.OneofDescriptor

	for i := range d.Oneofs().Len() {
		o := d.Oneofs().Get(i)
		if o.IsSynthetic() {
			continue
		}

		if found != nil {
			return nil
		}

		found = o
	}

	if found == nil {
		return nil
	}

	messages := 0

	for i := range found.Fields().Len() {
		if found.Fields().Get(i).Message() != nil {
			messages++
		}
	}

	if messages < minEnvelopeCases {
		return nil
	}

	return found
}

const minEnvelopeCases = 2

// variantPath leads from a message to its discriminator.
type variantPath struct {
	// steps are the message fields on the way.
	steps []protoreflect.FieldDescriptor
	// list is the repeated field where the steps end, if each of its elements has a discriminator of its own: that at inner.
	list  protoreflect.FieldDescriptor
	inner *variantPath
	// Otherwise the discriminator is one of these.
	oneof protoreflect.OneofDescriptor
	field protoreflect.FieldDescriptor
	// typeURL is the field of an Any that tells its type.
	typeURL protoreflect.FieldDescriptor
}

const anyName = "google.protobuf.Any"

// newVariantPath finds the discriminator at a path such as "header.kind", or "requests.kind" where requests is repeated.
func newVariantPath(d protoreflect.MessageDescriptor, path string) (*variantPath, error) {
	return findVariant(d, strings.Split(path, "."), nil)
}

// findVariant does so from a message on; within is the repeated field that has been crossed.
func findVariant(d protoreflect.MessageDescriptor, names []string, within protoreflect.FieldDescriptor) (*variantPath, error) {
	p := &variantPath{}

	for i, name := range names {
		last := i == len(names)-1

		if o := d.Oneofs().ByName(protoreflect.Name(name)); o != nil && last && !o.IsSynthetic() {
			p.oneof = o

			return p, nil
		}

		f := d.Fields().ByName(protoreflect.Name(name))

		switch {
		case f == nil && d.IsPlaceholder():
			return nil, fmt.Errorf("%s is in a file that isn't linked in, expected one that golang/protobuf knows", d.FullName())
		case f == nil:
			return nil, fmt.Errorf("%s has no field or oneof %q, expected one of its own names", d.FullName(), name)
		case f.IsMap():
			return nil, fmt.Errorf("%s is a map, expected a field that is none", f.FullName())
		case last && f.IsList():
			return nil, fmt.Errorf("%s is repeated, expected a singular field, be it one of a repeated message", f.FullName())
		case last:
			p.field = f
		case f.Message() == nil:
			return nil, fmt.Errorf("%s is not a message, expected one before %q", f.FullName(), names[i+1])
		case f.IsList() && within != nil:
			return nil, fmt.Errorf("%s is repeated and so is %s, expected one repeated field", f.FullName(), within.FullName())
		case f.IsList():
			inner, err := findVariant(f.Message(), names[i+1:], f)
			p.list, p.inner = f, inner

			return p, err
		default:
			p.steps = append(p.steps, f)
			d = f.Message()
		}
	}

	switch p.field.Kind() {
	case protoreflect.EnumKind, protoreflect.StringKind, protoreflect.BoolKind:
		return p, nil
	case protoreflect.MessageKind:
		if p.field.Message().FullName() == anyName {
			p.typeURL = p.field.Message().Fields().ByName("type_url")

			return p, nil
		}
	default:
	}

	return nil, fmt.Errorf("%s is of kind %v, expected a oneof, enum, string, bool or %s", p.field.FullName(), p.field.Kind(), anyName)
}

// topOneof gives the oneof if it stands in the message itself.
func (p *variantPath) topOneof() protoreflect.OneofDescriptor {
	if len(p.steps) > 0 {
		return nil
	}

	return p.oneof
}

// read gives the discriminator's value in m.
func (p *variantPath) read(m protoreflect.Message) variantValue {
	for _, f := range p.steps {
		if !m.Has(f) {
			return variantValue{}
		}

		m = m.Get(f).Message()
	}

	if p.oneof != nil {
		if f := m.WhichOneof(p.oneof); f != nil {
			return variantValue{text: string(f.Name()), set: true, listed: true}
		}

		return variantValue{}
	}

	// A field without presence always has a value, be it its zero.
	if p.field.HasPresence() && !m.Has(p.field) {
		return variantValue{}
	}

	v := m.Get(p.field)

	switch p.field.Kind() {
	case protoreflect.BoolKind:
		return variantValue{text: strconv.FormatBool(v.Bool()), set: true, listed: true}
	case protoreflect.EnumKind:
		if e := p.field.Enum().Values().ByNumber(v.Enum()); e != nil {
			return variantValue{text: string(e.Name()), set: true, listed: true}
		}

		return variantValue{text: strconv.Itoa(int(v.Enum())), set: true}
	case protoreflect.MessageKind:
		url := v.Message().Get(p.typeURL).String()
		name := url[strings.LastIndexByte(url, '/')+1:]

		return variantValue{text: name, set: name != ""}
	default:
		return variantValue{text: v.String(), set: v.String() != ""}
	}
}
