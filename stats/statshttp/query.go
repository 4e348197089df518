package statshttp

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/otelproto/otelproto-go/stats"
)

// The limits of what a reader can ask for.
const (
	minWindow     = time.Second
	maxWindow     = time.Hour
	defaultWindow = 10 * time.Second

	minRefresh     = time.Second
	maxRefresh     = time.Minute
	defaultRefresh = 2 * time.Second

	maxFilter    = 256 // bytes
	maxPage      = 1_000_000
	maxRows      = 1000
	defaultRows  = 50
	maxQueryText = 8192 // bytes
)

// all is the value of a parameter that leaves nothing out.
const all = "all"

// query is what a reader asks for.
type query struct {
	format  string        // empty: what the header Accept says
	window  time.Duration // 0: since counting began
	refresh time.Duration // 0: never
	// refreshGiven is true where the reader chose the refresh, which a page without JavaScript does then too.
	refreshGiven bool

	group          string
	side           string // client, server or empty
	direction      string // transmit, receive or empty
	text           string // filter of messages, in lower case
	peer           string // filter of peers and connections, in lower case
	conn           uint64 // 0: all connections
	messages       listing
	peers          listing
	conns          listing
	limit          int
	given          url.Values // parameters that differ from their defaults, for links
	textAs, peerAs string     // the filters as written
}

// listing says how a table is sorted and which page of it is shown.
type listing struct {
	sort string // a column, with "-" before it for the largest first
	page int    // from 1
}

// parameter is one parameter of the query.
type parameter struct {
	expected string
	// set gives false where the value isn't what is expected.
	set func(q *query, value string) bool
}

func parameters() map[string]parameter {
	return map[string]parameter{
		"format":    choice([]string{formatHTML, formatJSON, formatText}, func(q *query, v string) { q.format = v }),
		"window":    {"all, or a duration from 1s to 1h such as 30s", setWindow},
		"refresh":   {"off, or a duration from 1s to 1m such as 5s", setRefresh},
		"group":     choice(groups(), func(q *query, v string) { q.group = v }),
		"side":      choice([]string{all, sideClient, sideServer}, func(q *query, v string) { q.side = unlessAll(v) }),
		"direction": choice(directions(), func(q *query, v string) { q.direction = unlessAll(v) }),
		"q":         filter(func(q *query, v string) { q.textAs, q.text = v, strings.ToLower(v) }),
		"peer":      filter(func(q *query, v string) { q.peerAs, q.peer = v, strings.ToLower(v) }),
		"conn":      {"the number of a connection, at least 1", setConn},
		"sort":      order(messageColumns(), func(q *query) *listing { return &q.messages }),
		"peersort":  order(peerColumns(), func(q *query) *listing { return &q.peers }),
		"connsort":  order(connColumns(), func(q *query) *listing { return &q.conns }),
		"page":      number(maxPage, func(q *query, n int) { q.messages.page = n }),
		"peerpage":  number(maxPage, func(q *query, n int) { q.peers.page = n }),
		"connpage":  number(maxPage, func(q *query, n int) { q.conns.page = n }),
		"limit":     number(maxRows, func(q *query, n int) { q.limit = n }),
	}
}

func defaultQuery() query {
	first := listing{sort: "-wire", page: 1}

	return query{
		window: defaultWindow, refresh: defaultRefresh, group: groupVariant, limit: defaultRows,
		messages: first, peers: first, conns: first, given: url.Values{},
	}
}

// parseQuery reads the parameters of a URL. An error says which one is wrong and what was expected.
func parseQuery(raw string) (query, error) {
	q := defaultQuery()

	if len(raw) > maxQueryText {
		return q, fmt.Errorf("the query has %d bytes, expected at most %d", len(raw), maxQueryText)
	}

	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, fmt.Errorf("the query isn't well formed (%s), expected name=value&name=value", cut(err.Error(), 100))
	}

	known := parameters()

	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]

		p, ok := known[name]
		if !ok {
			return q, fmt.Errorf("there is no parameter %s, expected one of %s",
				quoted(name), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}

		if len(given) > 1 {
			return q, fmt.Errorf("%s is given %d times, expected once", name, len(given))
		}

		if given[0] == "" { // an input of the form that was left empty
			continue
		}

		if !p.set(&q, given[0]) {
			return q, fmt.Errorf("%s is %s, expected %s", name, quoted(given[0]), p.expected)
		}

		q.given[name] = given
	}

	return q, nil
}

// with gives the query of a link that differs in one parameter; an empty value is the default. A page number belongs to
// an order and a filter, so it goes where these change.
func (q query) with(name, value string) string {
	values := maps.Clone(q.given)
	values.Del(name)

	if value != "" {
		values.Set(name, value)
	}

	switch name {
	case "page", "peerpage", "connpage":
	case "sort":
		values.Del("page")
	case "peersort":
		values.Del("peerpage")
	case "connsort":
		values.Del("connpage")
	default:
		values.Del("page")
		values.Del("peerpage")
		values.Del("connpage")
	}

	return "?" + values.Encode()
}

func choice(values []string, set func(q *query, v string)) parameter {
	return parameter{"one of " + strings.Join(values, ", "), func(q *query, v string) bool {
		if !slices.Contains(values, v) {
			return false
		}

		set(q, v)

		return true
	}}
}

func filter(set func(q *query, v string)) parameter {
	return parameter{fmt.Sprintf("at most %d bytes of UTF-8", maxFilter), func(q *query, v string) bool {
		if len(v) > maxFilter || !utf8.ValidString(v) {
			return false
		}

		set(q, v)

		return true
	}}
}

func order(columns []string, of func(q *query) *listing) parameter {
	return parameter{
		"one of " + strings.Join(columns, ", ") + `, with "-" before it for the largest first`,
		func(q *query, v string) bool {
			if !slices.Contains(columns, strings.TrimPrefix(v, "-")) {
				return false
			}

			of(q).sort = v

			return true
		},
	}
}

func number(most int, set func(q *query, n int)) parameter {
	return parameter{fmt.Sprintf("a number from 1 to %d", most), func(q *query, v string) bool {
		n, err := strconv.ParseUint(v, 10, 32)
		if err != nil || n < 1 || n > uint64(most) {
			return false
		}

		set(q, int(n))

		return true
	}}
}

func setWindow(q *query, v string) bool {
	if v == all {
		q.window = 0

		return true
	}

	d, err := time.ParseDuration(v)
	if err != nil || d < minWindow || d > maxWindow {
		return false
	}

	q.window = d

	return true
}

func setRefresh(q *query, v string) bool {
	q.refreshGiven = true

	if v == "off" {
		q.refresh = 0

		return true
	}

	d, err := time.ParseDuration(v)
	if err != nil || d < minRefresh || d > maxRefresh {
		return false
	}

	q.refresh = d

	return true
}

func setConn(q *query, v string) bool {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n < 1 {
		return false
	}

	q.conn = n

	return true
}

func unlessAll(v string) string {
	if v == all {
		return ""
	}

	return v
}

func directions() []string { return []string{all, stats.Transmit.String(), stats.Receive.String()} }
