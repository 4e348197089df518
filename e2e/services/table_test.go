package services_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// page is the documentation's table of what agreed.
const page = "../../docs/services.md"

// compressedBy is the Go version whose compress/gzip made the page's last column: another one may find other bytes.
const compressedBy = "go1.26"

// table is the page's, and which of its rows were measured.
var table struct {
	rows map[string][]string

	// mu guards measured.
	mu       sync.Mutex
	measured map[string]bool
}

// The columns after a row's name.
const (
	messages = iota
	kinds
	payload
	plain
	compressed
	columns
)

const (
	// varies stands behind a value that isn't the same in every run.
	varies = "(varies)"
	// none stands where there is no such run.
	none = "–"
)

func TestMain(m *testing.M) {
	flag.Parse()

	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "services")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	stop, err := startGoogle(dir)
	if err != nil {
		return 0, err
	}
	defer stop()

	if table.rows, err = readTable(); err != nil {
		return 0, err
	}

	table.measured = make(map[string]bool)
	code = m.Run()

	part := slices.ContainsFunc([]string{"test.run", "test.skip", "test.list"}, func(name string) bool {
		return flag.Lookup(name).Value.String() != ""
	})
	if code != 0 || part || runtime.GOOS != "linux" { // where credentials can't be had
		return code, nil
	}

	for name := range table.rows {
		if !table.measured[name] {
			err = errors.Join(err, fmt.Errorf("%s has a row that no test measured: %s", filepath.Base(page), name))
		}
	}

	return code, err
}

// readTable gives the cells of each row, by its name.
func readTable() (map[string][]string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}

	rows := make(map[string][]string)

	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != columns+1 {
			continue
		}

		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}

		if name := cells[0]; name != "service" && !strings.HasPrefix(name, "--") {
			rows[name] = cells[1:]
		}
	}

	return rows, nil
}

// tabulate compares what the client's handler recorded, once check has found that it is true, with the row of the page. A name that
// ends in ", plain" or ", gzip" is a row's and says which of its runs this is.
func (s *sides) tabulate(t *testing.T) {
	t.Helper()

	name, wire := strings.TrimSuffix(s.name, ", plain"), plain
	if rest, ok := strings.CutSuffix(name, ", gzip"); ok {
		name, wire = rest, compressed
	}

	var sum counts

	found := make(map[string]bool)
	for k, c := range s.client.rows() {
		found[k.Type+"/"+k.Variant] = true
		sum.Messages += c.Messages
		sum.Wire += c.Wire
		sum.Size += c.Size
	}

	got := slices.Repeat([]string{none}, columns)
	got[messages], got[kinds], got[payload] = grouped(sum.Messages), grouped(uint64(len(found))), grouped(sum.Size)
	got[wire] = grouped(sum.Wire)

	table.mu.Lock()
	defer table.mu.Unlock()

	table.measured[name] = true
	want := table.rows[name]

	if want == nil {
		t.Errorf("%s has no row | %s | %s |", filepath.Base(page), name, strings.Join(got, " | "))

		return
	}

	for i, cell := range want {
		switch {
		case strings.HasSuffix(cell, varies), got[i] == none, i == compressed && !strings.HasPrefix(runtime.Version(), compressedBy):
		case cell != got[i]:
			t.Errorf("%s says %s, measured | %s | %s |", filepath.Base(page), cell, name, strings.Join(got, " | "))
		}
	}
}

// grouped writes a number with a comma between thousands.
func grouped(n uint64) string {
	text := strconv.FormatUint(n, 10)

	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}

	return text
}
