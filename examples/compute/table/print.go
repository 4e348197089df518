package table

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// titles are the columns', in the order of cells.
func titles() []string {
	return []string{
		"direction", "connection", "type", "variant",
		"messages", "messages/s", "wire", "B/s", "uncompressed", "ratio", "share", "p50 size", "p99 size",
	}
}

// texts is how many of the columns, from the first on, are text; the others are numbers.
const texts = 4

func (r Row) cells() []string {
	return []string{
		r.Direction, r.Connection, r.Type, r.Variant,
		strconv.FormatUint(r.Messages, 10),
		number(r.MessageRate),
		Bytes(float64(r.Wire)),
		Bytes(r.WireRate) + "/s",
		Bytes(float64(r.Size)),
		strconv.FormatFloat(r.Ratio, 'f', 2, 64),
		strconv.FormatFloat(100*r.Share, 'f', 1, 64) + " %",
		Bytes(r.P50),
		Bytes(r.P99),
	}
}

// Lines returns the table: a line of titles and one for each row, in columns.
func Lines(rows []Row) []string {
	cells := make([][]string, 0, len(rows)+1)
	cells = append(cells, titles())
	for _, r := range rows {
		cells = append(cells, r.cells())
	}
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for n, cell := range line {
			widths[n] = max(widths[n], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(cells))
	for n, line := range cells {
		lines[n] = join(line, widths)
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
		if n < texts {
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
