package statshttp_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/otelproto/otelproto-go/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get asks a handler and gives what it answers.
func get(tb testing.TB, h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	tb.Helper()

	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}

	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)

	return w
}

// getJSON gives the page as JSON.
func getJSON(tb testing.TB, h http.Handler, parameters string) object {
	tb.Helper()

	w := get(tb, h, "/?format=json&"+parameters)
	if w.Code != http.StatusOK {
		tb.Fatalf("%s: status %d: %s", parameters, w.Code, w.Body)
	}

	var o object
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
		tb.Fatalf("%s: %v", parameters, err)
	}

	return o
}

// object is an object of JSON.
type object map[string]any

// at follows names into an object.
func (o object) at(names ...string) any {
	var v any = map[string]any(o)
	for _, n := range names {
		v = v.(map[string]any)[n]
	}

	return v
}

// rows gives one field of all rows of a table.
func (o object) rows(table, field string) []any {
	values := []any{}
	for _, r := range o.at(table, "rows").([]any) {
		values = append(values, r.(map[string]any)[field])
	}

	return values
}

func tcp(ip byte, port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, ip), Port: port} }

// record counts n messages that aren't compressed.
func record(c *stats.Conn, d stats.Direction, typ, variant string, n, size int) {
	s := c.Series(stats.Key{Method: "kv.KV/Do", Direction: d, Type: typ, Variant: variant})
	for range n {
		s.Record(context.Background(), size+5, size)
	}
}
