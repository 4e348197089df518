package statshttp

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageStyle string

//go:embed page/page.js
var pageScript string

// htmlPage writes the view as HTML. Style and script stand in the page and are allowed by their hashes, so the page loads
// nothing and nothing that gets into it by mistake runs.
type htmlPage struct {
	template *template.Template
	style    template.CSS
	script   template.JS
	policy   string
}

func newHTMLPage() *htmlPage {
	return &htmlPage{
		template: template.Must(template.New("").Funcs(templateFuncs()).Parse(pageHTML)),
		style:    template.CSS(pageStyle), //nolint:gosec // an embedded file
		script:   template.JS(pageScript), //nolint:gosec // an embedded file
		policy: strings.Join([]string{
			"default-src 'none'",
			"style-src '" + sourceHash(pageStyle) + "'",
			"script-src '" + sourceHash(pageScript) + "'",
			"connect-src 'self'",
			"form-action 'self'",
			"base-uri 'none'",
			"frame-ancestors 'none'",
			"require-trusted-types-for 'script'",
			"trusted-types 'none'",
		}, "; "),
	}
}

func sourceHash(source string) string {
	sum := sha256.Sum256([]byte(source))

	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (p *htmlPage) write(w io.Writer, v *htmlView) error {
	v.Style, v.Script = p.style, p.script

	return p.template.ExecuteTemplate(w, "page", v)
}

// maxShort is how many characters of a name stand in a table; the details of a row have all of it.
const maxShort = 80

func templateFuncs() template.FuncMap {
	return template.FuncMap{
		"short":     func(s string) string { return shorten(s, maxShort) },
		"rate":      rateText,
		"perSecond": perSecond,
		"number":    number3,
		"percent":   percent,
		"times":     times,
		"bytes":     func(n uint64) string { return bytesText(float64(n)) },
		"bytesf":    bytesText,
		"count": func(n any) string {
			if i, ok := n.(int); ok {
				return countText(i)
			}

			u, _ := n.(uint64)

			return countText(u)
		},
		"count0": func(n uint64) string { return strconv.FormatUint(n, 10) },
		"ago":    func(s float64) string { return age(seconds(s)) },
		"since":  func(t, now time.Time) string { return age(max(0, now.Sub(t))) },
		"width":  func(share float64) string { return fmt.Sprintf("%.2f", 100*max(0, min(share, 1))) },
		"shown": func(matched, all int) string {
			if matched == all {
				return ""
			}

			return fmt.Sprintf(", %s of %s match", countText(matched), countText(all))
		},
		"key":  rowKey,
		"cell": cellText,
	}
}

// rowKey names a row, so that the script finds it again after a refresh.
func rowKey(parts ...any) string {
	h := fnv.New64a()
	for _, p := range parts {
		fmt.Fprintf(h, "%v\x00", p)
	}

	return strconv.FormatUint(h.Sum64(), 16)
}

// htmlRow is a row of a table of messages with what only HTML shows.
type htmlRow struct {
	messageRow

	Key           string
	Package, Name string // of the type
	Spoken        string // for who hears the page
	Retry         bool
	Spark         string
	SparkWidth    int
	Histograms    []histogram
}

// histogram is a picture of sizes with the numbers beside it.
type histogram struct {
	Title         string
	P50, P90, P99 float64
	Buckets       []bucket
}

type bucket struct {
	Name  string
	Width string // 0 to 100
	Count uint64
}

func newHTMLRow(r messageRow, group string, bounds []float64) htmlRow {
	retry := r.RetriedMessages > 0 && r.RetriedMessages == r.Messages
	row := htmlRow{
		messageRow: r, Key: messageKey(r, group, retry), Name: r.Type, Spoken: r.Type, Retry: retry,
		Spark: spark(r.Wire.Counts), SparkWidth: max(1, len(r.Wire.Counts)) * sparkStep,
		Histograms: []histogram{newHistogram("On the wire", r.Wire, bounds), newHistogram("Uncompressed", r.Size, bounds)},
	}

	if i := strings.LastIndexByte(r.Type, '.'); i >= 0 && len(r.Type) <= maxShort {
		row.Package, row.Name = r.Type[:i+1], r.Type[i+1:]
	}

	if row.Spoken == "" {
		row.Spoken = r.Method
	}

	return row
}

// messageKey is made of what the grouping tells apart; the rest of a row may change.
func messageKey(r messageRow, group string, retry bool) string {
	switch group {
	case groupType:
		return rowKey(r.Side, r.Direction, r.Type)
	case groupMethod:
		return rowKey(r.Side, r.Direction, r.Method)
	case groupSeries:
		return rowKey(r.Side, r.Direction, r.Type, r.Variant, r.Method, retry)
	default:
		return rowKey(r.Side, r.Direction, r.Type, r.Variant)
	}
}

const (
	sparkStep   = 5
	sparkHeight = 20
)

// spark draws bars as a path: one path is one value to escape, where a rectangle a bar would be dozens for each row.
func spark(counts []uint64) string {
	var b strings.Builder

	most := largest(counts)

	for i, n := range counts {
		if n == 0 {
			continue
		}

		height := max(1.5, sparkHeight*float64(n)/float64(most))
		fmt.Fprintf(&b, "M%d %dv-%.1fh%dv%.1fz", i*sparkStep, sparkHeight, height, sparkStep-1, height)
	}

	return b.String()
}

func largest(counts []uint64) uint64 {
	var most uint64
	for _, n := range counts {
		most = max(most, n)
	}

	return most
}

// newHistogram leaves out the empty buckets at both ends.
func newHistogram(title string, s sizeView, bounds []float64) histogram {
	h := histogram{Title: title, P50: s.P50, P90: s.P90, P99: s.P99}
	first, last := 0, len(s.Counts)

	for first < last && s.Counts[first] == 0 {
		first++
	}

	for last > first && s.Counts[last-1] == 0 {
		last--
	}

	most := largest(s.Counts)

	for i := first; i < last && i <= len(bounds); i++ {
		name := "all"

		switch {
		case i < len(bounds):
			name = "≤ " + bytesText(bounds[i])
		case i > 0:
			name = "> " + bytesText(bounds[i-1])
		}

		width := 0.0
		if s.Counts[i] > 0 {
			width = max(1, 100*float64(s.Counts[i])/float64(most))
		}

		h.Buckets = append(h.Buckets, bucket{Name: name, Width: fmt.Sprintf("%.1f", width), Count: s.Counts[i]})
	}

	return h
}

// slice is a part of the bar of the largest types.
type slice struct {
	Name     string
	Share    float64
	X, Width string // of 1,000
	Color    int
}

// restColor is the colour of what has no colour of its own.
const restColor = 5

func newStack(types []typeShare) []slice {
	var (
		stack []slice
		x     float64
	)

	add := func(name string, share float64, color int) {
		const gap = 1.5

		stack = append(stack, slice{
			Name: name, Share: share, Color: color,
			X: fmt.Sprintf("%.1f", x*1000), Width: fmt.Sprintf("%.1f", max(0.5, share*1000-gap)),
		})
		x += share
	}

	for i, t := range types {
		add(t.Type, t.Share, i)
	}

	if rest := 1 - x; rest > 1e-9 && len(types) > 0 {
		add("all others", rest, restColor)
	}

	return stack
}

// socketRow is one direction of the sockets.
type socketRow struct {
	Name                   string
	Rate                   float64
	Socket, Wire, Overhead uint64
	Share                  float64
}

func socketRows(s socketsView) []socketRow {
	row := func(name string, rate float64, socket, wire, overhead uint64) socketRow {
		return socketRow{name, rate, socket, wire, overhead, ratio(overhead, socket)}
	}

	return []socketRow{
		row("sent", s.WrittenPerSecond, s.Written, s.SentWire, s.WrittenOverhead),
		row("received", s.ReadPerSecond, s.Read, s.ReceivedWire, s.ReadOverhead),
		row("both", s.WrittenPerSecond+s.ReadPerSecond, s.Written+s.Read, s.SentWire+s.ReceivedWire, s.WrittenOverhead+s.ReadOverhead),
	}
}

// refreshMillis says how long the script waits between two refreshes: as long as was chosen, longer where a reading takes long,
// so that a page that is left open costs a tenth of a core at most, and shorter while there is no reading to compare with.
func refreshMillis(q query, w windowView, cost time.Duration) int64 {
	if q.refresh == 0 {
		return 0
	}

	d := q.refresh
	if w.Note != "" && !q.refreshGiven {
		d = minRefresh
	}

	return int64(math.Ceil(float64(max(d, cost*restCost)) / float64(time.Millisecond)))
}

const restCost = 10
