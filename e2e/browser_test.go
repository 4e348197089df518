package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browser is a tab of a headless Chromium of this test's own.
type browser struct {
	testing.TB

	ctx context.Context

	// mu guards complaints and expected.
	mu         sync.Mutex
	complaints []string
	// expected are parts of complaints that a test brings about.
	expected []string
}

// newBrowser starts a browser; without one the test is skipped, or fails where CI=true. What the page writes to the console and what
// its Content-Security-Policy stops fails the test when it ends.
func newBrowser(tb testing.TB) *browser {
	tb.Helper()

	path, err := chromium()
	if err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal(err)
		}

		tb.Skip(err)
	}

	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(tb.Context()),
		chromedp.ExecPath(path), chromedp.UserDataDir(tb.TempDir()),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-background-timer-throttling", true), chromedp.WSURLReadTimeout(time.Minute),
	)
	ctx, cancel := context.WithTimeout(allocator, 3*time.Minute)
	ctx, closeTab := chromedp.NewContext(ctx)

	b := &browser{TB: tb, ctx: ctx}
	messages := chromedp.Console(ctx)

	var reading sync.WaitGroup

	reading.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}

			b.complain(fmt.Sprintf("%s: %s (%s)", m.Type, m.Text, m.URL))
		}
	})

	tb.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			tb.Logf("closing the browser: %v", err)
		}

		closeTab()
		cancel()
		stop()
		reading.Wait()

		b.mu.Lock()
		defer b.mu.Unlock()

		for _, c := range b.complaints {
			tb.Errorf("the browser complains: %s", c)
		}
	})

	return b
}

// chromium gives the path of the browser, or says what to do.
func chromium() (path string, err error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}

	return "", errors.New("no chromium on the PATH, which the tests of pages need: install it (Debian: apt-get install chromium)")
}

func TestAMissingBrowserSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())

	if path, err := chromium(); err == nil || !strings.Contains(err.Error(), "apt-get install chromium") {
		t.Errorf("%q, %v", path, err)
	}
}

func (b *browser) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, e := range b.expected {
		if strings.Contains(text, e) {
			return
		}
	}

	b.complaints = append(b.complaints, text)
}

// expect lets complaints pass that have this part.
func (b *browser) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.expected = append(b.expected, part)
}

// do runs actions and ends the test if one fails.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()

	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

// result runs an action that has a result and ends the test if it fails.
func result[T any](b *browser, action chromedp.Action[T]) T {
	b.Helper()

	v, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.Fatal(err)
	}

	return v
}

// call runs a command of the DevTools protocol.
func call[P any](b *browser, command cdp.Command[P, cdp.Empty], params P) {
	b.Helper()

	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.Fatal(err)
	}
}

// eval gives the value of a JavaScript expression.
func eval[T any](b *browser, expression string) T {
	b.Helper()

	return result(b, chromedp.Evaluate[T](expression))
}

// until waits until an expression is true, and ends the test if it isn't for long.
func (b *browser) until(expression string) {
	b.Helper()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	deadline := time.After(30 * time.Second)

	for !eval[bool](b, expression) {
		select {
		case <-tick.C:
		case <-deadline:
			b.Fatalf("not true within 30 s: %s\nthe page:\n%s", expression, eval[string](b, `document.body.innerText`))
		}
	}
}

// serve serves a handler on the loopback interface.
func serve(tb testing.TB, h http.Handler) string {
	tb.Helper()

	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)

	return s.URL
}

// colors lets the page be shown light or dark.
func (b *browser) colors(scheme string) {
	b.Helper()

	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// screenshot writes what is visible into a folder, if one is given by -screenshots.
func (b *browser) screenshot(name string) {
	b.Helper()

	if *screenshots == "" {
		return
	}

	if err := os.WriteFile(filepath.Join(*screenshots, name), result(b, chromedp.CaptureScreenshot()), 0o600); err != nil {
		b.Fatal(err)
	}
}

var screenshots = flag.String("screenshots", "", "write screenshots of the debug page into this folder")
