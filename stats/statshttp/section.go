package statshttp

import (
	"fmt"
	"math"
	"time"
)

// Section is a table that another package adds to the page ([WithSection]). It has only plain types, so that a package can
// offer one without importing this one.
type Section interface {
	// DebugSection gives what is shown now: a title, the columns' names, and rows of as many values: strings, numbers, booleans,
	// [time.Duration], [time.Time]; anything else is shown as fmt.Sprint gives it. It is called for each request, by several
	// goroutines at once, and should not wait for anything.
	DebugSection() (title string, columns []string, rows [][]any)
}

// maxColumns is how many columns a section may show.
const maxColumns = 32

func newSection(s Section, limit int) sectionView {
	title, columns, rows := s.DebugSection()
	v := sectionView{Title: clean(title), Columns: make([]string, 0, len(columns)), Rows: len(rows), List: [][]any{}}

	for _, c := range columns[:min(len(columns), maxColumns)] {
		v.Columns = append(v.Columns, clean(c))
	}

	for _, row := range rows[:min(len(rows), limit)] {
		cells := make([]any, len(v.Columns))

		for i := range cells {
			cells[i] = ""
			if i < len(row) {
				cells[i] = cell(row[i])
			}
		}

		v.List = append(v.List, cells)
	}

	return v
}

// cell gives a value that JSON has too. Infinities and NaN are text, which is all that JSON has for them.
func cell(v any) any {
	switch v := v.(type) {
	case nil:
		return ""
	case bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return v
	case float32:
		return cell(float64(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}

		return v
	case string:
		return clean(v)
	case time.Duration:
		return v.String()
	case time.Time:
		return v.Format(time.RFC3339)
	default:
		return clean(fmt.Sprint(v))
	}
}

// Numeric is true for a column of numbers, which stands right-aligned.
func (s sectionView) Numeric(column int) bool {
	for _, row := range s.List {
		switch row[column].(type) {
		case string, bool:
			return false
		default:
		}
	}

	return len(s.List) > 0
}

// cellText writes a cell for a reader.
func cellText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return digitsOrMore(v)
	default:
		return fmt.Sprint(v)
	}
}

func digitsOrMore(f float64) string { return fmt.Sprintf("%.6g", f) }
