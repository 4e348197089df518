package statshttp_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

func TestAParameterOutOfRangeIsRefusedWithWhatWasExpected(t *testing.T) {
	h := statshttp.Handler(kv())

	for parameters, want := range map[string]string{
		"window=5":                            `window is "5", expected all, or a duration from 1s to 1h such as 30s`,
		"window=999ms":                        `window is "999ms", expected all, or`,
		"window=1h1s":                         `window is "1h1s", expected all, or`,
		"window=-10s":                         `window is "-10s", expected all, or`,
		"refresh=61s":                         `refresh is "61s", expected off, or a duration from 1s to 1m`,
		"refresh=1ms":                         `refresh is "1ms", expected off`,
		"limit=0":                             `limit is "0", expected a number from 1 to 1000`,
		"limit=1001":                          `limit is "1001", expected a number from 1 to 1000`,
		"limit=1e3":                           `limit is "1e3", expected a number`,
		"page=-1":                             `page is "-1", expected a number from 1 to 1000000`,
		"conn=0":                              `conn is "0", expected the number of a connection, at least 1`,
		"conn=x":                              `conn is "x", expected the number of a connection`,
		"conn=99999999999999999999":           `expected the number of a connection`,
		"sort=name":                           `sort is "name", expected one of wire, messages,`,
		"sort=--wire":                         `sort is "--wire", expected one of`,
		"peersort=age":                        `peersort is "age", expected one of wire, sent`,
		"connsort=messages":                   `connsort is "messages", expected one of wire`,
		"group=peer":                          `group is "peer", expected one of variant, type, method, series`,
		"side=left":                           `side is "left", expected one of all, client, server`,
		"direction=up":                        `direction is "up", expected one of all, transmit, receive`,
		"format=xml":                          `format is "xml", expected one of html, json, text`,
		"Window=10s":                          `there is no parameter "Window", expected one of conn, connpage,`,
		"x=%3Cscript%3E":                      `there is no parameter "x"`,
		"%3Cscript%3E=%E2%80%AE":              `there is no parameter "<script>"`,
		"window=%E2%80%AE":                    `window is "\u202e", expected`,
		"q=a&q=b":                             "q is given 2 times, expected once",
		"q=%ff":                               "q is \"\\xff\", expected at most 256 bytes of UTF-8",
		"q=%zz":                               "the query isn't well formed",
		"a;b":                                 "the query isn't well formed",
		"q=" + strings.Repeat("x", 257):       "expected at most 256 bytes",
		"q=" + strings.Repeat("x", 9000):      "the query has 9002 bytes, expected at most 8192",
		"window=" + strings.Repeat("9", 5000): "expected all",
	} {
		w := get(t, h, "/?"+parameters, "Accept", "text/html")
		body := w.Body.String()

		if w.Code != http.StatusBadRequest || !strings.HasPrefix(body, "statshttp: ") || !strings.Contains(body, want) {
			t.Errorf("%.60s: status %d, %q, want %q", parameters, w.Code, body, want)
		}

		if got := w.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
			t.Errorf("%.60s: an error as %s", parameters, got)
		}

		if len(body) > 500 {
			t.Errorf("%.60s: an error of %d bytes", parameters, len(body))
		}
	}
}

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"", "window=all", "window=10s&refresh=off", "sort=-p99&page=2&limit=7", "q=%3Cscript%3E&peer=10.", "conn=1&format=json",
		"group=series&side=client&direction=transmit", "connsort=-overhead&connpage=3&peersort=peer&peerpage=1", "a=b", "%zz",
	} {
		f.Add(seed)
	}

	reg := kv()
	for _, name := range hostileNames()[:8] {
		reg.Open(stats.ConnInfo{Authority: name}).Series(stats.Key{Method: name, Type: name}).Record(f.Context(), 8, 3)
	}

	h := statshttp.Handler(reg)

	f.Fuzz(func(t *testing.T, parameters string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = &url.URL{Path: "/", RawQuery: parameters}
		r.Header.Set("Accept", "text/html")

		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)

		body := w.Body.String()

		switch w.Code {
		case http.StatusOK:
		case http.StatusBadRequest:
			if !strings.Contains(body, "expected") {
				t.Errorf("%q: an error that doesn't say what was expected: %s", parameters, body)
			}
		case http.StatusNotFound:
			if !strings.Contains(parameters, "conn") {
				t.Errorf("%q: not found", parameters)
			}
		default:
			t.Errorf("%q: status %d: %s", parameters, w.Code, body)
		}

		switch media := w.Header().Get("Content-Type"); {
		case strings.HasPrefix(media, "text/html"):
			if strings.Count(body, "<script") != 1 || strings.Contains(body, "ZgotmplZ") {
				t.Errorf("%q: not escaped", parameters)
			}
		case strings.HasPrefix(media, "application/json"):
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("%q: not JSON", parameters)
			}
		}
	})
}
