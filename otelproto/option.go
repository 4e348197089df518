package otelproto

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/otelproto/otelproto-go/stats"
)

// Option sets up a handler. Options come from this package's With functions only. One with a wrong value is reported to
// [otel.Handle] and left out: telemetry doesn't break the application.
type Option interface{ apply(c *config) error }

type config struct {
	meterProvider  metric.MeterProvider
	registry       *stats.Registry
	buckets        []float64
	connAttributes []func(ConnInfo) []attribute.KeyValue
	rpcAttributes  func(context.Context) []attribute.KeyValue
	automatic      bool
	variantFields  map[protoreflect.FullName]*declaration
	variantFunc    func(any) (string, bool)
	filter         func(*grpcstats.RPCTagInfo) bool
	known          func(fullMethod string) bool
	seriesLimit    int
}

const defaultSeriesLimit = 1_000

func newConfig(opts []Option) config {
	c := config{
		buckets:       stats.DefaultBuckets(),
		automatic:     true,
		variantFields: make(map[protoreflect.FullName]*declaration),
		known:         isLinkedIn,
		seriesLimit:   defaultSeriesLimit,
	}

	for _, o := range opts {
		if o == nil {
			continue
		}

		if err := o.apply(&c); err != nil {
			otel.Handle(fmt.Errorf("otelproto: %w", err))
		}
	}

	if c.meterProvider == nil {
		c.meterProvider = otel.GetMeterProvider()
	}

	return c
}

type optionFunc func(c *config) error

func (f optionFunc) apply(c *config) error { return f(c) }

var (
	errNilProvider = errors.New("WithMeterProvider: nil, expected a MeterProvider")
	errNilRegistry = errors.New("WithRegistry: nil, expected a registry")
	errNilFunc     = errors.New("nil, expected a function")
	errNotAMessage = errors.New("not a message, expected the full name of one")
)

// WithMeterProvider sets where the instruments come from. The default is the global provider at the time of construction.
// Where its histograms can be bound to attributes and end series (the interfaces Int64HistogramBinder and Finisher of
// go.opentelemetry.io/otel/metric/x), that is used.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return optionFunc(func(c *config) error {
		if mp == nil {
			return errNilProvider
		}

		c.meterProvider = mp

		return nil
	})
}

// WithRegistry records into r instead of instruments: per connection, at a fraction of the cost, with the registry's
// buckets. [WithMeterProvider], [WithBuckets], [WithConnAttributes] and [WithRPCAttributes] then have no effect.
func WithRegistry(r *stats.Registry) Option {
	return optionFunc(func(c *config) error {
		if r == nil {
			return errNilRegistry
		}

		c.registry = r

		return nil
	})
}

// DefaultBuckets gives the bounds of both size histograms where none are chosen, in bytes.
func DefaultBuckets() []float64 { return stats.DefaultBuckets() }

// WithBuckets sets the bounds of both size histograms, in bytes, increasing and finite. The default is [DefaultBuckets];
// no bounds keep count and sum only, the cheapest form. They are advice to the SDK: a View may set others.
func WithBuckets(bounds ...float64) Option {
	return optionFunc(func(c *config) error {
		if err := stats.CheckBuckets(bounds...); err != nil {
			return fmt.Errorf("WithBuckets: %w", err)
		}

		if len(bounds) == 0 { // which the SDK takes for its default bounds: one that no message reaches stands for none
			bounds = []float64{math.MaxInt64}
		}

		c.buckets = slices.Clone(bounds)

		return nil
	})
}

// WithConnAttributes adds attributes to all series of a connection, read once when the connection is first used:
// [PeerAddress], [PeerPort], [LocalAddress], or the user's own functions, which must not block. The default is none: an SDK
// keeps every series for ever unless its instruments can end them, so that a server's peers pile up. It adds to earlier ones.
func WithConnAttributes(fs ...func(ConnInfo) []attribute.KeyValue) Option {
	return optionFunc(func(c *config) error {
		for _, f := range fs {
			if f == nil {
				return fmt.Errorf("WithConnAttributes: %w", errNilFunc)
			}
		}

		c.connAttributes = append(c.connAttributes, fs...)

		return nil
	})
}

// WithRPCAttributes adds attributes to all messages of an RPC attempt. f is called once an attempt, with the RPC's context (on a
// server it has the incoming metadata), and must not block. Every different set of attributes makes series of its own; they
// count for [WithSeriesLimit]. The default is none.
func WithRPCAttributes(f func(context.Context) []attribute.KeyValue) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return fmt.Errorf("WithRPCAttributes: %w", errNilFunc)
		}

		c.rpcAttributes = f

		return nil
	})
}

// WithVariantField declares where the variant of a message stands: a oneof (the variant is the name of the case that is
// set), an enum (the value's name), a string, a bool (true or false), or a google.protobuf.Any (the name of the message in it).
// "a.b" descends through the message field a. It replaces what is automatic for that message.
// Unset: no variant; an enum or bool without presence always has a value.
//
// One message field on the way may be repeated: then each of its elements counts as a message of its own under its own
// variant, and the sizes of the whole message are divided among them in proportion to their encoded sizes, so that the parts
// add up exactly. A message without elements counts once, without variant, and what is beyond 65,536 elements once, as _OTHER.
//
// A message that isn't linked in, as far as the registry of golang/protobuf knows, is reported, since its name may be wrong; the
// declaration then holds for the messages of that name that turn up, as those do that gogo generated. If the path doesn't fit
// them, that is reported once and what is automatic stays.
//
// At most 100 values of a string, an Any, or unnamed enum values are told apart for each message; others count as _OTHER.
func WithVariantField(message protoreflect.FullName, path string) Option {
	return optionFunc(func(c *config) error {
		declare := func() {
			c.variantFields = maps.Clone(c.variantFields)
			c.variantFields[message] = &declaration{path: path}
		}

		d, err := protoregistry.GlobalFiles.FindDescriptorByName(message)
		if err == nil {
			if err = checkPath(d, path); err == nil {
				declare()

				return nil
			}

			return fmt.Errorf("WithVariantField(%q, %q): %w", message, path, err)
		}

		switch {
		case !message.IsValid():
			return fmt.Errorf("WithVariantField(%q, %q): no name, expected the full name of a message", message, path)
		case !protoreflect.FullName(path).IsValid(): // a path is written like a full name
			return fmt.Errorf("WithVariantField(%q, %q): no path, expected names of fields with dots between", message, path)
		}

		declare()

		return fmt.Errorf("WithVariantField(%q, %q): %w in the registry of golang/protobuf, expected the full name of a message that is "+
			"linked in; it takes effect if a message of that name turns up, as gogo's do", message, path, err)
	})
}

// checkPath tells what is wrong with a path.
func checkPath(d protoreflect.Descriptor, path string) error {
	md, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return errNotAMessage
	}

	_, err := newVariantPath(md, path)

	return err
}

// WithVariantFunc asks f for the variant of each payload whose message has no declared discriminator, whatever the payload's
// type is, raw frames included; where ok is false, what is automatic holds. f runs for every message: it must be quick, must
// not keep the payload, and is called concurrently. A panic in it means no variant and is reported once for each message type. At
// most 100 values are told apart for each message type; others count as _OTHER.
func WithVariantFunc(f func(payload any) (variant string, ok bool)) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return fmt.Errorf("WithVariantFunc: %w", errNilFunc)
		}

		c.variantFunc = f

		return nil
	})
}

// WithoutVariants turns off the automatic variants of envelopes. Those declared by [WithVariantField] and [WithVariantFunc]
// stay. The default is on: a message with exactly one real oneof, of which at least two cases are messages, is an envelope.
func WithoutVariants() Option {
	return optionFunc(func(c *config) error {
		c.automatic = false

		return nil
	})
}

// WithFilter records only RPCs for which f is true. It is asked once an attempt and must not block. The default is all.
func WithFilter(f func(*grpcstats.RPCTagInfo) bool) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return fmt.Errorf("WithFilter: %w", errNilFunc)
		}

		c.filter = f

		return nil
	})
}

// WithKnownMethods tells a server's handler which bidirectional methods are its own. A handler for unknown services is
// bidirectional too, and then a peer may call any name: what isn't known counts under the method _OTHER. f gets
// /package.Service/Method and must not block. The default knows the methods whose descriptors are linked in; a server whose
// services aren't (hand-written ones, or made by another generator) and a proxy that knows its routes need this.
// Other methods are always known, since grpc-go refuses those that no service has.
func WithKnownMethods(f func(fullMethod string) bool) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return fmt.Errorf("WithKnownMethods: %w", errNilFunc)
		}

		c.known = f

		return nil
	})
}

// WithSeriesLimit sets how many different series (method × type × variant, and whatever attributes of connections and RPCs
// are added) a handler tells apart, 1,000 by default, at least 1: half of what an SDK allows an instrument, where
// a series has two directions. Those beyond it count under the method and type _OTHER and are reported once.
func WithSeriesLimit(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 1 {
			return fmt.Errorf("WithSeriesLimit: %d, expected at least 1", n)
		}

		c.seriesLimit = n

		return nil
	})
}

// isLinkedIn tells whether the descriptor of a method is linked in.
func isLinkedIn(fullMethod string) bool {
	service, method, ok := cutMethod(fullMethod)
	if !ok {
		return false
	}

	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return false
	}

	sd, ok := d.(protoreflect.ServiceDescriptor)

	return ok && sd.Methods().ByName(protoreflect.Name(method)) != nil
}
