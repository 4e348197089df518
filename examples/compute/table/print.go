package table

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A column is one of the table's.
type column struct {
	title string
	text  bool // aligned to the left
	cell  func(Row) string
}

var columns = [...]column{
	{"direction", true, func(r Row) string { return r.Direction }},
	{"connection", true, func(r Row) string { return r.Connection }},
	{"type", true, func(r Row) string { return r.Type }},
	{"variant", true, func(r Row) string { return r.Variant }},
	{"messages", false, func(r Row) string { return strconv.FormatUint(r.Messages, 10) }},
	{"messages/s", false, func(r Row) string { return number(r.MessageRate) }},
	{"wire", false, func(r Row) string { return Bytes(float64(r.Wire)) }},
	{"B/s", false, func(r Row) string { return Bytes(r.WireRate) + "/s" }},
	{"uncompressed", false, func(r Row) string { return Bytes(float64(r.Size)) }},
	{"ratio", false, func(r Row) string { return strconv.FormatFloat(r.Ratio, 'f', 2, 64) }},
	{"share", false, func(r Row) string { return strconv.FormatFloat(100*r.Share, 'f', 1, 64) + " %" }},
	{"p50 size", false, func(r Row) string { return Bytes(r.P50) }},
	{"p99 size", false, func(r Row) string { return Bytes(r.P99) }},
}

// Lines returns the table: a line of titles and one for each row, in columns.
func Lines(rows []Row) []string {
	cells := make([][]string, 0, len(rows)+1)
	titles := make([]string, len(columns))
	for n, c := range columns {
		titles[n] = c.title
	}
	cells = append(cells, titles)
	for _, r := range rows {
		line := make([]string, len(columns))
		for n, c := range columns {
			line[n] = c.cell(r)
		}
		cells = append(cells, line)
	}
	var widths [len(columns)]int
	for _, line := range cells {
		for n, cell := range line {
			widths[n] = max(widths[n], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(cells))
	for n, line := range cells {
		lines[n] = join(line, widths[:])
	}
	return lines
}

func join(cells []string, widths []int) string {
	var b strings.Builder
	for n, cell := range cells {
		if n > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", widths[n]-utf8.RuneCountInString(cell))
		if columns[n].text {
			b.WriteString(cell + pad)
		} else {
			b.WriteString(pad + cell)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Bytes is a number of bytes as people read it: at least three digits, in units of 1024.
func Bytes(n float64) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	unit := 0
	for n >= 1023.5 && unit < len(units)-1 {
		n /= 1024
		unit++
	}
	if unit == 0 {
		return number(n) + " B"
	}
	return fmt.Sprintf("%.*f %s", digits(n), n, units[unit])
}

// number is a number with three digits, or all of those before the point, and none after it if it is whole.
func number(n float64) string {
	if n == float64(int64(n)) {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatFloat(n, 'f', digits(n), 64)
}

// digits is how many to give after the point.
func digits(n float64) int {
	switch {
	case n < 9.995:
		return 2
	case n < 99.95:
		return 1
	default:
		return 0
	}
}
