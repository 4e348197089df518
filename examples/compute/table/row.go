// Package table shows what a registry has counted as a table: printed once, or drawn again and again on a terminal.
package table

import (
	"cmp"
	"slices"

	"github.com/otelproto/otelproto-go/stats"
)

// A Row is one line of the table.
type Row struct {
	Direction   string
	Connection  string
	Type        string
	Variant     string
	Messages    uint64
	MessageRate float64 // messages per second
	Wire        uint64  // bytes
	WireRate    float64 // bytes per second
	Size        uint64  // bytes, uncompressed
	Ratio       float64 // uncompressed to wire
	Share       float64 // of the bandwidth, 0 to 1
	P50, P99    float64 // bytes, uncompressed
}

// PerConnection returns the rows of each live connection under the name that name gives it, and of those that closed under
// "closed". Rates and shares are those of the window, a difference of snapshots that ends with s; all else is since the
// beginning. The window may be s itself.
func PerConnection(s, window stats.Snapshot, name func(stats.ConnSnapshot) string) []Row {
	recent := make(map[uint64]map[key]stats.Row)
	for _, c := range window.Conns {
		recent[c.ID] = byKey(c.Rows)
	}
	rows := make([]Row, 0, 16*(len(s.Conns)+1))
	for _, c := range s.Conns {
		rows = append(rows, newRows(name(c), c.Rows, window, recent[c.ID])...)
	}
	rows = append(rows, newRows("closed", s.Closed, window, byKey(window.Closed))...)
	slices.SortStableFunc(rows, order)
	return rows
}

// InTotal returns the rows of all connections together, live and closed, under the given name.
func InTotal(s, window stats.Snapshot, name string) []Row {
	rows := newRows(name, s.Total, window, byKey(window.Total))
	slices.SortStableFunc(rows, order)
	return rows
}

// order is by connection, then direction, and within those the most bytes first.
func order(a, b Row) int {
	return cmp.Or(
		cmp.Compare(a.Connection, b.Connection),
		-cmp.Compare(a.Direction, b.Direction), // transmit before receive
		cmp.Compare(b.Wire, a.Wire),
		cmp.Compare(a.Type, b.Type),
		cmp.Compare(a.Variant, b.Variant),
	)
}

type key struct {
	client bool
	key    stats.Key
}

func byKey(rows []stats.Row) map[key]stats.Row {
	m := make(map[key]stats.Row, len(rows))
	for _, r := range rows {
		m[key{r.Client, r.Key}] = r
	}
	return m
}

func newRows(connection string, all []stats.Row, window stats.Snapshot, recent map[key]stats.Row) []Row {
	rows := make([]Row, 0, len(all))
	for _, r := range all {
		lately := recent[key{r.Client, r.Key}]
		rows = append(rows, Row{
			Direction:   r.Key.Direction.String(),
			Connection:  connection,
			Type:        r.Key.Type,
			Variant:     r.Key.Variant,
			Messages:    r.Messages,
			MessageRate: window.PerSecond(lately.Messages),
			Wire:        r.Wire.Sum,
			WireRate:    window.PerSecond(lately.Wire.Sum),
			Size:        r.Size.Sum,
			Ratio:       r.Ratio(),
			Share:       window.Share(lately),
			P50:         r.Size.Quantile(0.5),
			P99:         r.Size.Quantile(0.99),
		})
	}
	return rows
}
