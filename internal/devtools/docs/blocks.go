package docs

import (
	"errors"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// elision in a quoted block stands for lines that are left out.
const elision = "// …"

// checkBlocks checks the fenced blocks of p.
func (t *tree) checkBlocks(p *page) {
	for _, b := range p.blocks {
		switch {
		case b.from != "":
			t.report.Quotes++
			t.checkQuote(p, b)
		case b.lang == "go" && p.path == "README.md":
			t.problemf(p.path, b.line, "Go code that doesn't say where it is from: put <!-- from PATH --> before it")
		case b.lang == "go":
			if line, err := parses(strings.Join(b.lines, "\n")); err != nil {
				t.problemf(p.path, b.line+line, "not Go: %v", err)
			}
		}
	}
}

func (t *tree) checkQuote(p *page, b block) {
	text, err := os.ReadFile(filepath.Join(t.root, filepath.FromSlash(b.from)))
	if err != nil {
		t.problemf(p.path, b.line, "quotes %s, which can't be read", b.from)
		return
	}
	rest := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for line, piece := range pieces(b) {
		end := find(rest, piece)
		if end < 0 {
			t.problemf(p.path, line, "not as it stands in %s (or not in this order): %s", b.from, firstStrange(rest, piece))
			return
		}
		rest = rest[end:]
	}
}

// pieces yields the runs of lines between elisions, each with the number of its first line. A block without any lines is one
// empty piece, which nothing contains.
func pieces(b block) func(yield func(int, []string) bool) {
	return func(yield func(int, []string) bool) {
		start := 0
		for i := 0; i <= len(b.lines); i++ {
			if i < len(b.lines) && strings.TrimSpace(b.lines[i]) != elision {
				continue
			}
			if piece := trimBlank(b.lines[start:i]); len(piece) > 0 || len(b.lines) == 0 {
				if !yield(b.line+1+start, piece) {
					return
				}
			}
			start = i + 1
		}
	}
}

// find returns the index after the first run of lines that equals piece but for common indentation, or -1.
func find(lines, piece []string) int {
	if len(piece) == 0 {
		return -1
	}
	piece = dedent(piece)
	for i := range len(lines) - len(piece) + 1 {
		if slices.Equal(dedent(lines[i:i+len(piece)]), piece) {
			return i + len(piece)
		}
	}
	return -1
}

// firstStrange returns the first line of piece that lines don't have, or the piece's first line if only the order differs.
func firstStrange(lines, piece []string) string {
	for _, line := range piece {
		if !slices.ContainsFunc(lines, func(s string) bool { return strings.TrimSpace(s) == strings.TrimSpace(line) }) {
			return strings.TrimSpace(line)
		}
	}
	if len(piece) == 0 {
		return "(nothing is quoted)"
	}
	return strings.TrimSpace(piece[0])
}

// dedent removes the white space that all lines but blank ones begin with.
func dedent(lines []string) []string {
	indent, first := "", true
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		own := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if first {
			indent, first = own, false
		}
		for !strings.HasPrefix(own, indent) {
			indent = indent[:len(indent)-1]
		}
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = strings.TrimRight(strings.TrimPrefix(line, indent), " \t")
	}
	return out
}

func trimBlank(lines []string) []string {
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	for len(lines) > 0 && blank(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// parses returns nil if text is a Go file, declarations or statements, otherwise what is wrong with it as statements, and in
// which line of it.
func parses(text string) (line int, err error) {
	for _, before := range []string{"", "package p\n", "package p\nfunc _() {\n"} {
		source := before + text + "\n" + strings.Repeat("}", strings.Count(before, "{"))
		if _, err = parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution); err == nil {
			return 0, nil
		}
		if list, ok := errors.AsType[scanner.ErrorList](err); ok {
			line, err = list[0].Pos.Line-strings.Count(before, "\n"), errors.New(list[0].Msg)
		}
	}
	return line, err
}
