package stats_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/stats"
)

func TestADirectionIsTextInJSON(t *testing.T) {
	for d, want := range map[stats.Direction]string{stats.Transmit: `"transmit"`, stats.Receive: `"receive"`} {
		text, err := json.Marshal(d)
		if err != nil || string(text) != want {
			t.Errorf("got %s, %v; expected %s", text, err, want)
		}

		back := stats.Direction(9)
		if err := json.Unmarshal(text, &back); err != nil || back != d {
			t.Errorf("%s: got %v, %v", text, back, err)
		}
	}

	var d stats.Direction
	if err := json.Unmarshal([]byte(`"up"`), &d); err == nil || !strings.Contains(err.Error(), "expected transmit or receive") {
		t.Errorf("got %v, expected an error that names what is expected", err)
	}

	if got := stats.Direction(9).String(); got != "Direction(9)" {
		t.Errorf("got %s", got)
	}
}

// What names exporters refuse, or a peer could fill the memory with, is cut.
func TestNamesAreCutAndMadeValid(t *testing.T) {
	long := strings.Repeat("ü", 5_000)

	for _, name := range []string{
		"", "plain", "a\xffb", long, "x" + long, "xy" + long, strings.Repeat("\xff", 3_000), strings.Repeat("€", 341) + "xüy",
	} {
		s := newTestSeries(t)
		s.conn.Series(stats.Key{Method: name, Type: name, Variant: name}).Record(t.Context(), 1, 1)

		row := s.registry.Snapshot().Total[1]
		for _, got := range []string{row.Key.Method, row.Key.Type, row.Key.Variant} {
			if len(got) > 1024 || !utf8.ValidString(got) {
				t.Errorf("%.20q gives %d bytes, valid: %v", name, len(got), utf8.ValidString(got))
			}

			if len(name) <= 1024 && utf8.ValidString(name) && got != name {
				t.Errorf("%.20q became %.20q", name, got)
			}

			if len(name) > 1024+3 && utf8.ValidString(name) && len(got) < 1024-3 {
				t.Errorf("%.20q was cut to %d bytes, expected nearly 1024", name, len(got))
			}
		}
	}
}

func TestKeysThatAreCutAlikeAreOneSeries(t *testing.T) {
	r := stats.NewRegistry()
	c := r.Open(stats.ConnInfo{})
	long := strings.Repeat("m", 1024)

	for _, method := range []string{long + "1", long + "2", long} {
		record(t.Context(), c.Series(stats.Key{Method: method}), 1, 10)
	}

	total := r.Snapshot().Total
	if len(total) != 1 || total[0].Messages != 3 {
		t.Errorf("got %d rows, expected one with 3 messages", len(total))
	}
}

func TestTheSameKeyGivesTheSameSeries(t *testing.T) {
	r := stats.NewRegistry()
	c := r.Open(stats.ConnInfo{})
	k := stats.Key{Method: "m", Direction: stats.Receive, Type: "t", Variant: "v"}

	if first, again := c.Series(k), c.Series(k); first != again {
		t.Error("two series for one key")
	}

	other := k
	other.Retry = true

	if c.Series(k) == c.Series(other) {
		t.Error("one series for two keys")
	}

	if r.Open(stats.ConnInfo{}).Series(k) == c.Series(k) {
		t.Error("one series for two connections")
	}

	var keys []stats.Key
	for _, row := range r.Snapshot().Conns[0].Rows {
		keys = append(keys, row.Key)
	}

	if diff := cmp.Diff([]stats.Key{k, other}, keys); diff != "" {
		t.Error(diff)
	}
}
