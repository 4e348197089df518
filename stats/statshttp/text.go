package statshttp

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxCell is how many characters of a name stand in a column of plain text.
const maxCell = 60

// textTable has rows of cells.
type textTable struct {
	columns []textColumn
	rows    [][]string
}

type textColumn struct {
	name  string
	right bool // numbers are right-aligned
}

// textColumns names columns; those whose name ends in ">" are right-aligned.
func textColumns(names ...string) []textColumn {
	columns := make([]textColumn, len(names))
	for i, n := range names {
		columns[i].name, columns[i].right = strings.CutSuffix(n, ">")
	}

	return columns
}

func (t *textTable) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *textTable) write(b *bytes.Buffer) {
	widths := make([]int, len(t.columns))
	names := make([]string, len(t.columns))

	for i, c := range t.columns {
		names[i] = c.name
	}

	for _, row := range append([][]string{names}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(shorten(cell, maxCell)))
		}
	}

	for _, row := range append([][]string{names}, t.rows...) {
		var line strings.Builder

		for i, cell := range row {
			cell = shorten(cell, maxCell)
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))

			if i > 0 {
				line.WriteString("  ")
			}

			if t.columns[i].right {
				line.WriteString(padding + cell)
			} else {
				line.WriteString(cell + padding)
			}
		}

		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// shorten cuts s to n characters. Of a long name the end says most.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}

	runes := []rune(s)

	return string(runes[:n/3]) + "…" + string(runes[len(runes)-(n-n/3-1):])
}

// writeText writes the view as aligned tables.
func writeText(b *bytes.Buffer, v view) {
	var text bytes.Buffer

	fmt.Fprintf(&text, "%s, %s, counting for %s\n", v.Title, v.Time.UTC().Format(time.RFC3339), age(v.Time.Sub(v.Start)))
	fmt.Fprintf(&text, "%s\n", strings.TrimSpace(windowText(v.Window)+" "+v.Window.Note))

	if c := v.Connection; c != nil {
		fmt.Fprintf(&text, "Only connection %d: %s of %s, %s to %s, opened %s ago\n",
			c.ID, c.Side, c.Peer, c.Local, c.Remote, age(seconds(c.AgeSeconds)))
	}

	s := v.Summary
	fmt.Fprintf(&text, "\n%s\n", s.Sentence)
	fmt.Fprintf(&text, "Sent %s, %s messages/s. Received %s, %s messages/s. Compression %s.\n",
		rateText(s.Sent.WireBytesPerSecond), number3(s.Sent.MessagesPerSecond),
		rateText(s.Received.WireBytesPerSecond), number3(s.Received.MessagesPerSecond), times(s.CompressionRatio))
	fmt.Fprintf(&text, "Live connections: %d as client, %d as server.\n", s.LiveClient, s.LiveServer)

	fmt.Fprintf(&text, "\nMESSAGES by %s%s\n", v.Messages.Group, shownText(v.Messages.tableView))
	writeMessages(&text, v.Messages.List)

	if v.Connection == nil {
		fmt.Fprintf(&text, "\nPEERS of live connections%s\n", shownText(v.Peers.tableView))
		writePeers(&text, v)
		fmt.Fprintf(&text, "\nLIVE CONNECTIONS%s\n", shownText(v.Connections.tableView))
	} else {
		fmt.Fprintf(&text, "\nCONNECTION\n")
	}

	writeConnections(&text, v.Connections.List)
	writeSockets(&text, v)

	if c := v.Closed; c.Messages > 0 {
		fmt.Fprintf(&text, "\nCLOSED CONNECTIONS since counting began: %s messages, %s on the wire, %s uncompressed\n",
			countText(c.Messages), bytesText(float64(c.WireBytes)), bytesText(float64(c.SizeBytes)))
		writeMessages(&text, c.List)
	}

	for _, section := range v.Sections {
		fmt.Fprintf(&text, "\n%s (%d of %d)\n", section.Title, len(section.List), section.Rows)
		writeSection(&text, section)
	}

	b.WriteString(strings.ReplaceAll(text.String(), thin, " "))
}

func windowText(w windowView) string {
	if w.Asked == all {
		return "Since counting began, " + age(seconds(w.Seconds)) + "."
	}

	return "Over the last " + age(seconds(w.Seconds)) + "."
}

// shownText says that there is more than is shown.
func shownText(t tableView) string {
	switch {
	case t.Pages > 1:
		return fmt.Sprintf(": page %d of %d, %d of %d rows match", t.Page, t.Pages, t.Matched, t.Rows)
	case t.Matched < t.Rows:
		return fmt.Sprintf(": %d of %d rows match", t.Matched, t.Rows)
	default:
		return ""
	}
}

func writeMessages(b *bytes.Buffer, rows []messageRow) {
	t := textTable{columns: textColumns(
		"SHARE>", "SUM>", "WIRE>", "RATE>", "MESSAGES>", "RATE>", "MEAN>", "P50>", "P99>", "RATIO>",
		"SIDE", "DIRECTION", "TYPE", "VARIANT", "METHOD",
	)}

	traced := slices.ContainsFunc(rows, func(r messageRow) bool { return r.Exemplar != nil })
	if traced {
		t.columns = append(t.columns, textColumns("LARGEST SAMPLED>", "TRACE")...)
	}

	for _, r := range rows {
		cells := []string{
			percent(r.Share), percent(r.CumulativeShare), bytesText(float64(r.WireBytes)), rateText(r.WireBytesPerSecond),
			countText(r.Messages), perSecond(r.MessagesPerSecond), bytesText(r.Wire.Mean), bytesText(r.Wire.P50), bytesText(r.Wire.P99),
			times(r.CompressionRatio), r.Side, r.Direction, orDash(r.Type), orDash(r.Variant), orDash(r.Method),
		}

		if e := r.Exemplar; e != nil {
			cells = append(cells, bytesText(float64(e.SizeBytes)), e.TraceID)
		} else if traced {
			cells = append(cells, "-", "-")
		}

		t.add(cells...)
	}

	t.write(b)
}

func writePeers(b *bytes.Buffer, v view) {
	t := textTable{columns: textColumns("SHARE>", "SENT>", "RECEIVED>", "CONNECTIONS>", "OLDEST>", "SIDE", "PEER")}

	for _, p := range v.Peers.List {
		t.add(percent(p.Share), rateText(p.Sent.WireBytesPerSecond), rateText(p.Received.WireBytesPerSecond),
			countText(p.Connections), age(v.Time.Sub(p.Oldest)), p.Side, p.Peer)
	}

	t.write(b)
}

func writeConnections(b *bytes.Buffer, rows []connectionRow) {
	t := textTable{columns: textColumns(
		"ID>", "SHARE>", "SENT>", "RECEIVED>", "SENT SINCE OPENED>", "RECEIVED>", "OVERHEAD>", "AGE>",
		"SIDE", "LOCAL", "REMOTE", "AUTHORITY",
	)}

	for _, c := range rows {
		overhead := "-"
		if c.Lifetime.Socket != nil {
			overhead = percent(c.Lifetime.Socket.OverheadShare)
		}

		t.add(strconv.FormatUint(c.ID, 10), percent(c.Share), rateText(c.Sent.WireBytesPerSecond), rateText(c.Received.WireBytesPerSecond),
			bytesText(float64(c.Lifetime.SentWireBytes)), bytesText(float64(c.Lifetime.ReceivedWireBytes)), overhead,
			age(seconds(c.AgeSeconds)), c.Side, c.Local, c.Remote, orDash(c.Authority))
	}

	t.write(b)
}

func writeSockets(b *bytes.Buffer, v view) {
	s := v.Sockets
	if s.Written+s.Read == 0 {
		b.WriteString("\nSOCKETS: nothing counted (Registry.Listener, Registry.DialContext)\n")

		return
	}

	fmt.Fprintf(b, "\nSOCKETS: messages + overhead = bytes of the socket\n")

	t := textTable{columns: textColumns("", "SOCKET>", "MESSAGES>", "OVERHEAD>", "RATE>")}
	t.add("sent", bytesText(float64(s.Written)), bytesText(float64(s.SentWire)), bytesText(float64(s.WrittenOverhead)),
		rateText(s.WrittenPerSecond))
	t.add("received", bytesText(float64(s.Read)), bytesText(float64(s.ReceivedWire)), bytesText(float64(s.ReadOverhead)),
		rateText(s.ReadPerSecond))
	t.write(b)
}

func writeSection(b *bytes.Buffer, s sectionView) {
	var t textTable

	for i, c := range s.Columns {
		t.columns = append(t.columns, textColumn{strings.ToUpper(c), s.Numeric(i)})
	}

	for _, row := range s.List {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = cellText(c)
		}

		t.add(cells...)
	}

	t.write(b)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}

	return s
}
