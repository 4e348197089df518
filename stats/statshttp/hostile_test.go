package statshttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

// addr is an address that a peer chose, as a unix socket's path may be.
type addr string

func (addr) Network() string  { return "unix" }
func (a addr) String() string { return string(a) }

func hostileNames() []string {
	return []string{
		`<script>alert(1)</script>`,
		`"><img src=x onerror=alert(1)>`,
		`' onmouseover='alert(1)`,
		`</title></style><script>alert(1)</script>`,
		`javascript:alert(1)`,
		`{{.Title}}`,
		"\x00\x01\x1b[31mred\x1b[0m\r\nSet-Cookie: a=b\x7f",
		"abc\u202egnp.exe\u2066\u2069\u200f",
		"zero\u200bwidth\ufeff\u2060",
		"line\u2028paragraph\u2029",
		"a\u0300" + strings.Repeat("\u0301", 200),
		"\xff\xfe\xc3\x28 not UTF-8",
		strings.Repeat("M", 1<<20),
		strings.Repeat("\u202e", 1<<19),
		"", " ", "?conn=1&x=y#z", "../../etc/passwd",
	}
}

func TestNamesThatAPeerChoseAreEscapedAndCut(t *testing.T) {
	reg := stats.NewRegistry()

	for _, name := range hostileNames() {
		for _, closed := range []bool{false, true} {
			c := reg.Open(stats.ConnInfo{Client: true, Local: addr(name), Remote: addr(name), Authority: name})
			c.Series(stats.Key{Method: name, Type: name, Variant: name}).Record(t.Context(), 10, 5)

			if closed {
				c.Close()
			}
		}
	}

	h := statshttp.Handler(reg, statshttp.WithTitle(hostileNames()[3]))

	var empty int

	for _, format := range []string{"html", "json", "text"} {
		w := get(t, h, "/?window=all&limit=1000&format="+format)
		body := w.Body.String()

		if w.Code != http.StatusOK || !utf8.ValidString(body) {
			t.Errorf("%s: status %d, valid UTF-8: %t", format, w.Code, utf8.ValidString(body))
		}

		for i, r := range body {
			if !unicode.IsPrint(r) && r != '\n' && r != '\u202f' || unicode.Is(unicode.M, r) {
				t.Errorf("%s: %U in %q", format, r, body[max(0, i-20):min(len(body), i+20)])

				break
			}
		}

		if most := 1 << 20; len(body) > most {
			t.Errorf("%s: %d bytes, want at most %d", format, len(body), most)
		}

		if format != "html" {
			continue
		}

		empty = len(get(t, statshttp.Handler(stats.NewRegistry()), "/?format=html").Body.String())

		for _, never := range []string{"<script>alert", "<img", "onerror=alert(1)>", "' onmouseover", "href=\"javascript", "ZgotmplZ"} {
			if strings.Contains(body, never) {
				t.Errorf("the page has %s", never)
			}
		}

		if n := strings.Count(body, "<script"); n != 1 {
			t.Errorf("the page has %d scripts, want its own one", n)
		}

		if n := strings.Count(body, "</style"); n != 1 {
			t.Errorf("the page has %d ends of style", n)
		}
	}

	if empty == 0 {
		t.Error("an empty page")
	}
}

func TestAFilterFromAHostileLinkIsEscaped(t *testing.T) {
	h := statshttp.Handler(kv())

	for _, name := range hostileNames() {
		if len(name) > 256 || !utf8.ValidString(name) {
			continue
		}

		target := "/?format=html&q=" + escape(name) + "&peer=" + escape(name)
		body := get(t, h, target).Body.String()

		if n := strings.Count(body, "<script"); n != 1 {
			t.Errorf("%q: the page has %d scripts", name, n)
		}

		if strings.Contains(body, "<img") || strings.Contains(body, "ZgotmplZ") {
			t.Errorf("%q isn't escaped", name)
		}
	}
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02x", s[i])
	}

	return b.String()
}
