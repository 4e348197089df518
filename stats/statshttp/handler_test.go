package statshttp_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

// kv is a registry of a server with two peers and of a client.
func kv() *stats.Registry {
	reg := stats.NewRegistry()
	a := reg.Open(stats.ConnInfo{Local: tcp(1, 80), Remote: tcp(2, 4000)})
	record(a, stats.Receive, "kv.Put", "", 10, 995)   // 10,000 wire bytes
	record(a, stats.Receive, "kv.Batch", "a", 5, 195) // 1,000
	record(a, stats.Transmit, "kv.Done", "", 15, 0)   // 75

	b := reg.Open(stats.ConnInfo{Local: tcp(1, 80), Remote: tcp(3, 4001)})
	record(b, stats.Receive, "kv.Batch", "b", 2, 245) // 500

	c := reg.Open(stats.ConnInfo{Client: true, Local: tcp(1, 5000), Remote: tcp(9, 443), Authority: "store:443"})
	record(c, stats.Transmit, "kv.Put", "", 1, 420) // 425

	gone := reg.Open(stats.ConnInfo{Local: tcp(1, 80), Remote: tcp(4, 4002)})
	record(gone, stats.Receive, "kv.Put", "", 4, 245) // 1,000
	gone.Close()

	return reg
}

func TestTheBreakdownAddsUp(t *testing.T) {
	page := getJSON(t, statshttp.Handler(kv()), "window=all")

	const all = 10_000 + 1000 + 75 + 500 + 425 + 1000 // 13,000

	want := map[string][]any{
		"type":       {"kv.Put", "kv.Batch", "kv.Batch", "kv.Put", "kv.Done"},
		"variant":    {"", "a", "b", "", ""},
		"side":       {"server", "server", "server", "client", "server"},
		"direction":  {"receive", "receive", "receive", "transmit", "transmit"},
		"wire_bytes": {11_000.0, 1000.0, 500.0, 425.0, 75.0},
		"size_bytes": {11_000.0 - 14*5, 1000.0 - 5*5, 500.0 - 2*5, 420.0, 0.0},
		"messages":   {14.0, 5.0, 2.0, 1.0, 15.0},
		"share":      {11_000.0 / all, 1000.0 / all, 500.0 / all, 425.0 / all, 75.0 / all},
		"cumulative_share": {
			11_000.0 / all, 12_000.0 / all, 12_500.0 / all, 12_925.0 / all, 1.0,
		},
	}
	for field, values := range want {
		if diff := cmp.Diff(values, page.rows("messages", field), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("messages by %s (-want +got):\n%s", field, diff)
		}
	}

	if got, want := page.at("summary", "sentence"), "Two types of 3 are 99.4\u202f% of the bytes."; got != want {
		t.Errorf("sentence %q, want %q", got, want)
	}

	if got := page.rows("peers", "peer"); !cmp.Equal(got, []any{"10.0.0.2", "10.0.0.3", "store:443"}) {
		t.Errorf("peers %v", got)
	}

	if got := page.rows("connections", "share"); !cmp.Equal(got, []any{11_075.0 / 12_000, 500.0 / 12_000, 425.0 / 12_000}) {
		t.Errorf("shares of connections: %v", got)
	}

	if got := page.at("closed", "wire_bytes"); got != 1000.0 {
		t.Errorf("closed connections have %v wire bytes, want 1000", got)
	}

	if got := page.at("summary", "live_server_connections"); got != 2.0 {
		t.Errorf("%v live connections as server, want 2", got)
	}
}

func TestFiltersOrdersGroupsAndPages(t *testing.T) {
	h := statshttp.Handler(kv())

	for _, test := range []struct {
		parameters, table, field string
		want                     []any
	}{
		{"group=type", "messages", "wire_bytes", []any{11_000.0, 1500.0, 425.0, 75.0}},
		{"group=type", "messages", "variant", []any{"", "", "", ""}},
		{"group=method", "messages", "wire_bytes", []any{12_500.0, 425.0, 75.0}},
		{"group=series&q=PUT", "messages", "wire_bytes", []any{11_000.0, 425.0}},
		{"q=kv.kv/do", "messages", "messages", []any{14.0, 5.0, 2.0, 1.0, 15.0}},
		{"q=nothing", "messages", "type", []any{}},
		{"side=client", "messages", "wire_bytes", []any{425.0}},
		{"side=client", "connections", "peer", []any{"store:443"}},
		{"direction=transmit", "messages", "wire_bytes", []any{425.0, 75.0}},
		{"sort=wire", "messages", "wire_bytes", []any{75.0, 425.0, 500.0, 1000.0, 11_000.0}},
		{"sort=-messages", "messages", "messages", []any{15.0, 14.0, 5.0, 2.0, 1.0}},
		{"sort=type", "messages", "type", []any{"kv.Batch", "kv.Batch", "kv.Done", "kv.Put", "kv.Put"}},
		{"limit=2", "messages", "wire_bytes", []any{11_000.0, 1000.0}},
		{"limit=2&page=3", "messages", "wire_bytes", []any{75.0}},
		{"limit=2&page=99", "messages", "wire_bytes", []any{75.0}},
		{"peer=10.0.0.3", "connections", "id", []any{2.0}},
		{"peer=4001", "peers", "peer", []any{"10.0.0.3"}},
		{"peersort=peer", "peers", "peer", []any{"10.0.0.2", "10.0.0.3", "store:443"}},
		{"peersort=-peer", "peers", "peer", []any{"store:443", "10.0.0.3", "10.0.0.2"}},
		{"peersort=-sent", "peers", "peer", []any{"store:443", "10.0.0.2", "10.0.0.3"}},
		{"connsort=id", "connections", "id", []any{1.0, 2.0, 3.0}},
		{"connsort=-id&limit=1&connpage=2", "connections", "id", []any{2.0}},
		{"connsort=-age", "connections", "id", []any{1.0, 2.0, 3.0}},
		{"conn=1", "messages", "wire_bytes", []any{10_000.0, 1000.0, 75.0}},
		{"conn=1", "connections", "id", []any{1.0}},
		{"q=&peer=&group=", "messages", "messages", []any{14.0, 5.0, 2.0, 1.0, 15.0}},
	} {
		if diff := cmp.Diff(test.want, getJSON(t, h, "window=all&"+test.parameters).rows(test.table, test.field)); diff != "" {
			t.Errorf("%s: %s of %s (-want +got):\n%s", test.parameters, test.field, test.table, diff)
		}
	}
}

func TestALinkToAnotherOrderOrFilterStartsAtTheFirstPage(t *testing.T) {
	body := get(t, statshttp.Handler(kv()), "/?format=html&limit=1&page=2&connpage=2&peerpage=2").Body.String()

	for link, want := range map[string]bool{
		"?connpage=2&amp;format=html&amp;limit=1&amp;page=3&amp;peerpage=2":                true, // next page
		"?connpage=2&amp;format=html&amp;limit=1&amp;peerpage=2&amp;sort=-mean":            true, // another order
		"?format=html&amp;limit=1&amp;window=1m":                                           true, // another window
		"?connpage=2&amp;format=html&amp;limit=1&amp;page=2&amp;peerpage=2&amp;window=1m":  false,
		"?connpage=2&amp;format=html&amp;limit=1&amp;page=2&amp;peerpage=2&amp;sort=-mean": false,
		"?format=html": true, // reset
		"?format=html&amp;limit=1&amp;peer=10.0.0.3": true,
	} {
		if got := strings.Contains(body, `"`+link+`"`); got != want {
			t.Errorf("link %s: %t, want %t", link, got, want)
		}
	}
}

func TestTheFormatFollowsTheRequest(t *testing.T) {
	h := statshttp.Handler(kv())

	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

	for _, test := range []struct{ target, accept, want string }{
		{"/", browser, "text/html; charset=utf-8"},
		{"/", "*/*", "text/plain; charset=utf-8"},
		{"/", "", "text/plain; charset=utf-8"},
		{"/", "text/plain", "text/plain; charset=utf-8"},
		{"/", "application/json", "application/json; charset=utf-8"},
		{"/", "text/html;q=0.2, application/json;q=0.9", "application/json; charset=utf-8"},
		{"/", "text/html;q=0, text/plain;q=0.1", "text/plain; charset=utf-8"},
		{"/", "application/json;q=NaN", "text/plain; charset=utf-8"},
		{"/?format=json", browser, "application/json; charset=utf-8"},
		{"/?format=text", browser, "text/plain; charset=utf-8"},
		{"/?format=html", "", "text/html; charset=utf-8"},
	} {
		w := get(t, h, test.target, "Accept", test.accept)
		if got := w.Header().Get("Content-Type"); got != test.want || w.Code != http.StatusOK {
			t.Errorf("%s, Accept %q: status %d, %s, want %s", test.target, test.accept, w.Code, got, test.want)
		}

		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Vary": "Accept", "Referrer-Policy": "no-referrer",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", test.target, name, got, want)
			}
		}
	}
}

func TestThePolicyAllowsOnlyThePagesOwnStyleAndScript(t *testing.T) {
	w := get(t, statshttp.Handler(kv()), "/?format=html")
	policy := w.Header().Get("Content-Security-Policy")

	for _, want := range []string{"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s: %s", want, policy)
		}
	}

	for _, never := range []string{"unsafe", "*", "http", "data:"} {
		if strings.Contains(policy, never) {
			t.Errorf("the policy has %s: %s", never, policy)
		}
	}

	for _, never := range []string{"style=\"", "onclick", "src=", "http://", "https://", "ZgotmplZ"} {
		if strings.Contains(w.Body.String(), never) {
			t.Errorf("the page has %s", never)
		}
	}
}

func TestOtherMethodsAreRefusedAndHeadHasNoBody(t *testing.T) {
	h := statshttp.Handler(kv())

	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "<SCRIPT>"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method = method
		h.ServeHTTP(w, r)

		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: status %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/?format=json", nil))

	if w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "0" {
		t.Errorf("HEAD: status %d, %d bytes, Content-Length %s", w.Code, w.Body.Len(), w.Header().Get("Content-Length"))
	}
}

func TestItWorksAtAnyPath(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/a/messages", statshttp.Handler(kv()))
	mux.Handle("/b/", http.StripPrefix("/b", statshttp.Handler(kv())))

	for _, target := range []string{"/a/messages", "/b/", "/b/messages?sort=-mean"} {
		w := get(t, mux, target, "Accept", "text/html")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "kv.") {
			t.Errorf("%s: status %d", target, w.Code)
		}

		for _, attribute := range []string{"href=\"", "action=\""} {
			for part := range strings.SplitSeq(w.Body.String(), attribute) {
				if !strings.HasPrefix(part, "<!DOCTYPE") && !strings.HasPrefix(part, "?") {
					t.Errorf("%s: a link that isn't relative: %.40s", target, part)
				}
			}
		}
	}
}

func TestAConnectionThatIsNotLiveIsNotFound(t *testing.T) {
	w := get(t, statshttp.Handler(kv()), "/?conn=4")
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "connection 4 isn't live") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestConnectionsBeyondTheLimitAreShownTogether(t *testing.T) {
	reg := stats.NewRegistry(stats.WithConnLimit(1))
	for i := range 4 {
		record(reg.Open(stats.ConnInfo{Client: i%2 == 1, Remote: tcp(1, i)}), stats.Transmit, "kv.Put", "", 1, 95)
	}

	h := statshttp.Handler(reg)
	page := getJSON(t, h, "window=all")

	if got := page.rows("connections", "id"); !cmp.Equal(got, []any{0.0, 0.0, 1.0}, cmpopts.SortSlices(func(a, b any) bool {
		return a.(float64) < b.(float64)
	})) {
		t.Errorf("connections %v", got)
	}

	if body := get(t, h, "/?format=html").Body.String(); !strings.Contains(body, "(beyond the limit of connections)") {
		t.Error("the page doesn't say that there are connections beyond the limit")
	}
}

func TestAnEmptyRegistryHasAPage(t *testing.T) {
	for _, reg := range []*stats.Registry{stats.NewRegistry(), stats.NewRegistry(stats.WithBuckets())} {
		h := statshttp.Handler(reg)
		for _, format := range []string{"html", "json", "text"} {
			if w := get(t, h, "/?format="+format); w.Code != http.StatusOK {
				t.Errorf("%s: status %d", format, w.Code)
			}
		}

		body := get(t, h, "/?format=json").Body.String()
		for _, may := range []string{`"connection": null`, `"socket": null`} {
			body = strings.Replace(body, may, "", 1)
		}

		if strings.Contains(body, "null") {
			t.Errorf("a list that is null instead of empty:\n%s", body)
		}

		record(reg.Open(stats.ConnInfo{}), stats.Transmit, "kv.Put", "", 1, 1)

		h = statshttp.Handler(reg) // another one, which shares no earlier reading

		if body := get(t, h, "/?format=html").Body.String(); !strings.Contains(body, "(no address)") {
			t.Error("a connection without addresses isn't shown as such")
		}
	}
}

// TestAReaderThatHangsHoldsNobodyUp asks over a real socket and never reads, while others are answered.
func TestAReaderThatHangsHoldsNobodyUp(t *testing.T) {
	reg := stats.NewRegistry()
	for i := range 1000 {
		record(reg.Open(stats.ConnInfo{Remote: tcp(1, i)}), stats.Transmit, "kv.Put", "", 1, 1)
	}

	h := statshttp.Handler(reg)
	started := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(signalWriter{w, started}, r)
	}))
	server.Config.WriteTimeout = time.Minute
	server.Start()

	defer server.Close()

	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	if err := conn.(*net.TCPConn).SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}

	for range 20 { // more than fits into the sockets' buffers
		fmt.Fprintf(conn, "GET /?format=html&limit=1000 HTTP/1.1\r\nHost: x\r\n\r\n")
	}

	<-started

	if w := get(t, h, "/?format=json&limit=1000"); w.Code != http.StatusOK {
		t.Errorf("status %d", w.Code)
	}

	reg.Open(stats.ConnInfo{}).Close()
	reg.Snapshot()

	if err := conn.Close(); err != nil { // or the server would wait for it
		t.Fatal(err)
	}
}

// signalWriter tells that an answer is being written.
type signalWriter struct {
	http.ResponseWriter

	started chan struct{}
}

func (w signalWriter) Write(p []byte) (int, error) {
	select {
	case w.started <- struct{}{}:
	default:
	}

	return w.ResponseWriter.Write(p)
}

func TestTheTextIsAligned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := kv()

		time.Sleep(10 * time.Second)

		got := get(t, statshttp.Handler(reg, statshttp.WithTitle("kv"), statshttp.WithSection(section{})), "/").Body.String()
		want := `kv, 2000-01-01T00:00:10Z, counting for 10 s
Over the last 10 s.

Two types of 3 are 99.4 % of the bytes.
Sent 50 B/s, 1.60 messages/s. Received 1.22 KiB/s, 2.10 messages/s. Compression ×0.99.
Live connections: 1 as client, 2 as server.

MESSAGES by variant
 SHARE     SUM      WIRE        RATE  MESSAGES    RATE   MEAN    P50     P99  RATIO  SIDE    DIRECTION  TYPE      VARIANT  METHOD
84.6 %  84.6 %  10.7 KiB  1.07 KiB/s        14  1.40/s  786 B  486 B  1013 B  ×0.99  server  receive    kv.Put    -        kv.KV/Do
`
		lines, wanted := strings.Split(got, "\n"), strings.Split(want, "\n")

		for i, line := range wanted[:10] {
			if lines[i] != line {
				t.Errorf("line %d is\n%s\nwant\n%s", i+1, lines[i], line)
			}
		}

		// The columns of the table of messages begin and end where those of its head do.
		head := lines[8]
		for _, name := range []string{"SIDE", "DIRECTION", "TYPE", "VARIANT", "METHOD"} {
			before, _, _ := strings.Cut(head, name)
			at := len([]rune(before))

			for _, line := range lines[9:14] {
				if r := []rune(line); r[at] == ' ' || r[at-1] != ' ' {
					t.Errorf("column %s isn't aligned in\n%s\n%s", name, head, line)
				}
			}
		}

		for _, part := range []string{
			"\nTARGETS\\x07 (2 of 2)\n", "NAME     COUNT  <B>  AGE\na            1  <i>  1m30s\nb\\u202e    2.5\n",
			"SOCKETS: nothing counted", "CLOSED CONNECTIONS",
		} {
			if !strings.Contains(got, part) {
				t.Errorf("the text lacks %q:\n%s", part, got)
			}
		}
	})
}

// section is what another package may show.
type section struct{}

func (section) DebugSection() (string, []string, [][]any) {
	return "TARGETS\a", []string{"name", "count", "<b>", "age"}, [][]any{
		{"a", 1, "<i>", 90 * time.Second, "too much"},
		{"b\u202e", 2.5},
	}
}

func TestASectionIsShownInAllFormats(t *testing.T) {
	h := statshttp.Handler(kv(), statshttp.WithSection(section{}))

	got := getJSON(t, h, "").at("sections").([]any)[0]
	want := map[string]any{
		"title": `TARGETS\x07`, "columns": []any{"name", "count", "<b>", "age"}, "row_count": 2.0,
		"rows": []any{[]any{"a", 1.0, "<i>", "1m30s"}, []any{`b\u202e`, 2.5, "", ""}},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("section (-want +got):\n%s", diff)
	}

	body := get(t, h, "/?format=html").Body.String()
	if !strings.Contains(body, "&lt;i&gt;") || strings.Contains(body, "<i>") {
		t.Error("a cell isn't escaped")
	}

	if !strings.Contains(body, `<th scope="col" class="n">count</th>`) {
		t.Error("numbers aren't right-aligned")
	}
}

func TestTheFormatsAgree(t *testing.T) {
	h := statshttp.Handler(kv())
	html := get(t, h, "/?format=html&window=all").Body.String()
	text := get(t, h, "/?format=text&window=all").Body.String()

	for _, want := range []string{"10.7 KiB", "84.6 %", "Two types of 3", "kv.KV/Do", "store:443"} {
		if !strings.Contains(strings.ReplaceAll(html, "\u202f", " "), want) || !strings.Contains(text, want) {
			t.Errorf("%q isn't in both", want)
		}
	}

	var indented bytes.Buffer

	body := get(t, h, "/?format=json").Body.Bytes()
	if err := json.Indent(&indented, body, "", " "); err != nil || bufio.NewScanner(bytes.NewReader(body)).Scan() == false {
		t.Errorf("not JSON: %v", err)
	}
}
