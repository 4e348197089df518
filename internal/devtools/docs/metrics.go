package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const metricsPage = "docs/metrics.md"

var (
	quotedName = regexp.MustCompile("`(otelproto(?:\\.[a-z0-9_]+)+)`")
	wholeName  = regexp.MustCompile(`^otelproto(?:\.[a-z0-9_]+)+$`)
)

// checkMetrics compares the names in the tables of docs/metrics.md with those in the sources.
func (t *tree) checkMetrics() error {
	documented := make(map[string]int) // name to line
	if p := t.pages[metricsPage]; p != nil {
		for i, line := range p.lines {
			if !strings.HasPrefix(strings.TrimSpace(line), "|") || p.inBlock(i+1) {
				continue
			}
			for _, m := range quotedName.FindAllStringSubmatch(line, -1) {
				documented[m[1]] = i + 1
			}
		}
	}
	t.report.Names = len(documented)
	used := make(map[string]bool)
	err := t.walk(func(path string) error {
		if !ships(path) {
			return nil
		}
		return t.names(path, func(line int, name string) {
			used[name] = true
			if documented[name] == 0 {
				t.problemf(path, line, "%s isn't in a table of %s", name, metricsPage)
			}
		})
	})
	for name, line := range documented {
		if !used[name] {
			t.problemf(metricsPage, line, "%s isn't in the sources of any package", name)
		}
	}
	return err
}

func (p *page) inBlock(line int) bool {
	for _, b := range p.blocks {
		if b.line <= line && line <= b.line+len(b.lines)+1 {
			return true
		}
	}
	return false
}

// ships reports whether path is a source file of a package that users import, or of the one that makes attributes for these.
func ships(path string) bool {
	if strings.HasPrefix(path, "internal/semattr/") {
		return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
	}
	top, _, _ := strings.Cut(path, "/")
	switch top {
	case "internal", "examples", "bench", "e2e":
		return false
	}
	return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
}

// names calls f with every string in a source file that is the name of a metric or an attribute of ours. A name put together
// from parts would escape this check and every search, so its first part is a problem.
func (t *tree) names(path string, f func(line int, name string)) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, filepath.Join(t.root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		s, err := strconv.Unquote(lit.Value)
		line := files.Position(lit.Pos()).Line
		switch {
		case err != nil:
			t.problemf(path, line, "string %s: %v", lit.Value, err)
		case wholeName.MatchString(s):
			f(line, s)
		case strings.HasPrefix(s, "otelproto.") && !strings.Contains(s, " "):
			t.problemf(path, line, "%q is a part of a name: write the whole name, so that it can be found", s)
		}
		return true
	})
	return nil
}
