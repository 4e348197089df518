package statshttp_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

// TestMessagesAndOverheadAreTheBytesOfTheSocket sends 100 bytes of which 60 are a message, and answers with 30 of which 25 are one.
func TestMessagesAndOverheadAreTheBytesOfTheSocket(t *testing.T) {
	reg := stats.NewRegistry()

	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	listener := reg.Listener(plain)
	defer listener.Close()

	client, err := net.Dial("tcp", plain.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	conn := reg.Open(stats.ConnInfo{Local: server.LocalAddr(), Remote: server.RemoteAddr()})
	key := stats.Key{Method: "kv.KV/Do", Type: "kv.Put"}

	if _, err := client.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}

	if _, err := io.ReadFull(server, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}

	if _, err := server.Write(make([]byte, 30)); err != nil {
		t.Fatal(err)
	}

	conn.Series(stats.Key{Method: key.Method, Type: key.Type, Direction: stats.Receive}).Record(t.Context(), 60, 55)
	conn.Series(key).Record(t.Context(), 25, 20)

	h := statshttp.Handler(reg)
	want := map[string]any{
		"read_bytes": 100.0, "written_bytes": 30.0, "received_wire_bytes": 60.0, "sent_wire_bytes": 25.0,
		"read_overhead_bytes": 40.0, "written_overhead_bytes": 5.0, "overhead_share": 45.0 / 130.0,
	}
	check := func(what string, got any) {
		t.Helper()

		for field, v := range want {
			if got := got.(map[string]any)[field]; got != v {
				t.Errorf("%s: %s is %v, want %v", what, field, got, v)
			}
		}
	}

	page := getJSON(t, h, "window=all")
	check("all sockets", page.at("sockets"))
	check("the connection", page.rows("connections", "lifetime")[0].(map[string]any)["socket"])
	check("the connection alone", getJSON(t, h, "window=all&conn=1").at("sockets"))

	if got := page.at("sockets", "live_connections"); got != 1.0 {
		t.Errorf("%v live connections with a socket, want 1", got)
	}

	for _, format := range []string{"html", "text"} {
		body := strings.ReplaceAll(get(t, h, "/?window=all&format="+format).Body.String(), "\u202f", " ")
		for _, part := range []string{"100 B", "40 B", "34.6 %"} {
			if !strings.Contains(body, part) {
				t.Errorf("%s lacks %s", format, part)
			}
		}
	}

	conn.Close()
	server.Close()

	page = getJSON(t, statshttp.Handler(reg), "window=all") // another handler, which shares no earlier reading
	check("all sockets, after the connection closed", page.at("sockets"))
	check("the closed ones", page.at("closed", "socket"))
}

func TestAnExemplarLinksToItsTrace(t *testing.T) {
	reg := stats.NewRegistry(stats.WithExemplars())
	conn := reg.Open(stats.ConnInfo{})
	span := func(id byte) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{id}, SpanID: trace.SpanID{id}, TraceFlags: trace.FlagsSampled,
		})
	}

	for i, size := range []int{10, 3000, 20} {
		conn.Series(stats.Key{Method: "kv.KV/" + string(rune('A'+i)), Type: "kv.Put"}).
			Record(trace.ContextWithSpanContext(t.Context(), span(byte(i+1))), size+5, size)
	}

	const id = "02000000000000000000000000000000"

	h := statshttp.Handler(reg, statshttp.WithTraceURL(func(traceID, spanID string) string {
		return "https://traces.example/" + traceID + "?span=" + spanID
	}))

	got := getJSON(t, h, "").rows("messages", "exemplar")[0].(map[string]any)
	if got["trace_id"] != id || got["span_id"] != id[:16] || got["size_bytes"] != 3000.0 || got["wire_bytes"] != 3005.0 {
		t.Errorf("exemplar %v, want that of the largest message of all series in the row", got)
	}

	want := `href="https://traces.example/` + id + `?span=` + id[:16] + `" rel="noopener noreferrer"`
	if body := get(t, h, "/?format=html").Body.String(); !strings.Contains(body, want) {
		t.Errorf("the page lacks %s", want)
	}

	if body := get(t, h, "/?format=text").Body.String(); !strings.Contains(body, id) || !strings.Contains(body, "LARGEST SAMPLED") {
		t.Errorf("the text lacks the trace:\n%s", body)
	}

	for _, url := range []string{"", "javascript:alert(1)"} {
		h := statshttp.Handler(reg, statshttp.WithTraceURL(func(string, string) string { return url }))
		if body := get(t, h, "/?format=html").Body.String(); strings.Contains(body, "javascript:") || !strings.Contains(body, id) {
			t.Errorf("address %q: the trace isn't shown, or linked to a script", url)
		}
	}

	if body := get(t, statshttp.Handler(reg), "/?format=html").Body.String(); !strings.Contains(body, "trace "+id) {
		t.Error("without addresses the trace isn't shown")
	}
}
