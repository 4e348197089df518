// Package docs checks what the documentation says against the repository. Its test runs as part of go test ./..., and make
// docs-check runs it alone.
//
//   - Quoted code. An HTML comment <!-- from PATH -->, PATH relative to the root, on the line before a fenced block says that the
//     block is quoted from that file: its lines occur there as they are, one after the other. Common indentation may differ, and a
//     line that is nothing but "// …" leaves lines out. Every Go block of README.md is quoted; a Go block of docs/ that isn't at
//     least parses.
//   - Links. In every Markdown file relative links lead to files, and anchors to headings.
//   - Metrics. The names otelproto.… in the tables of docs/metrics.md are those in the sources of the packages, both ways: an
//     instrument without documentation fails, and so does documentation without an instrument.
//   - README.md has at most 150 lines and shows Go code by line 25.
package docs

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Problem is one thing in the documentation that isn't so.
type Problem struct {
	File string // relative to the root
	Line int    // from 1; 0 if no line is at fault
	Text string
}

func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Report is the outcome of [Check]: what was looked at, so that a check of nothing doesn't pass for a check, and what is wrong.
type Report struct {
	Files    int // Markdown files
	Links    int // relative ones and anchors
	Quotes   int // blocks that name their source
	Names    int // metrics and attributes in docs/metrics.md
	Problems []Problem
}

// tree is a repository on disk with its Markdown files parsed.
type tree struct {
	root   string
	pages  map[string]*page // by path relative to root, with slashes
	report *Report
}

// Check looks at the repository in root.
func Check(root string) (Report, error) {
	var r Report
	t := &tree{root: root, pages: make(map[string]*page), report: &r}
	if err := t.load(); err != nil {
		return r, fmt.Errorf("docs: %w", err)
	}
	r.Files = len(t.pages)
	t.checkReadme()
	for _, p := range t.pages {
		t.checkLinks(p)
		if p.path == "README.md" || strings.HasPrefix(p.path, "docs/") {
			t.checkBlocks(p)
		}
	}
	if err := t.checkMetrics(); err != nil {
		return r, fmt.Errorf("docs: %w", err)
	}
	slices.SortFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return r, nil
}

func (t *tree) problemf(file string, line int, format string, args ...any) {
	t.report.Problems = append(t.report.Problems, Problem{file, line, fmt.Sprintf(format, args...)})
}

// load reads every Markdown file of ours.
func (t *tree) load() error {
	return t.walk(func(path string) error {
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(t.root, path))
		t.pages[path] = parse(path, string(text))
		return err
	})
}

// walk calls f with the path of each file of ours relative to the root.
func (t *tree) walk(f func(path string) error) error {
	return filepath.WalkDir(t.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case !d.IsDir():
			rel, err := filepath.Rel(t.root, path)
			if err != nil {
				return err
			}
			return f(filepath.ToSlash(rel))
		case path == t.root || name == ".github":
			return nil
		case strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules":
			return fs.SkipDir
		}
		return nil
	})
}

const (
	readmeLines = 150
	readmeCode  = 25
)

func (t *tree) checkReadme() {
	p := t.pages["README.md"]
	if p == nil {
		return
	}
	if len(p.lines) > readmeLines {
		t.problemf(p.path, readmeLines+1, "%d lines, at most %d are read", len(p.lines), readmeLines)
	}
	i := slices.IndexFunc(p.blocks, func(b block) bool { return b.lang == "go" })
	if i < 0 {
		t.problemf(p.path, 0, "shows no Go code")
	} else if p.blocks[i].line > readmeCode {
		t.problemf(p.path, p.blocks[i].line, "the first Go code begins here, not by line %d", readmeCode)
	}
}
