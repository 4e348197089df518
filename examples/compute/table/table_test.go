package table

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/otelproto/otelproto-go/stats"
)

func TestLinesAreInColumns(t *testing.T) {
	got := Lines(twoRows(), 0)
	//nolint:lll // the table is as wide as it is
	want := []string{
		"direction  conn    type        variant  messages  messages/s      wire         B/s  uncompressed  ratio   share  p50 size  p99 size",
		"transmit   r1/0    a.Command   peek           12        1.50      70 B    8.75 B/s          10 B   0.14   7.1 %       1 B       2 B",
		"receive    r10/12  a.Response             123456       41152  1.00 GiB  5.05 MiB/s      3.00 GiB   3.00  92.9 %    54.0 B   256 KiB",
	}
	for n := range want {
		if diff := cmp.Diff(strings.Fields(want[n]), strings.Fields(got[n])); diff != "" {
			t.Errorf("line %d: %s", n, diff)
		}
		if len(got[n]) != len(got[0]) {
			t.Errorf("line %d has %d columns, the first %d:\n%s\n%s", n, len(got[n]), len(got[0]), got[0], got[n])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func twoRows() []Row {
	return []Row{
		{"transmit", "r1/0", "a.Command", "peek", 12, 1.5, 70, 8.75, 10, 0.142857, 0.0712, 1, 2},
		{"receive", "r10/12", "a.Response", "", 123456, 41152, 1 << 30, 5.3e6, 3 << 30, 3, 0.9288, 54.02, 262144},
	}
}

func TestANarrowTableLeavesOutWhatFollowsFromTheRest(t *testing.T) {
	full := Lines(twoRows(), 0)[0]
	before := len(full)
	for width := before; width > 0; width-- {
		lines := Lines(twoRows(), width)
		titles := strings.Fields(lines[0])
		for _, line := range lines {
			if len(line) > width && len(titles) > 6 {
				t.Fatalf("width %d: a line of %d with %d columns:\n%s", width, len(line), len(titles), line)
			}
		}
		for _, always := range []string{"direction", "conn", "type", "variant", "wire", "share"} {
			if !slices.Contains(titles, always) {
				t.Fatalf("width %d: no column %q in %v", width, always, titles)
			}
		}
	}
	for width, want := range map[int]string{
		before:     full,
		before - 1: strings.Replace(full, "type      ", "type    ", 1),
		100:        "direction  conn    type      variant  messages      wire         B/s  ratio   share  p99 size",
		80:         "direction  conn    type      variant  messages      wire         B/s   share",
	} {
		if diff := cmp.Diff(strings.Fields(want), strings.Fields(Lines(twoRows(), width)[0])); diff != "" {
			t.Errorf("width %d: %s", width, diff)
		}
	}
}

func TestBytesHaveThreeDigitsAndAUnit(t *testing.T) {
	tests := []struct {
		bytes float64
		want  string
	}{
		{0, "0 B"}, {7, "7 B"}, {7.25, "7.25 B"}, {63.96, "64.0 B"}, {999.7, "1000 B"}, {1023, "1023 B"}, {1023.4, "1023 B"},
		{1023.6, "1.00 KiB"}, {1024, "1.00 KiB"}, {1536, "1.50 KiB"}, {10230, "9.99 KiB"}, {10239, "10.0 KiB"}, {102399, "100 KiB"},
		{1 << 20, "1.00 MiB"}, {1<<20 - 1, "1.00 MiB"}, {5 << 30, "5.00 GiB"}, {1 << 62, "4.00 EiB"}, {1 << 80, "1048576 EiB"},
	}
	for _, test := range tests {
		if got := Bytes(test.bytes); got != test.want {
			t.Errorf("%v bytes are %q, want %q", test.bytes, got, test.want)
		}
	}
}

func TestRowsComeFromSnapshots(t *testing.T) {
	command := stats.Key{Method: "S/M", Direction: stats.Transmit, Type: "a.Command", Variant: "peek"}
	response := stats.Key{Method: "S/M", Direction: stats.Receive, Type: "a.Response"}
	r := stats.NewRegistry()
	open := func(port int) *stats.Conn {
		return r.Open(stats.ConnInfo{Client: true, Remote: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}})
	}
	record := func(c *stats.Conn, k stats.Key, wire, size, times int) {
		for range times {
			c.Series(k).Record(context.Background(), wire, size)
		}
	}
	gone, stays := open(1), open(2)
	record(gone, command, 105, 100, 3)
	record(stays, command, 105, 100, 2)
	gone.Close()
	before := r.Snapshot()
	record(stays, command, 105, 100, 1)
	record(stays, response, 35, 60, 3)
	now := r.Snapshot()

	window := now.Sub(before)
	window.Time = window.Start.Add(2 * time.Second)
	name := func(c stats.ConnSnapshot) string {
		return "port " + strings.TrimPrefix(c.Info.Remote.String(), "127.0.0.1:")
	}
	ignore := cmpopts.IgnoreFields(Row{}, "P50", "P99")
	want := []Row{
		{
			Direction: "transmit", Connection: "closed", Type: "a.Command", Variant: "peek", Messages: 3,
			Wire: 315, Size: 300, Ratio: 300.0 / 315,
		},
		{
			Direction: "transmit", Connection: "port 2", Type: "a.Command", Variant: "peek", Messages: 3, MessageRate: 0.5,
			Wire: 315, WireRate: 52.5, Size: 300, Ratio: 300.0 / 315, Share: 0.5,
		},
		{
			Direction: "receive", Connection: "port 2", Type: "a.Response", Messages: 3, MessageRate: 1.5,
			Wire: 105, WireRate: 52.5, Size: 180, Ratio: 180.0 / 105, Share: 0.5,
		},
	}
	if diff := cmp.Diff(want, PerConnection(now, window, name), ignore); diff != "" {
		t.Error(diff)
	}
	want = []Row{
		{
			Direction: "transmit", Connection: "all", Type: "a.Command", Variant: "peek", Messages: 6, MessageRate: 0.5,
			Wire: 630, WireRate: 52.5, Size: 600, Ratio: 600.0 / 630, Share: 0.5,
		},
		{
			Direction: "receive", Connection: "all", Type: "a.Response", Messages: 3, MessageRate: 1.5,
			Wire: 105, WireRate: 52.5, Size: 180, Ratio: 180.0 / 105, Share: 0.5,
		},
	}
	total := InTotal(now, window, "all")
	if diff := cmp.Diff(want, total, ignore); diff != "" {
		t.Error(diff)
	}
	if p := total[0].P50; p <= 64 || p > 256 {
		t.Errorf("p50 of messages of 100 bytes is %v, want one in their bucket", p)
	}
}

func TestAScreenDrawsTheVersionThatFits(t *testing.T) {
	var drawn strings.Builder
	width, height := 6, 3
	s, err := NewScreen(&drawn, func() (int, int) { return width, height })
	if err != nil {
		t.Fatal(err)
	}
	draw := func(versions ...[]string) string {
		t.Helper()
		drawn.Reset()
		if err := s.Draw(versions...); err != nil {
			t.Fatal(err)
		}
		text, ok := strings.CutPrefix(drawn.String(), home)
		if !ok || !strings.HasSuffix(text, below) {
			t.Errorf("%q doesn't begin at the top and clear what is below", drawn.String())
		}
		return strings.ReplaceAll(strings.ReplaceAll(strings.TrimSuffix(text, below), erase, ""), "\r\n", "|")
	}
	long, short := []string{"1", "2", "3", "4"}, []string{"a", "b"}
	if got := draw(long, short); got != "a|b" {
		t.Errorf("in 3 lines: %q", got)
	}
	height = 4
	if got := draw(long, short); got != "1|2|3|4" {
		t.Errorf("in 4 lines: %q", got)
	}
	width, height = 80, 1
	if got := draw(long, short); got != "… and 2 lines more" {
		t.Errorf("in 1 line: %q", got)
	}
	height = 0
	if got := draw(long, short); got != "" {
		t.Errorf("in no line: %q", got)
	}
	width, height = 3, 4
	if got := draw([]string{"äöüß", "äö", ""}); got != "äöü|äö|" {
		t.Errorf("in 3 columns: %q", got)
	}
	drawn.Reset()
	if err := s.Close(); err != nil || drawn.String() != leave {
		t.Errorf("closing writes %q, %v", drawn.String(), err)
	}
}
