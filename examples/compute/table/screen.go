package table

import (
	"fmt"
	"io"
	"strings"
)

// Control sequences (ECMA-48, and xterm's for the alternate screen).
const (
	enter = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leave = "\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
	erase = "\x1b[K" // to the end of the line
	below = "\x1b[J" // all from here on
)

// A Screen draws lines over those that it drew before. It uses the terminal's alternate screen, so that what was there before
// comes back when it is closed.
type Screen struct {
	w    io.Writer
	size func() (width, height int)
}

// NewScreen returns a screen on a terminal of the size that size returns, which is asked each time. It has to be closed.
func NewScreen(w io.Writer, size func() (width, height int)) (*Screen, error) {
	if _, err := io.WriteString(w, enter); err != nil {
		return nil, fmt.Errorf("table: %w", err)
	}
	return &Screen{w: w, size: size}, nil
}

// Draw shows the lines of the first version that fits the terminal's height, or as many lines as fit of the last one and how
// many are missing. Lines that are too long are cut.
func (s *Screen) Draw(versions ...[]string) error {
	width, height := s.size()
	var b strings.Builder
	b.WriteString(home)
	for n, line := range fit(versions, height) {
		if n > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(cut(line, width) + erase)
	}
	b.WriteString(below)
	if _, err := io.WriteString(s.w, b.String()); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	return nil
}

// Close gives the terminal back.
func (s *Screen) Close() error {
	if _, err := io.WriteString(s.w, leave); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	return nil
}

func fit(versions [][]string, height int) []string {
	var lines []string
	for _, lines = range versions {
		if len(lines) <= height {
			return lines
		}
	}
	if height < 1 {
		return nil
	}
	kept := height - 1
	return append(lines[:kept:kept], fmt.Sprintf("… and %d lines more", len(lines)-kept))
}

func cut(line string, width int) string {
	for n := range line {
		if width == 0 {
			return line[:n]
		}
		width--
	}
	return line
}
