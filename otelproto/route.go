package otelproto

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelproto/otelproto-go/stats"
)

// routeKey tells the routes of a connection apart.
type routeKey struct {
	method string
	retry  bool
	attrs  attribute.Distinct
}

// routes are a connection's routes.
type routes struct {
	limit int
	// mu guards the writing of the map. The map is replaced, never changed, so that reading takes no lock.
	mu    sync.Mutex
	byKey atomic.Pointer[map[routeKey]*route]
}

// route is one method of a connection: what its RPCs share, so that an RPC finds a known message without the sink.
type route struct {
	conn   *conn
	method string
	retry  bool
	attrs  attribute.Set
	h      *handler

	// last is the entry of the last RPC's first message in each direction: the next RPC's is usually the same.
	last [2]atomic.Pointer[entry]
	// mu guards the writing of the map and the lists. They are replaced, never changed, so that reading takes no lock.
	mu    sync.Mutex
	byKey atomic.Pointer[map[entryKey]*entry]
	// byTypes has, for each direction, the first entries that can be told apart by Go types alone.
	byTypes [2]atomic.Pointer[[]*entry]
}

// route gives the route of a key.
func (c *conn) route(k routeKey, attrs attribute.Set, h *handler) *route {
	if r := lookup(&c.routes.byKey, k); r != nil {
		return r
	}

	if m := c.routes.byKey.Load(); m != nil && len(*m) >= c.routes.limit {
		h.limit.report()

		k, attrs = routeKey{method: other, retry: k.retry}, attribute.Set{}
	}

	c.routes.mu.Lock()
	defer c.routes.mu.Unlock()

	r := lookup(&c.routes.byKey, k)
	if r == nil {
		r = &route{conn: c, method: k.method, retry: k.retry, attrs: attrs, h: h}
		store(&c.routes.byKey, k, r)
	}

	return r
}

// entryKey tells the entries of a route apart.
type entryKey struct {
	direction stats.Direction
	// element is true for the elements of a message, which count under its name.
	element bool
	message string
	variant string
}

// entry is one kind of message on a route, and where it is recorded.
type entry struct {
	message *messageType
	goType  reflect.Type
	// The entry is for messages whose discriminator has this value.
	value variantValue

	// recorder is nil where parts isn't.
	recorder recorder
	// parts is for messages that are split.
	parts *parts
}

// matches tells, in a few nanoseconds for most messages, whether the entry is the one for payload. It isn't asked of one with parts.
func (e *entry) matches(payload any) bool {
	if reflect.TypeOf(payload) != e.goType {
		return false
	}

	switch e.message.how {
	case byType:
		return true
	case byField:
		return caseAt(payload, e.message.field) == e.value.oneof
	default:
		return e.message.describes(payload) && e.message.value(payload) == e.value
	}
}

// entry finds the entry of a payload, creating it the first time.
func (r *route) entry(d stats.Direction, payload any) *entry {
	if e := r.quick(d, payload); e != nil {
		return e
	}

	return r.named(d, r.h.names.message(payload), payload, false)
}

// named finds the entry of a payload by names.
func (r *route) named(d stats.Direction, message *messageType, payload any, element bool) *entry {
	value := message.value(payload)
	k := entryKey{d, element, message.name, message.variant(value, payload)}

	e := lookup(&r.byKey, k)
	if e == nil || e.message != message || e.goType != reflect.TypeOf(payload) {
		e = r.newEntry(k, message, payload, value)
	}

	return e
}

// quick looks through the entries that can be told apart by Go types alone: for a stream on which a few kinds of messages
// alternate, that spares reading and hashing the names for the map.
func (r *route) quick(d stats.Direction, payload any) *entry {
	entries := r.byTypes[d].Load()
	if entries == nil {
		return nil
	}

	t := reflect.TypeOf(payload)

	var c oneofCase

	for _, e := range *entries {
		if e.goType != t {
			continue
		}

		if e.message.how == byType {
			return e
		}

		if c == nil {
			if c = caseAt(payload, e.message.field); c == nil {
				return nil // no case is set: left to the map
			}
		}

		if c == e.value.oneof {
			return e
		}
	}

	return nil
}

// newEntry makes an entry, or replaces one whose message has come with another Go type or descriptor since.
func (r *route) newEntry(k entryKey, message *messageType, payload any, value variantValue) *entry {
	e := &entry{message: message, goType: reflect.TypeOf(payload), value: value.clone()}
	if message.how == byElements {
		e.parts = &parts{}
	} else {
		e.recorder = r.series(k)
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	store(&r.byKey, k, e)

	if !k.element && (message.how == byType || message.how == byField && value.oneof != nil) {
		r.addQuickLocked(k.direction, e)
	}

	return e
}

// series gives the series of a key, the same each time. It is asked for without the lock, since the sink may report.
func (r *route) series(k entryKey) recorder {
	return r.conn.sink.series(stats.Key{
		Method: r.method, Direction: k.direction, Type: k.message, Variant: k.variant, Retry: r.retry,
	}, r.attrs)
}

func (r *route) addQuickLocked(d stats.Direction, e *entry) {
	var entries []*entry
	if p := r.byTypes[d].Load(); p != nil {
		entries = *p
	}

	if len(entries) < maxQuick {
		entries = append(slices.Clone(entries), e)
		r.byTypes[d].Store(&entries)
	}
}

// maxQuick is how many entries are looked through before the map is asked.
const maxQuick = 16

func lookup[K comparable, V any](p *atomic.Pointer[map[K]*V], k K) *V {
	if m := p.Load(); m != nil {
		return (*m)[k]
	}

	return nil
}

func store[K comparable, V any](p *atomic.Pointer[map[K]*V], k K, v *V) {
	next := map[K]*V{k: v}
	if m := p.Load(); m != nil {
		maps.Copy(next, *m)
	}

	p.Store(&next)
}
