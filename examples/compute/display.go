package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/otelproto/otelproto-go/examples/compute/controller"
	"github.com/otelproto/otelproto-go/examples/compute/table"
	"github.com/otelproto/otelproto-go/stats"
)

// How often the table is drawn, and over how many drawings its rates are.
const (
	drawPeriod = 500 * time.Millisecond
	drawWindow = 4
)

// A display shows what flows: on a terminal all the time, and at the end once, wherever it goes.
type display struct {
	telemetry      *telemetry
	replicas       *cluster
	page           *page // nil: none
	stdout, stderr io.Writer
	size           func() (width, height int) // of the terminal; 0: stdout is none
	json           bool
	exports        bool // and shows no table

	// mu guards what follows, and is held while the screen is drawn.
	mu     sync.Mutex
	screen *table.Screen // nil: not a terminal, or not any more
	last   string        // event
}

func newDisplay(t *telemetry, replicas *cluster, page *page, stdout, stderr io.Writer, json bool) (*display, error) {
	d := &display{
		telemetry: t, replicas: replicas, page: page, stdout: stdout, stderr: stderr, json: json, exports: t.provider != nil,
		size: func() (width, height int) { return 0, 0 },
	}
	if page != nil {
		d.event("compute: the debug page is at " + page.url)
	}
	terminal, ok := stdout.(*os.File)
	if json || d.exports || !ok || !term.IsTerminal(int(terminal.Fd())) || os.Getenv("TERM") == "dumb" {
		return d, nil
	}
	d.size = func() (width, height int) {
		width, height, err := term.GetSize(int(terminal.Fd()))
		if err != nil {
			return 80, 24
		}
		return width, height
	}
	screen, err := table.NewScreen(stdout, d.size)
	if err != nil {
		return nil, fmt.Errorf("compute: %w", err)
	}
	d.screen = screen
	return d, nil
}

// event tells of something that happened, under the table or, where there is none, on stderr.
func (d *display) event(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = text
	if d.screen == nil {
		_, _ = fmt.Fprintln(d.stderr, text)
	}
}

// run draws until ctx ends.
func (d *display) run(ctx context.Context, instance *controller.Instance) error {
	ticker := time.NewTicker(drawPeriod)
	defer ticker.Stop()
	snapshots := []stats.Snapshot{d.telemetry.controller.Snapshot()}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			now := d.telemetry.controller.Snapshot()
			if err := d.draw(now, now.Sub(snapshots[0]), instance); err != nil {
				return err
			}
			snapshots = append(snapshots, now)
			snapshots = snapshots[max(0, len(snapshots)-drawWindow):]
		}
	}
}

func (d *display) draw(now, window stats.Snapshot, instance *controller.Instance) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.screen == nil {
		return nil
	}
	below := append([]string{""}, d.summary(instance)...)
	if d.last != "" {
		below = append(below, "last event: "+d.last)
	}
	if d.page != nil {
		below = append(below, "debug page: "+d.page.url)
	}
	below = append(below, "rates and shares are of the last "+window.Duration().Round(drawPeriod).String()+"; ctrl-c ends")
	width, _ := d.size()
	connections := append(table.Lines(table.PerConnection(now, window, d.replicas.name), width), below...)
	total := append(table.Lines(table.InTotal(now, window, "all"), width), below...)
	if err := d.screen.Draw(connections, total); err != nil {
		return fmt.Errorf("compute: %w", err)
	}
	return nil
}

// close gives the terminal back, if there is one.
func (d *display) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.screen == nil {
		return nil
	}
	err := d.screen.Close()
	d.screen = nil
	if err != nil {
		return fmt.Errorf("compute: %w", err)
	}
	return nil
}

// A report is what -json prints: the snapshot of the controller's registry, and beside it the rest.
type report struct {
	stats.Snapshot

	Replicas stats.Snapshot   `json:"Replicas"` // of the replicas' registry
	Instance controller.Stats `json:"Instance"` // the gauges, and what went over the streams
}

// final shows everything once more.
func (d *display) final(instance *controller.Instance) error {
	if err := d.close(); err != nil {
		return err
	}
	now := d.telemetry.controller.Snapshot()
	if d.json {
		encoder := json.NewEncoder(d.stdout)
		encoder.SetIndent("", "  ")
		//nolint:musttag // a snapshot is printed by the names that it has in Go
		err := encoder.Encode(report{now, d.telemetry.replicas.Snapshot(), instance.Stats()})
		if err != nil {
			return fmt.Errorf("compute: printing the snapshot: %w", err)
		}
		return nil
	}
	var lines []string
	if !d.exports {
		connections := table.PerConnection(now, now, d.replicas.name)
		width, _ := d.size()
		lines = table.Lines(append(connections, table.InTotal(now, now, "all")...), width)
		lines = append(slices.Insert(lines, 1+len(connections), ""), "")
	}
	lines = append(lines, d.summary(instance)...)
	if _, err := io.WriteString(d.stdout, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("compute: printing the table: %w", err)
	}
	return nil
}

// summary is the instance's gauges, and whether both ends counted the same.
func (d *display) summary(instance *controller.Instance) []string {
	s := instance.Stats()
	c := s.Counts
	return []string{
		fmt.Sprintf("instance %s   history %d commands (of %d given), %d dataflows, %d collections; connected: %s",
			instance.Name(), s.History, c.Commands, s.Dataflows, s.Collections, strings.Join(s.Connected, ", ")),
		fmt.Sprintf("responses       peeks: %d rows, %d errors, %d canceled, of these %d late; subscriptions: %d batches, %d dropped",
			c.PeekRows, c.PeekErrors, c.PeekCanceled, c.PeekLate, c.SubscribeBatches, c.SubscribeDropped),
		fmt.Sprintf("replays         %d, of %d commands in all", c.Replays, c.Replayed),
		"sockets         " + sockets(d.telemetry.controller.Snapshot()),
		"controller      " + traffic(d.telemetry.controller.Snapshot(), stats.Transmit, stats.Receive),
		"replicas        " + traffic(d.telemetry.replicas.Snapshot(), stats.Receive, stats.Transmit),
	}
}

// sockets is what the controller's sockets carried, and how much of that was no message.
func sockets(s stats.Snapshot) string {
	read, written := s.Sockets.Overhead()
	all, overhead := s.Sockets.Read+s.Sockets.Written, read+written
	return fmt.Sprintf("%s read, %s written, of that %s (%.1f %%) headers and frames",
		table.Bytes(float64(s.Sockets.Read)), table.Bytes(float64(s.Sockets.Written)),
		table.Bytes(float64(overhead)), 100*float64(overhead)/float64(max(all, 1)))
}

// traffic is the sums of a registry, commands first.
func traffic(s stats.Snapshot, commands, responses stats.Direction) string {
	var messages, wire [2]uint64
	for _, r := range s.Total {
		messages[r.Key.Direction] += r.Messages
		wire[r.Key.Direction] += r.Wire.Sum
	}
	return fmt.Sprintf("%d commands of %s, %d responses of %s",
		messages[commands], table.Bytes(float64(wire[commands])), messages[responses], table.Bytes(float64(wire[responses])))
}
