package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

// names gives the texts of the first cells of the messages, without what only a phone or a wide screen shows.
const names = `[...document.querySelectorAll('#messages tbody td.name')].map(e => e.querySelector('b').innerText + ` +
	`(e.querySelector('.chip') ? '/' + e.querySelector('.chip').innerText : ''))`

// quiet is traffic that has come to rest.
func quiet(tb testing.TB) *traffic {
	tb.Helper()

	traffic := newTraffic(tb, 9)
	for range 20 {
		traffic.step()
	}

	return traffic
}

func TestThePageShowsTheShareOfEachType(t *testing.T) {
	traffic := quiet(t)
	b := newBrowser(t)
	b.do(chromedp.Navigate(serve(t, statshttp.Handler(traffic.registry)) + "?window=all"))

	snapshot := traffic.registry.Snapshot()
	slices.SortFunc(snapshot.Total, func(a, b stats.Row) int { return cmp.Compare(b.Wire.Sum, a.Wire.Sum) })

	shown := eval[[]string](b, `[...document.querySelectorAll('#messages tbody .share span')].map(e => e.innerText)`)
	if len(shown) != len(snapshot.Total) {
		t.Fatalf("%d rows are shown, want %d", len(shown), len(snapshot.Total))
	}

	kinds := eval[[]string](b, names)

	for i, row := range snapshot.Total {
		want := fmt.Sprintf("%.1f\u202f%%", 100*snapshot.Share(row))
		if snapshot.Share(row) < 0.001 {
			want = "<0.1\u202f%"
		}

		if shown[i] != want {
			t.Errorf("row %d has the share %s, want %s", i, shown[i], want)
		}

		_, kind, _ := strings.Cut(row.Key.Type, ".")
		if row.Key.Variant != "" {
			kind += "/" + row.Key.Variant
		}

		if kinds[i] != kind {
			t.Errorf("row %d is %s, want %s", i, kinds[i], kind)
		}
	}

	if got := eval[string](b, `document.querySelector('#sentence').innerText`); !strings.HasPrefix(got, "Two types of 4 are 9") {
		t.Errorf("the sentence is %q", got)
	}
}

func TestThePageSortsFiltersAndGoesBack(t *testing.T) {
	b := newBrowser(t)
	b.do(chromedp.EmulateViewport(1400, 900), chromedp.Navigate(serve(t, statshttp.Handler(quiet(t).registry))+"?window=all"))

	eval[int](b, `window.loads = 1`) // gone if the page were loaded again

	largest := eval[[]string](b, names)
	if largest[0] != "Command/update_input" {
		t.Fatalf("the largest is %s", largest[0])
	}

	b.do(chromedp.Click(chromedp.CSS(`#messages th a[href*="sort=-messages"]`)))
	b.until(names + `[0] === 'Response/frontiers'`)

	if got := eval[string](b, `location.search + document.querySelector('#messages th[aria-sort]').innerText`); got !=
		"?sort=-messages&window=allMessages/s ↓" {
		t.Errorf("sorted by %s", got)
	}

	b.do(chromedp.SendKeys(chromedp.ID("q"), "peek"))
	b.until(`location.search.includes('q=peek') && ` + names + `.join() === 'Response/peek_response,Command/peek'`)

	if got := eval[string](b, `document.activeElement.id + document.activeElement.value`); got != "qpeek" {
		t.Errorf("the filter has lost the focus or its text: %s", got)
	}

	b.do(chromedp.SetValue(chromedp.ID("select-direction"), "receive"))
	eval[bool](b, `document.getElementById('select-direction').dispatchEvent(new Event('input', {bubbles: true}))`)
	b.until(names + `.join() === 'Response/peek_response'`)

	eval[bool](b, `(history.back(), true)`)
	b.until(`location.search === '?window=all&sort=-messages&q=peek' && ` + names + `.length === 2`)

	b.do(chromedp.Click(chromedp.CSS(`#connections tbody tr:nth-child(2) a`)))
	b.until(`document.querySelector('[data-key=scope] h2') !== null && document.querySelector('#connections') === null`)

	if n := eval[int](b, `window.loads || 0`); n != 1 {
		t.Error("the page was loaded again")
	}
}

func TestThePageKeepsItsPlaceOverRefreshes(t *testing.T) {
	traffic := newTraffic(t, 40)
	traffic.flow(t)

	b := newBrowser(t)
	url := serve(t, statshttp.Handler(traffic.registry))
	b.do(chromedp.EmulateViewport(1400, 700), chromedp.Navigate(url+"?refresh=1s&sort=type"))
	b.until(`document.querySelectorAll('#messages tbody').length > 5`)

	b.do(chromedp.Click(chromedp.CSS(`#messages tbody:nth-of-type(3) summary`)), chromedp.Click(chromedp.CSS(`#closed-rows > summary`)))
	// A click is answered before its effect, which moves the focus too.
	b.until(`document.querySelector('#closed-rows').open && document.querySelectorAll('#messages details[open]').length === 1`)
	b.do(chromedp.Focus(chromedp.ID("peer")))
	eval[bool](b, `(window.scrollTo(0, 900), document.querySelector('#connections tbody tr').marked = true)`)

	before := eval[string](b, `document.querySelector('time').dateTime + document.querySelector('#messages td.n').innerText`)
	at := eval[float64](b, `document.querySelector('#connections').getBoundingClientRect().top`)

	for range 3 {
		now := eval[string](b, `document.querySelector('time').dateTime`)
		b.until(`document.querySelector('time').dateTime !== '` + now + `'`)
	}

	if before == eval[string](b, `document.querySelector('time').dateTime + document.querySelector('#messages td.n').innerText`) {
		t.Error("nothing was refreshed")
	}

	if got := eval[float64](b, `document.querySelector('#connections').getBoundingClientRect().top`); got < at-60 || got > at+60 {
		t.Errorf("the reader was moved from %v to %v", at, got)
	}

	if got := eval[float64](b, `scrollY`); got < 840 {
		t.Errorf("scrolled to %v", got)
	}

	for what, expression := range map[string]string{
		"the open row is closed":              `document.querySelectorAll('#messages details[open]').length === 1`,
		"its details are hidden":              `document.querySelector('#messages tbody:nth-of-type(3) .more').offsetHeight > 50`,
		"the closed connections are folded":   `document.querySelector('#closed-rows').open`,
		"the focus is lost":                   `document.activeElement.id === 'peer'`,
		"the order is lost":                   `document.querySelector('th[aria-sort=ascending]').innerText.startsWith('Message')`,
		"rows are made anew":                  `[...document.querySelectorAll('#connections tbody tr')].some(r => r.marked)`,
		"the page doesn't say that it's live": `document.querySelector('#state').innerText === 'Live'`,
	} {
		if !eval[bool](b, expression) {
			t.Error(what)
		}
	}

	b.do(chromedp.Click(chromedp.ID("pause")))
	b.until(`document.querySelector('#state').innerText === 'Paused'`)
}

// What stands above the form comes and goes, such as the note on a window that is longer than the process has lived.
func TestTheFormStaysWhenALineAboveItGoes(t *testing.T) {
	h := statshttp.Handler(quiet(t).registry)

	var without atomic.Bool

	b := newBrowser(t)
	b.do(chromedp.Navigate(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		w.Header().Del("Content-Length")

		text := answer.Body.String()
		if !without.Load() {
			text = strings.Replace(text, "<main>", `<main><p class="note" id="note">no reading yet</p>`, 1)
		}

		io.WriteString(w, text)
	})) + "?window=all&refresh=1s"))
	b.until(`document.querySelector('#note') !== null`)
	b.do(chromedp.Focus(chromedp.ID("peer")))
	eval[bool](b, `(document.querySelector('#peer').value = '10.0', true)`)
	without.Store(true)
	b.until(`document.querySelector('#note') === null`)

	if got := eval[string](b, `document.activeElement.id + ' ' + document.querySelector('#peer').value`); got != "peer 10.0" {
		t.Errorf("focus and text: %q", got)
	}
}

func TestThePageWorksAtPhoneWidth(t *testing.T) {
	b := newBrowser(t)
	b.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile),
		chromedp.Navigate(serve(t, statshttp.Handler(quiet(t).registry, statshttp.WithSection(targets{})))+"?window=all"))

	if w := eval[int](b, `document.documentElement.scrollWidth`); w > 390 {
		t.Errorf("the page is %d pixels wide", w)
	}

	for _, table := range []string{"#messages", "#peers", "#connections"} {
		cells := `[...document.querySelectorAll('` + table + ` tbody .share span')]`
		seen := `.every(e => e.getBoundingClientRect().width > 20 && e.getBoundingClientRect().right <= 390)`

		if !eval[bool](b, cells+`.length > 3 && `+cells+seen) {
			t.Errorf("%s: the shares can't be seen without scrolling", table)
		}
	}

	b.do(chromedp.Click(chromedp.CSS(`#messages tbody summary`)))
	b.until(`document.querySelector('#messages .more').offsetHeight > 100`)

	if w := eval[int](b, `document.documentElement.scrollWidth`); w > 390 {
		t.Errorf("with an open row the page is %d pixels wide", w)
	}

	eval[bool](b, `(document.querySelector('#messages').scrollIntoView(), true)`)
	b.screenshot("debug-page-phone.png")
}

func TestThePageWorksWithoutJavaScript(t *testing.T) {
	b := newBrowser(t)
	b.do(chromedp.EmulateViewport(1400, 900), chromedp.Navigate("about:blank"))
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(chromedp.Navigate(serve(t, statshttp.Handler(quiet(t).registry)) + "?window=all"))

	if !eval[bool](b, `document.getElementById('pause').hidden && document.getElementById('apply').offsetHeight > 0`) {
		t.Error("the script runs, or the form can't be sent without it")
	}

	follow := func(action chromedp.Action[chromedp.Void], until string) {
		t.Helper()

		if _, err := chromedp.RunResponse(b.ctx, action); err != nil {
			t.Fatal(err)
		}

		b.until(until)
	}

	follow(chromedp.Click(chromedp.CSS(`#messages th a[href*="sort=-messages"]`)), names+`[0] === 'Response/frontiers'`)
	follow(chromedp.SendKeys(chromedp.ID("q"), "peek\r"), names+`.length === 2 && location.search.includes('sort=-messages')`)
	follow(chromedp.Click(chromedp.CSS(`nav a:nth-of-type(4)`)), `location.search.includes('window=1m')`)

	if got := eval[string](b, `document.getElementById('q').value`); got != "peek" {
		t.Errorf("the filter is %q", got)
	}

	b.do(chromedp.Click(chromedp.CSS(`#messages tbody summary`)))
	b.until(`document.querySelector('#messages .more').offsetHeight > 50`)
}

func TestHostileNamesStayText(t *testing.T) {
	reg := stats.NewRegistry()

	const name = `</script></style><script>document.title='owned'</script><img src=x onerror="document.title='owned'">` + "\u202e"

	c := reg.Open(stats.ConnInfo{Client: true, Authority: name, Remote: &net.UnixAddr{Name: name, Net: "unix"}})
	c.Series(stats.Key{Method: name, Type: name, Variant: name}).Record(context.Background(), 10, 5)

	b := newBrowser(t)
	b.do(chromedp.Navigate(serve(t, statshttp.Handler(reg)) + "?window=all&refresh=1s&peer=%3Cscript%3E"))

	now := eval[string](b, `document.querySelector('time').dateTime`)
	b.until(`document.querySelector('time').dateTime !== '` + now + `'`)

	if got := eval[string](b, `document.title`); strings.Contains(got, "owned") {
		t.Error("a name is executed")
	}

	if n := eval[int](b, `document.images.length + document.scripts.length`); n != 1 {
		t.Errorf("%d images and scripts, want the page's own script", n)
	}
}

func TestThePageSaysThatNobodyAnswersAndRecovers(t *testing.T) {
	h := statshttp.Handler(quiet(t).registry)

	var broken atomic.Bool

	b := newBrowser(t)
	b.expect("503")
	b.do(chromedp.Navigate(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(w, "broken", http.StatusServiceUnavailable)
		} else {
			h.ServeHTTP(w, r)
		}
	})) + "?refresh=1s"))

	broken.Store(true)
	b.until(`document.querySelector('#state.warn') !== null && document.querySelector('#state').innerText.startsWith('Answer 503')`)

	if n := eval[int](b, names+`.length`); n < 5 {
		t.Errorf("%d rows are left of the last numbers", n)
	}

	broken.Store(false)
	b.until(`document.querySelector('#state').innerText === 'Live' && document.querySelector('#state.warn') === null`)
}

// TestScreenshots makes the pictures of the documentation: go test -run 'Screenshots|Phone' -screenshots ../docs/images.
func TestScreenshots(t *testing.T) {
	traffic := newTraffic(t, 9)
	traffic.flow(t)

	b := newBrowser(t)
	url := serve(t, statshttp.Handler(traffic.registry, statshttp.WithTitle("controller"), statshttp.WithSection(targets{}),
		statshttp.WithTraceURL(func(traceID, _ string) string { return "https://traces.internal/" + traceID })))

	b.colors("light")
	b.do(chromedp.EmulateViewport(1400, 1000), chromedp.Navigate(url))
	b.until(`document.querySelector('#note') === null`)
	b.do(chromedp.Click(chromedp.CSS(`.messages tbody summary`)))

	light := eval[string](b, `getComputedStyle(document.body).backgroundColor`)
	b.screenshot("debug-page.png")
	b.colors("dark")

	if dark := eval[string](b, `getComputedStyle(document.body).backgroundColor`); dark == light {
		t.Errorf("light and dark have the same background %s", dark)
	}

	b.screenshot("debug-page-dark.png")
}
