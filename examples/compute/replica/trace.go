package replica

import (
	"cmp"
	"slices"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// A trace holds a collection's rows so that they can be read as of any time from since on: the rows as they are at since, and
// every later change in order of time.
type trace struct {
	since   uint64
	base    map[uint64][]byte
	updates []update
}

// An update says that from the time on the row is this.
type update struct {
	row

	time uint64
}

func newTrace(since uint64) *trace { return &trace{since: since, base: make(map[uint64][]byte)} }

// insert adds an update. Times don't go backward from one call to the next.
func (t *trace) insert(u update) {
	if u.time <= t.since {
		t.base[u.key] = u.value
		return
	}
	t.updates = append(t.updates, u)
}

// compact gives up the times before since.
func (t *trace) compact(since uint64) {
	if since <= t.since {
		return
	}
	t.since = since
	n := 0
	for n < len(t.updates) && t.updates[n].time <= since {
		t.base[t.updates[n].key] = t.updates[n].value
		n++
	}
	t.updates = slices.Delete(t.updates, 0, n)
}

// read returns the rows with first <= key < end as of the time, which isn't before since, in order of their keys.
func (t *trace) read(time, first, end uint64) []*computepb.Row {
	found := make(map[uint64][]byte)
	if end > first && end-first < uint64(len(t.base)) {
		for key := first; key < end; key++ {
			if value, ok := t.base[key]; ok {
				found[key] = value
			}
		}
	} else {
		for key, value := range t.base {
			if first <= key && key < end {
				found[key] = value
			}
		}
	}
	for _, u := range t.updates {
		if u.time > time {
			break
		}
		if first <= u.key && u.key < end {
			found[u.key] = u.value
		}
	}
	rows := make([]*computepb.Row, 0, len(found))
	for key, value := range found {
		rows = append(rows, &computepb.Row{Key: key, Value: value})
	}
	slices.SortFunc(rows, func(a, b *computepb.Row) int { return cmp.Compare(a.GetKey(), b.GetKey()) })
	return rows
}
