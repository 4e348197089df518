package statshttp

import (
	"cmp"
	"slices"
	"strings"

	"github.com/otelproto/otelproto-go/stats"
)

// What counts as one kind of message. Side and direction always tell rows apart.
const (
	groupVariant = "variant" // type and variant
	groupType    = "type"
	groupMethod  = "method"
	groupSeries  = "series" // method, type, variant, and whether it was a retry
)

func groups() []string { return []string{groupVariant, groupType, groupMethod, groupSeries} }

func messageColumns() []string {
	return []string{"wire", "messages", "size", "mean", "p50", "p99", "ratio", "type", "method"}
}

// rowGroup names what is added up.
type rowGroup struct {
	client               bool
	direction            stats.Direction
	method, typ, variant string
	retry                bool
}

func grouping(group string) func(r stats.Row) rowGroup {
	return func(r stats.Row) rowGroup {
		g := rowGroup{client: r.Client, direction: r.Key.Direction}

		switch group {
		case groupType:
			g.typ = r.Key.Type
		case groupMethod:
			g.method = r.Key.Method
		case groupSeries:
			g.typ, g.variant, g.method, g.retry = r.Key.Type, r.Key.Variant, r.Key.Method, r.Key.Retry
		default:
			g.typ, g.variant = r.Key.Type, r.Key.Variant
		}

		return g
	}
}

// messageGroup adds up rows. Of the key, what differs between them is empty.
type messageGroup struct {
	stats.Row

	series  int
	retried uint64
	// exemplar is the largest of the rows' exemplars.
	exemplar *stats.Exemplar
	// cumulative are the wire bytes of this group and of all that have more.
	cumulative uint64
}

func (g *messageGroup) add(r stats.Row) {
	if g.series == 0 {
		g.Row = r
		g.Wire.Counts, g.Size.Counts = slices.Clone(r.Wire.Counts), slices.Clone(r.Size.Counts)
	} else {
		g.Messages += r.Messages
		addHistogram(&g.Wire, r.Wire)
		addHistogram(&g.Size, r.Size)

		g.Key.Method = same(g.Key.Method, r.Key.Method)
		g.Key.Type = same(g.Key.Type, r.Key.Type)
		g.Key.Variant = same(g.Key.Variant, r.Key.Variant)
		g.Key.Retry = g.Key.Retry && r.Key.Retry
	}

	g.series++

	if e := r.Exemplar; e != nil && (g.exemplar == nil || e.Size > g.exemplar.Size) {
		g.exemplar = e
	}

	if r.Key.Retry {
		g.retried += r.Messages
	}
}

func same(a, b string) string {
	if a != b {
		return ""
	}

	return a
}

func addHistogram(h *stats.Histogram, other stats.Histogram) {
	h.Sum += other.Sum
	for i, n := range other.Counts[:min(len(h.Counts), len(other.Counts))] {
		h.Counts[i] += n
	}
}

func groupRows(rows []stats.Row, by func(r stats.Row) rowGroup) []*messageGroup {
	index := make(map[rowGroup]*messageGroup)

	var found []*messageGroup

	for _, r := range rows {
		id := by(r)

		g := index[id]
		if g == nil {
			g = &messageGroup{}
			index[id] = g
			found = append(found, g)
		}

		g.add(r)
	}

	return found
}

func wireOf(groups []*messageGroup) uint64 {
	var sum uint64
	for _, g := range groups {
		sum += g.Wire.Sum
	}

	return sum
}

// sortGroups puts the most wire bytes first and says of each what it has together with those before it.
func sortGroups(groups []*messageGroup) {
	slices.SortFunc(groups, func(a, b *messageGroup) int { return cmp.Or(cmp.Compare(b.Wire.Sum, a.Wire.Sum), byName(a, b)) })

	var sum uint64

	for _, g := range groups {
		sum += g.Wire.Sum
		g.cumulative = sum
	}
}

// byName orders what is equal otherwise, so that rows don't change places from one refresh to the next.
func byName(a, b *messageGroup) int {
	return cmp.Or(
		strings.Compare(a.Key.Type, b.Key.Type),
		strings.Compare(a.Key.Variant, b.Key.Variant),
		strings.Compare(a.Key.Method, b.Key.Method),
		cmp.Compare(a.Key.Direction, b.Key.Direction),
		strings.Compare(sideOf(a.Client), sideOf(b.Client)),
		cmp.Compare(a.retried, b.retried),
	)
}

func compareMessages(column string) func(a, b *messageGroup) int {
	switch column {
	case "messages":
		return func(a, b *messageGroup) int { return cmp.Compare(a.Messages, b.Messages) }
	case "size":
		return func(a, b *messageGroup) int { return cmp.Compare(a.Size.Sum, b.Size.Sum) }
	case "mean":
		return func(a, b *messageGroup) int { return cmp.Compare(a.Wire.Mean(), b.Wire.Mean()) }
	case "p50":
		return func(a, b *messageGroup) int { return cmp.Compare(a.Wire.Quantile(0.5), b.Wire.Quantile(0.5)) }
	case "p99":
		return func(a, b *messageGroup) int { return cmp.Compare(a.Wire.Quantile(0.99), b.Wire.Quantile(0.99)) }
	case "ratio":
		return func(a, b *messageGroup) int { return cmp.Compare(a.Ratio(), b.Ratio()) }
	case "type":
		return byName
	case "method":
		return func(a, b *messageGroup) int { return strings.Compare(a.Key.Method, b.Key.Method) }
	default:
		return func(a, b *messageGroup) int { return cmp.Compare(a.Wire.Sum, b.Wire.Sum) }
	}
}

// ordered sorts by the column of l, and what is equal there stays as it was.
func ordered[T any](rows []T, l listing, compare func(column string) func(a, b T) int) {
	column, largest := strings.CutPrefix(l.sort, "-")
	ascending := compare(column)

	slices.SortStableFunc(rows, func(a, b T) int {
		if largest {
			return ascending(b, a)
		}

		return ascending(a, b)
	})
}

func (b builder) messageTable() messageTable {
	found := groupRows(b.window.Total, grouping(b.q.group))
	sum := wireOf(found)
	sortGroups(found)

	matched := b.matching(found)
	ordered(matched, b.q.messages, compareMessages)

	shown, table := pageOf(matched, len(found), b.q.messages, b.q.limit)
	t := messageTable{tableView: table, Group: b.q.group, List: make([]messageRow, 0, len(shown))}

	for _, g := range shown {
		t.List = append(t.List, b.messageRow(g, sum))
	}

	return t
}

// matching gives the groups that the filters leave.
func (b builder) matching(found []*messageGroup) []*messageGroup {
	var matched []*messageGroup

	for _, g := range found {
		if b.q.side != "" && b.q.side != sideOf(g.Client) || b.q.direction != "" && b.q.direction != g.Key.Direction.String() {
			continue
		}

		if contains(b.q.text, clean(g.Key.Type), clean(g.Key.Variant), clean(g.Key.Method)) {
			matched = append(matched, g)
		}
	}

	return matched
}

func (b builder) messageRow(g *messageGroup, sum uint64) messageRow {
	return messageRow{
		Side: sideOf(g.Client), Direction: g.Key.Direction.String(),
		Type: clean(g.Key.Type), Variant: clean(g.Key.Variant), Method: clean(g.Key.Method),
		Series: g.series, RetriedMessages: g.retried,
		flow:  b.flow(g.Messages, g.Wire.Sum, g.Size.Sum),
		Share: ratio(g.Wire.Sum, sum), CumulativeShare: ratio(g.cumulative, sum),
		CompressionRatio: g.Ratio(), Wire: sizes(g.Wire), Size: sizes(g.Size), Exemplar: b.exemplar(g.exemplar),
	}
}

func sizes(h stats.Histogram) sizeView {
	return sizeView{Mean: h.Mean(), P50: h.Quantile(0.5), P90: h.Quantile(0.9), P99: h.Quantile(0.99), Counts: h.Counts}
}

func (b builder) exemplar(e *stats.Exemplar) *exemplarView {
	if e == nil {
		return nil
	}

	v := exemplarView{
		Time: e.Time, WireBytes: e.Wire, SizeBytes: e.Size, TraceID: e.TraceID.String(), SpanID: e.SpanID.String(),
	}
	if b.traceURL != nil {
		v.URL = b.traceURL(v.TraceID, v.SpanID)
	}

	return &v
}

// closed is what closed connections have carried, since counting began and not in the window.
func (b builder) closed() closedView {
	c := closedView{List: []messageRow{}}
	if b.q.conn != 0 {
		return c
	}

	for _, r := range b.reading.totals.Closed {
		c.Messages += r.Messages
		c.WireBytes += r.Wire.Sum
		c.SizeBytes += r.Size.Sum
	}

	found := groupRows(b.reading.totals.Closed, grouping(b.q.group))
	sortGroups(found)

	matched := b.matching(found)
	c.Rows = len(matched)

	if s := b.reading.totals.ClosedSockets; s.Read > 0 || s.Written > 0 {
		socket := socketOf(s)
		c.Socket = &socket
	}

	// Rates of what is closed are over all the time that was counted.
	began := b
	began.window = stats.Snapshot{Start: b.reading.totals.Start, Time: b.reading.totals.Time}

	for _, g := range matched[:min(len(matched), b.q.limit)] {
		c.List = append(c.List, began.messageRow(g, c.WireBytes))
	}

	return c
}
