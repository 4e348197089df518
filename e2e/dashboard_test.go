package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/otelproto/otelproto-go/e2e/dashboard"
	"github.com/otelproto/otelproto-go/e2e/pipeline"
)

// demo runs the demo as a newcomer would, on ports of its own, and gives the page that it prints.
func demo(t *testing.T) (page string, backend *pipeline.Backend) {
	t.Helper()

	path := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.Command("go", "build", "-o", path, "./demo").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	// Below the ports that the system gives to connections, and those of other tests; another run's process has another number.
	first := 12_000 + os.Getpid()%2_000*3
	addrs := []string{fmt.Sprint("127.0.0.1:", first), fmt.Sprint("127.0.0.1:", first+1), fmt.Sprint("127.0.0.1:", first+2)}
	command := exec.Command(path, "-backend", addrs[0], "-otlp-grpc", addrs[1], "-otlp-http", addrs[2])
	command.Stderr = os.Stderr

	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := command.Start(); err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})
	pages := make(chan string, 1)

	go func() {
		defer close(ended)

		for lines := bufio.NewScanner(out); lines.Scan(); {
			if line := strings.TrimSpace(lines.Text()); strings.HasPrefix(line, "http://") {
				pages <- line
			}
		}
	}()

	t.Cleanup(func() { // Ctrl-C ends everything that it started
		late := time.AfterFunc(30*time.Second, func() { command.Process.Kill() })
		defer late.Stop()

		started := children(t, command.Process.Pid)
		if len(started) < 3 && runtime.GOOS == "linux" {
			t.Errorf("the demo has started %d processes, expected backend, collector and compute", len(started))
		}

		command.Process.Signal(os.Interrupt)
		<-ended

		if err := command.Wait(); err != nil {
			t.Error("the demo after Ctrl-C: ", err)
		}

		for pid, name := range started {
			if _, err := os.Stat(fmt.Sprint("/proc/", pid)); err == nil {
				t.Errorf("the demo left %s running, process %d", name, pid)
			}
		}

		for _, a := range addrs {
			if err := pipeline.CheckFree(a); err != nil {
				t.Error("the demo left something running: ", err)
			}
		}
	})

	select {
	case page = <-pages:
	case <-ended:
		t.Fatal("the demo ended")
	}

	return page, pipeline.VictoriaMetricsAt("http://" + addrs[0])
}

// children gives the names of the processes that a process has started, by number; on Linux only.
func children(t *testing.T, parent int) map[int]string {
	t.Helper()

	found := make(map[int]string)

	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}

		for pid := range strings.FieldsSeq(string(text)) {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}

			name, _ := os.ReadFile(fmt.Sprint("/proc/", pid, "/comm"))
			found[n] = strings.TrimSpace(string(name))
		}
	}

	return found
}

func TestEveryPanelOfTheDemoShowsData(t *testing.T) {
	t.Parallel()

	page, backend := demo(t)
	began := time.Now()
	everyQueryHasAnAnswer(t, backend)
	t.Log("every query has an answer after ", time.Since(began))

	b := newBrowser(t) // after the demo, so that it ends before: the page complains when the backend is gone

	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1600, Height: 6000, DeviceScaleFactor: 1})
	b.do(chromedp.Navigate(page))
	loaded(t, b)

	for tab, title := range []string{"gRPC clients", "gRPC servers", "Connections, channels, broadcasts"} {
		b.until(fmt.Sprintf(`document.querySelectorAll(".vm-predefined-panels-tabs__tab")[%d]?.innerText.toLowerCase() == %q.toLowerCase()`,
			tab, title))
		eval[bool](b, fmt.Sprintf(`document.querySelectorAll(".vm-predefined-panels-tabs__tab")[%d].click() || true`, tab))
		b.until(openRows)

		var want []string

		for _, r := range dashboard.Rows() {
			for _, p := range r.Panels {
				if r.Side == (tab < 2) {
					want = append(want, p.Title)
				}
			}
		}

		b.until(fmt.Sprintf(`%s.length == %d`, panels, len(want)))

		if got := eval[[]string](b, panels+`.map(p => p.querySelector("h3").innerText)`); !slices.Equal(got, want) {
			t.Errorf("%s: panels %q, expected %q", title, got, want)
		}

		// Each has a legend, which has a line for each series, and none says that something is wrong.
		b.until(panels + `.every(p => p.querySelector(".vm-legend-item") && p.querySelector("canvas") && !p.querySelector(".vm-alert"))`)
		b.screenshot(fmt.Sprintf("dashboard-%d.png", tab+1))
	}

	b.forgive("/vmui/assets/")
}

// forgive drops the complaints about a page that isn't ours.
func (b *browser) forgive(url string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.complaints = slices.DeleteFunc(b.complaints, func(c string) bool { return strings.Contains(c, url) })
}

// loaded waits until the page has its dashboards. It goes on to another address first, which breaks off what is asked meanwhile.
func loaded(t *testing.T, b *browser) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	if err := pipeline.Poll(ctx, func() error {
		there, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](`document.querySelector(".vm-predefined-panel canvas") != null`))
		if err == nil && !there {
			err = errors.New("no panel yet")
		}

		return err
	}); err != nil {
		t.Fatal(err)
	}
}

const (
	panels = `[...document.querySelectorAll(".vm-predefined-panel")]`
	// openRows clicks on the rows that are closed, and is true when none is left.
	openRows = `(() => {
		const closed = [...document.querySelectorAll(".vm-accordion-header:not(.vm-accordion-header_open)")]
		closed.forEach(r => r.click())
		return closed.length == 0 && document.querySelectorAll(".vm-accordion-header").length > 0
	})()`
)

// everyQueryHasAnAnswer polls until each query of the panels has an answer with a value in it.
func everyQueryHasAnAnswer(t *testing.T, b *pipeline.Backend) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	for _, q := range dashboard.All() {
		if err := b.Answers(ctx, q.Expr); err != nil {
			t.Fatalf("%s: %v", q.Panel, err)
		}
	}
}
