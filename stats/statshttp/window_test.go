package statshttp_test

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

func rate(page object, direction string) float64 {
	return page.at("summary", direction, "wire_bytes_per_second").(float64)
}

func TestRatesAreOverTheWindowThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := stats.NewRegistry()
		h := statshttp.Handler(reg)
		c := reg.Open(stats.ConnInfo{Remote: tcp(1, 1)})

		// 100 B/s for 100 seconds, then 1,000 B/s for 20, looked at every second from second 50 on.
		for i := range 120 {
			size := 100
			if i >= 100 {
				size = 1000
			}

			record(c, stats.Transmit, "kv.Put", "", 1, size-5)
			time.Sleep(time.Second)

			if i >= 50 {
				getJSON(t, h, "")
			}
		}

		for parameters, want := range map[string]struct{ seconds, rate float64 }{
			"window=1s":  {1, 1000},
			"window=10s": {10, 1000},
			"window=40s": {40, (20*100 + 20*1000) / 40.0},
			"window=all": {120, (100*100 + 20*1000) / 120.0},
		} {
			page := getJSON(t, h, parameters)

			// Baselines stand 27 % apart, so the window is about what was asked for, and its rate exactly that of its length.
			seconds := page.at("window", "seconds").(float64)
			if math.Abs(math.Log(seconds/want.seconds)) > 0.2 {
				t.Errorf("%s: a window of %v s", parameters, seconds)
			}

			fast := min(seconds, 20)
			if got, want := rate(page, "sent"), (fast*1000+(seconds-fast)*100)/seconds; math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: %v B/s over %v s, want %v", parameters, got, seconds, want)
			}

			if got := page.at("window", "note"); got != "" {
				t.Errorf("%s: note %q", parameters, got)
			}

			if got := page.rows("connections", "sent")[0].(map[string]any)["wire_bytes_per_second"]; got != rate(page, "sent") {
				t.Errorf("%s: the only connection has %v B/s of %v", parameters, got, rate(page, "sent"))
			}
		}
	})
}

func TestTheFirstLookIsSinceCountingBeganAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := stats.NewRegistry()
		h := statshttp.Handler(reg)
		record(reg.Open(stats.ConnInfo{}), stats.Transmit, "kv.Put", "", 1, 995)
		time.Sleep(100 * time.Second)

		page := getJSON(t, h, "window=10s")
		if got := rate(page, "sent"); got != 10 {
			t.Errorf("%v B/s, want 1,000 B in 100 s", got)
		}

		if got := page.at("window", "note").(string); !strings.Contains(got, "since counting began") {
			t.Errorf("note %q", got)
		}

		if got := get(t, h, "/?format=html&window=10s").Body.String(); !strings.Contains(got, "since counting began") {
			t.Error("the page doesn't say it")
		}

		time.Sleep(10 * time.Second)

		page = getJSON(t, h, "window=10s")
		if got, note := rate(page, "sent"), page.at("window", "note"); got != 0 || note != "" {
			t.Errorf("%v B/s with note %q, want 0 without", got, note)
		}
	})
}

func TestWhatConnectionsThatClosedCarriedStaysInTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := stats.NewRegistry()
		h := statshttp.Handler(reg)

		time.Sleep(time.Hour)
		getJSON(t, h, "")

		for range 10 {
			c := reg.Open(stats.ConnInfo{})
			record(c, stats.Receive, "kv.Put", "", 1, 995)
			c.Close()
			time.Sleep(time.Second)
		}

		page := getJSON(t, h, "window=10s")
		if got := rate(page, "received"); got != 1000 {
			t.Errorf("%v B/s, want 10 connections of 1,000 B in 10 s", got)
		}

		if got := page.at("closed", "messages"); got != 10.0 {
			t.Errorf("%v messages of closed connections, want 10", got)
		}
	})
}

func TestOneConnectionHasAWindowFromTheFirstLookOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := stats.NewRegistry()
		h := statshttp.Handler(reg)
		a, b := reg.Open(stats.ConnInfo{Remote: tcp(1, 1)}), reg.Open(stats.ConnInfo{Remote: tcp(2, 2)})

		record(a, stats.Transmit, "kv.Old", "", 1, 9995)
		time.Sleep(100 * time.Second)
		getJSON(t, h, "")

		page := getJSON(t, h, "conn=1")
		if got := rate(page, "sent"); got != 100 {
			t.Errorf("first look: %v B/s, want 10,000 B in 100 s", got)
		}

		if got := page.at("window", "note").(string); !strings.Contains(got, "since the connection was opened") {
			t.Errorf("note %q", got)
		}

		for range 10 {
			record(a, stats.Transmit, "kv.Put", "", 1, 495)
			record(b, stats.Transmit, "kv.Put", "", 1, 1495)
			time.Sleep(time.Second)
			getJSON(t, h, "conn=1")
		}

		page = getJSON(t, h, "conn=1")
		if got := rate(page, "sent"); math.Abs(got-500) > 1e-9 {
			t.Errorf("%v B/s, want 500", got)
		}

		if got := page.rows("messages", "type"); len(got) != 1 || got[0] != "kv.Put" {
			t.Errorf("types %v, want only what flowed within the window", got)
		}

		if got := page.at("connection", "share"); got != 0.25 {
			t.Errorf("share %v of the live connections, want 0.25", got)
		}

		if got := page.at("connection", "lifetime", "sent_wire_bytes"); got != 15_000.0 {
			t.Errorf("%v bytes since it was opened, want 15,000", got)
		}
	})
}

func TestWindowsStayCloseToWhatWasAskedForOverHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := stats.NewRegistry()
		h := statshttp.Handler(reg)

		time.Sleep(10 * time.Hour)

		for i := range 3000 { // 1.7 hours of refreshing
			getJSON(t, h, "")
			time.Sleep(2 * time.Second)

			if i < 2000 || i%100 != 0 {
				continue
			}

			for _, seconds := range []int{2, 10, 30, 60, 300, 900, 3600} {
				asked := time.Duration(seconds) * time.Second
				page := getJSON(t, h, "window="+asked.String())

				if off := math.Abs(math.Log(page.at("window", "seconds").(float64) / asked.Seconds())); off > 0.25 {
					t.Errorf("round %d: %v s for a window of %v", i, page.at("window", "seconds"), asked)
				}
			}
		}
	})
}

func TestAReadingThatIsTooYoungIsNoBaseline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := stats.NewRegistry()
		h := statshttp.Handler(reg)

		time.Sleep(time.Minute)
		getJSON(t, h, "")
		time.Sleep(100 * time.Millisecond)

		if got := getJSON(t, h, "window=1s").at("window", "seconds").(float64); got < 60 {
			t.Errorf("a window of %v s from a reading that is 0.1 s old", got)
		}
	})
}

func TestWhoLeavesWhileWaitingGetsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	w := httptest.NewRecorder()
	statshttp.Handler(kv()).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))

	if w.Body.Len() > 0 {
		t.Errorf("%d bytes for nobody", w.Body.Len())
	}
}
