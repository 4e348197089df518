package table

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A column is one of the table's.
type column struct {
	title string
	cell  func(Row) string
	text  bool // to the left; a number stands to the right
	// spare is the order in which columns are left out where there is no room for all: the lowest first, those of 0 never.
	spare int
}

func columns() []column {
	return []column{
		{title: "direction", text: true, cell: func(r Row) string { return r.Direction }},
		{title: "conn", text: true, cell: func(r Row) string { return r.Connection }},
		{title: "type", text: true, cell: func(r Row) string { return r.Type }},
		{title: "variant", text: true, cell: func(r Row) string { return r.Variant }},
		{title: "messages", spare: 7, cell: func(r Row) string { return strconv.FormatUint(r.Messages, 10) }},
		{title: "messages/s", spare: 2, cell: func(r Row) string { return number(r.MessageRate) }},
		{title: "wire", cell: func(r Row) string { return Bytes(float64(r.Wire)) }},
		{title: "B/s", spare: 6, cell: func(r Row) string { return Bytes(r.WireRate) + "/s" }},
		{title: "uncompressed", spare: 1, cell: func(r Row) string { return Bytes(float64(r.Size)) }},
		{title: "ratio", spare: 5, cell: func(r Row) string { return strconv.FormatFloat(r.Ratio, 'f', 2, 64) }},
		{title: "share", cell: func(r Row) string { return strconv.FormatFloat(100*r.Share, 'f', 1, 64) + " %" }},
		{title: "p50 size", spare: 3, cell: func(r Row) string { return Bytes(r.P50) }},
		{title: "p99 size", spare: 4, cell: func(r Row) string { return Bytes(r.P99) }},
	}
}

// Lines returns the table: a line of titles and one for each row, in columns. Where the width has no room for all of them,
// types go without their package, and then columns are left out, those first that follow from others. A width of 0 is no
// bound, and one that is too small even for the most important columns none that holds.
func Lines(rows []Row, width int) []string {
	columns := columns()
	lines, wide := layOut(columns, rows)
	if width <= 0 || wide <= width {
		return lines
	}
	short := slices.Clone(rows)
	for n := range short {
		short[n].Type = short[n].Type[strings.LastIndexByte(short[n].Type, '.')+1:]
	}
	for lines, wide = layOut(columns, short); wide > width; lines, wide = layOut(columns, short) {
		next := -1
		for n, c := range columns {
			if c.spare > 0 && (next < 0 || c.spare < columns[next].spare) {
				next = n
			}
		}
		if next < 0 {
			break
		}
		columns = slices.Delete(columns, next, next+1)
	}
	return lines
}

// layOut returns the lines and how wide the table is.
func layOut(columns []column, rows []Row) (lines []string, wide int) {
	lines = make([]string, len(rows)+1)
	for n, c := range columns {
		cells := append(make([]string, 0, len(lines)), c.title)
		for _, r := range rows {
			cells = append(cells, c.cell(r))
		}
		width := 0
		for _, cell := range cells {
			width = max(width, utf8.RuneCountInString(cell))
		}
		for i, cell := range cells {
			if n > 0 {
				lines[i] += "  "
			}
			pad := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
			if c.text {
				lines[i] += cell + pad
			} else {
				lines[i] += pad + cell
			}
		}
		wide += width + 2
	}
	return lines, wide - 2
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
