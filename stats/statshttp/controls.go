package statshttp

import (
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/otelproto/otelproto-go/stats"
)

// htmlView is the view with what a reader of HTML can click on.
type htmlView struct {
	view

	Style         template.CSS
	Script        template.JS
	Query         htmlQuery
	Uptime, Cost  string
	RefreshMillis int64
	MetaRefresh   int // seconds between reloads without JavaScript; 0: none
	GroupName     string
	Windows       []linkTo
	Hidden        []field
	Selects       []selection
	Reset         string
	Stack         []slice
	SocketRows    []socketRow
	PeerColumns   []column
	ConnColumns   []column
}

// htmlQuery makes links.
type htmlQuery struct {
	query query

	Text, Peer string
}

// With gives the link to the same page with another parameter.
func (q htmlQuery) With(name, value string) string { return q.query.with(name, value) }

type linkTo struct {
	Name, Link string
	Current    bool
}

type field struct{ Name, Value string }

type selection struct {
	Label, Name string
	Options     []option
}

type option struct {
	Name, Value string
	Current     bool
}

// column is the head of a table's column.
type column struct {
	Name, Link, Class, Sorted, Arrow string
}

// messageRows is a table of messages.
type messageRows struct {
	ID, Label string
	Columns   []column
	Rows      []htmlRow
	Filtered  bool
	Time      time.Time // of the reading
}

// pager has the links to the pages before and after; they are empty where there is none.
type pager struct {
	Page, Pages   int
	Before, After string
}

func newHTMLView(q query, v view, cost time.Duration) *htmlView {
	h := &htmlView{
		view:  v,
		Query: htmlQuery{query: q, Text: q.textAs, Peer: q.peerAs}, Uptime: age(v.Time.Sub(v.Start)), Cost: age(cost),
		RefreshMillis: refreshMillis(q, v.Window, cost),
		GroupName:     groupName(q.group), Windows: windows(q), Selects: selections(q), Reset: reset(q),
		Stack: newStack(v.Summary.Types), SocketRows: socketRows(v.Sockets),
	}

	if q.refreshGiven && q.refresh > 0 {
		h.MetaRefresh = int((q.refresh + time.Second - 1) / time.Second)
	}

	for _, name := range []string{"window", "conn", "sort", "peersort", "connsort", "format"} {
		if value := q.given.Get(name); value != "" {
			h.Hidden = append(h.Hidden, field{name, value})
		}
	}

	h.PeerColumns = sortable(q, "peersort", q.peers.sort, []column{
		{Name: "Peer", Link: "peer"},
		{Name: "Side", Class: "m"},
		{Name: "Connections", Link: "-connections", Class: "n m"},
		{Name: "Share", Link: "-wire", Class: "share"},
		{Name: "Sent", Link: "-sent", Class: "n"},
		{Name: "Received", Link: "-received", Class: "n"},
		{Name: "Messages sent", Class: "n w"},
		{Name: "Messages received", Class: "n w"},
		{Name: "Oldest", Class: "n m"},
	})
	h.ConnColumns = sortable(q, "connsort", q.conns.sort, []column{
		{Name: "No.", Link: "id", Class: "n"},
		{Name: "Peer", Link: "peer"},
		{Name: "We are", Class: "m"},
		{Name: "Share", Link: "-wire", Class: "share"},
		{Name: "Sent", Link: "-sent", Class: "n"},
		{Name: "Received", Link: "-received", Class: "n"},
		{Name: "Sent in all", Link: "-lifetime", Class: "n w"},
		{Name: "Received in all", Class: "n w"},
		{Name: "Overhead", Link: "-overhead", Class: "n w"},
		{Name: "Age", Link: "-age", Class: "n m"},
	})

	return h
}

// Table makes a table of messages. That of closed connections has an order of its own: the largest first.
func (h *htmlView) Table(id string, rows []messageRow) messageRows {
	q := h.Query.query
	columns := []column{
		{Name: "Message", Link: "type"},
		{Name: "Direction", Class: "m"},
		{Name: "Share", Link: "-wire", Class: "share"},
		{Name: "Cumulative", Class: "n m"},
		{Name: "Rate", Class: "n"},
		{Name: "Messages/s", Link: "-messages", Class: "n m"},
		{Name: "Wire", Class: "n w"},
		{Name: "Messages", Class: "n w"},
		{Name: "Mean", Link: "-mean", Class: "n w"},
		{Name: "Half ≤", Link: "-p50", Class: "n w"},
		{Name: "99 % ≤", Link: "-p99", Class: "n w"},
		{Name: "Ratio", Link: "-ratio", Class: "n w"},
		{Name: "Sizes", Class: "sizes"},
	}

	t := messageRows{ID: id, Label: "Messages", Time: h.Time, Filtered: q.text != "" || q.side != "" || q.direction != ""}
	if id == "messages" {
		t.Columns = sortable(q, "sort", q.messages.sort, columns)
	} else {
		t.Label = "Messages of closed connections"
		t.Columns = sortable(q, "", "", columns)
	}

	for _, r := range rows {
		t.Rows = append(t.Rows, newHTMLRow(r, h.Messages.Group, h.Bounds))
	}

	return t
}

// Pages makes the links to the pages before and after.
func (h *htmlView) Pages(name string, page, pages int) pager {
	p := pager{Page: page, Pages: pages}

	if page > 1 {
		p.Before = h.Query.With(name, strconv.Itoa(page-1))
	}

	if page < pages {
		p.After = h.Query.With(name, strconv.Itoa(page+1))
	}

	return p
}

// sortable makes links of the columns' sort orders; a click on the column that is sorted by turns it around.
func sortable(q query, parameter, current string, columns []column) []column {
	for i := range columns {
		c := &columns[i]
		first := c.Link

		if first == "" || parameter == "" {
			c.Link = ""

			continue
		}

		name := strings.TrimPrefix(first, "-")

		switch current {
		case name:
			c.Sorted, c.Arrow = "ascending", "↑"
			c.Link = q.with(parameter, "-"+name)
		case "-" + name:
			c.Sorted, c.Arrow = "descending", "↓"
			c.Link = q.with(parameter, name)
		default:
			c.Link = q.with(parameter, first)
		}
	}

	return columns
}

func windows(q query) []linkTo {
	offered := []time.Duration{
		time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
	}
	if q.window != 0 && !slices.Contains(offered, q.window) {
		offered = append(offered, q.window)
		slices.Sort(offered)
	}

	var links []linkTo
	for _, d := range offered {
		links = append(links, linkTo{windowName(d), q.with("window", shortDuration(d)), d == q.window})
	}

	return append(links, linkTo{"since start", q.with("window", all), q.window == 0})
}

func windowName(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return strconv.Itoa(int(d/time.Hour)) + thin + "h"
	case d%time.Minute == 0:
		return strconv.Itoa(int(d/time.Minute)) + thin + "min"
	case d%time.Second == 0 && d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + thin + "s"
	default:
		return shortDuration(d)
	}
}

func groupName(group string) string {
	switch group {
	case groupType:
		return "type"
	case groupMethod:
		return "method"
	case groupSeries:
		return "method, type, variant"
	default:
		return "type and variant"
	}
}

// selections are the choices of the form. What is the default has no value, so that it isn't in the address.
func selections(q query) []selection {
	grouped := selection{Label: "By", Name: "group"}
	for _, g := range groups() {
		grouped.add(groupName(g), g, g == q.group, g == groupVariant)
	}

	side := selection{Label: "Side", Name: "side"}
	side.add("both", "", q.side == "", true)
	side.add("client", sideClient, q.side == sideClient, false)
	side.add("server", sideServer, q.side == sideServer, false)

	direction := selection{Label: "Direction", Name: "direction"}
	sent, received := stats.Transmit.String(), stats.Receive.String()
	direction.add("both", "", q.direction == "", true)
	direction.add("sent", sent, q.direction == sent, false)
	direction.add("received", received, q.direction == received, false)

	rows := selection{Label: "Rows", Name: "limit"}
	for _, n := range withValue([]int{20, defaultRows, 100, 200, maxRows}, q.limit) {
		rows.add(countText(n), strconv.Itoa(n), n == q.limit, n == defaultRows)
	}

	refresh := selection{Label: "Refresh", Name: "refresh"}
	refresh.add("off", "off", q.refresh == 0, false)

	offered := []time.Duration{minRefresh, defaultRefresh, 5 * time.Second, 10 * time.Second, 30 * time.Second}
	for _, d := range withValue(offered, q.refresh) {
		if d > 0 {
			refresh.add(windowName(d), shortDuration(d), d == q.refresh, d == defaultRefresh)
		}
	}

	return []selection{grouped, side, direction, rows, refresh}
}

func (s *selection) add(name, value string, current, byDefault bool) {
	if byDefault {
		value = ""
	}

	s.Options = append(s.Options, option{name, value, current})
}

// withValue adds what was chosen to what is offered.
func withValue[T int | time.Duration](offered []T, chosen T) []T {
	if !slices.Contains(offered, chosen) {
		offered = append(offered, chosen)
		slices.Sort(offered)
	}

	return offered
}

// reset keeps the window and the connection, and drops filters, orders and pages.
func reset(q query) string {
	kept := defaultQuery()

	for _, name := range []string{"window", "conn", "format"} {
		if value := q.given.Get(name); value != "" {
			kept.given.Set(name, value)
		}
	}

	return kept.with("q", "")
}
