package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/internal/devtools/docs"
)

func TestTheDocumentationIsTrue(t *testing.T) {
	r, err := docs.Check("../../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d Markdown files, %d links, %d quoted blocks, %d names of metrics and attributes", r.Files, r.Links, r.Quotes, r.Names)
	for _, p := range r.Problems {
		t.Error(p)
	}
}

// Every fixture below is a small repository, by path, and the problems that it has.

const server = `package main

import "fmt"

func main() {
	if true {
		fmt.Println("one")

		fmt.Println("two")
	}
	fmt.Println("three")
}
`

func TestQuotedCode(t *testing.T) {
	quote := func(lines ...string) string {
		return "<!-- from examples/main.go -->\n```go\n" + strings.Join(lines, "\n") + "\n```\n"
	}
	for _, tt := range []struct {
		name, readme string
		want         []string
	}{
		{"the whole file", quote(strings.TrimSuffix(server, "\n")), nil},
		{"a run of lines, less indented", quote(`fmt.Println("one")`, "", `fmt.Println("two")`), nil},
		{"lines left out", quote("func main() {", "\t// …", `	fmt.Println("three")`, "}"), nil},
		{"a blank line after the marker", "<!-- from examples/main.go -->\n\n```go\nimport \"fmt\"\n```\n", nil},
		{
			"a changed line", quote(`fmt.Println("one")`, "", `fmt.Println("to")`),
			[]string{`README.md:3: not as it stands in examples/main.go (or not in this order): fmt.Println("to")`},
		},
		{
			"a line missing in the middle", quote(`fmt.Println("one")`, `fmt.Println("two")`),
			[]string{`README.md:3: not as it stands in examples/main.go (or not in this order): fmt.Println("one")`},
		},
		{
			"another indentation within", quote("if true {", `fmt.Println("one")`),
			[]string{"README.md:3: not as it stands in examples/main.go (or not in this order): if true {"},
		},
		{
			"pieces in another order", quote(`fmt.Println("three")`, elision, "func main() {"),
			[]string{"README.md:5: not as it stands in examples/main.go (or not in this order): func main() {"},
		},
		{
			"nothing", "<!-- from examples/main.go -->\n```go\n```\n",
			[]string{"README.md:3: not as it stands in examples/main.go (or not in this order): (nothing is quoted)"},
		},
		{
			"a file that doesn't exist", "<!-- from examples/gone.go -->\n```go\nx()\n```\n",
			[]string{"README.md:2: quotes examples/gone.go, which can't be read"},
		},
		{
			"no marker in the README", "```go\nx()\n```\n",
			[]string{"README.md:1: Go code that doesn't say where it is from: put <!-- from PATH --> before it"},
		},
		{
			"a marker that prose separates from the block", "<!-- from examples/main.go -->\ntext\n```go\nimport \"fmt\"\n```\n",
			[]string{"README.md:3: Go code that doesn't say where it is from: put <!-- from PATH --> before it"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, map[string]string{"README.md": tt.readme, "examples/main.go": server}, tt.want...)
		})
	}
}

const elision = "// …"

func TestGoCodeInDocsParsesOrIsQuoted(t *testing.T) {
	expect(t, map[string]string{"docs/a.md": "```go\npackage x\n```\n```go\nfunc f() {}\n```\n```go\nx := f()\n```\n```sh\n}{\n```\n"})
	expect(t, map[string]string{"docs/a.md": "text\n\n```go\nf()\nx := = f()\n```\n"},
		"docs/a.md:5: not Go: expected operand, found '='")
	expect(t, map[string]string{"docs/a.md": "<!-- from f.yaml -->\n```yaml\na: 2\n```\n", "f.yaml": "a: 1\n"},
		"docs/a.md:3: not as it stands in f.yaml (or not in this order): a: 2")
}

func TestLinks(t *testing.T) {
	const heading = "# The `Topic` of [today](b.md), now!\n## Cost\n## Cost\n<a id=\"own\"></a>\n"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"a file", "[x](b.md) ![y](../img/p.png \"title\") [z]: not one", nil},
		{"a folder, the root, an absolute path", "[x](../img/) [y](..) [z](/docs/b.md)", nil},
		{"elsewhere", "[x](https://example.com/nowhere#x) <a href=\"mailto:a@b.c\">y</a>", nil},
		{"headings", "[x](#the-topic-of-today-now) [y](a.md#cost-1) [z](#own)\n" + heading, nil},
		{"lines of a source file", "[x](../x.go#L1-L3)", nil},
		{"code isn't a link", "`[x](gone.md)`\n```\n[x](gone.md)\n```\n~~~~md\n~~~\n[x](gone.md)\n~~~~\n", nil},
		{"a missing file", "text\n[x](gone.md)", []string{"docs/a.md:2: link gone.md: no such file"}},
		{"two on a line", "[x](b.md), [y](gone.md) and [z](c.md)", []string{
			"docs/a.md:1: link c.md: no such file", "docs/a.md:1: link gone.md: no such file",
		}},
		{"a file in other letters", "[x](B.md)", []string{"docs/a.md:1: link B.md: no such file"}},
		{"a missing image", "<img alt=\"x\" src=\"p.png\">", []string{"docs/a.md:1: link p.png: no such file"}},
		{"a reference", "[x]: gone.md", []string{"docs/a.md:1: link gone.md: no such file"}},
		{"a missing heading", "[x](#cost-2)\n" + heading, []string{"docs/a.md:1: link #cost-2: no such heading"}},
		{"a missing heading elsewhere", "[x](b.md#gone)", []string{"docs/a.md:1: link b.md#gone: no such heading"}},
		{"missing lines", "[x](../x.go#L3-L4)", []string{"docs/a.md:1: link ../x.go#L3-L4: no such lines"}},
		{"out of the repository", "[x](../../y.md)", []string{"docs/a.md:1: link ../../y.md leads out of the repository"}},
		{"not a URL", "[x](%zz)", []string{`docs/a.md:1: link %zz: parse "%zz": invalid URL escape "%zz"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, map[string]string{
				"docs/a.md": tt.text, "docs/b.md": "# B\n", "img/p.png": "", "x.go": "package x\n\n// …\n", ".bin/c.md": "[x](gone.md)",
			}, tt.want...)
		})
	}
}

func TestMetricsAreDocumentedBothWays(t *testing.T) {
	const (
		table  = "| metric | unit |\n|---|---|\n| `otelproto.a.size`, `otelproto.b` | `otelproto.attr` = `x` |\n"
		source = "package stats\n\nconst (\n\ta = \"otelproto.a.size\"\n\tb = `otelproto.b`\n\tc = \"otelproto.attr\"\n)\n"
	)
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"the same", map[string]string{"docs/metrics.md": table, "stats/a.go": source}, nil},
		{
			"what isn't a name, tests and programs don't count",
			map[string]string{
				"docs/metrics.md": table + "`otelproto.prose` and\n```\n| `otelproto.block` |\n```\n", "stats/a.go": source,
				"stats/b.go":           "package stats\n\nvar x = f(\"otelproto: no\", \"otelproto.A of\", \"x/otelproto/otelproto.\")\n",
				"stats/a_test.go":      "package stats\n\nconst d = \"otelproto.test\"\n",
				"examples/main.go":     "package main\n\nconst d = \"otelproto.example\"\n",
				"internal/pair/p.go":   "package pair\n\nconst d = \"otelproto.internal\"\n",
				"stats/testdata/no.go": "not Go",
			},
			nil,
		},
		{
			"an instrument without documentation",
			map[string]string{
				"docs/metrics.md": table, "stats/a.go": source,
				"broadcast/jetstream/n.go": "package n\n\nvar n = f(\"otelproto.n\")\n",
			},
			[]string{"broadcast/jetstream/n.go:3: otelproto.n isn't in a table of docs/metrics.md"},
		},
		{
			"no page at all",
			map[string]string{"stats/a.go": "package stats\n\nvar n = f(\"otelproto.n\")\n"},
			[]string{"stats/a.go:3: otelproto.n isn't in a table of docs/metrics.md"},
		},
		{
			"documentation without an instrument",
			map[string]string{"docs/metrics.md": table + "| `otelproto.gone` | |\n", "stats/a.go": source},
			[]string{"docs/metrics.md:4: otelproto.gone isn't in the sources of any package"},
		},
		{
			"a name put together",
			map[string]string{
				"docs/metrics.md": table, "stats/a.go": source,
				"stats/b.go": "package stats\n\nvar (\n\tx = \"otelproto.\" + side\n\ty = f(\"otelproto.%s.size\", side)\n)\n",
			},
			[]string{
				`stats/b.go:4: "otelproto." is a part of a name: write the whole name, so that it can be found`,
				`stats/b.go:5: "otelproto.%s.size" is a part of a name: write the whole name, so that it can be found`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.files, tt.want...) })
	}
}

func TestASourceFileThatDoesNotParseIsAnError(t *testing.T) {
	if _, err := docs.Check(repository(t, map[string]string{"stats/a.go": "package"})); err == nil {
		t.Error("no error")
	}
}

func TestTheReadmeIsShortAndShowsCodeEarly(t *testing.T) {
	const code = "<!-- from x.go -->\n```go\npackage x\n```\n"
	with := func(before, after int) map[string]string {
		text := strings.Repeat("line\n", before) + code + strings.Repeat("line\n", after)
		return map[string]string{"README.md": text, "x.go": "package x\n"}
	}
	expect(t, with(23, 123))
	expect(t, with(24, 122), "README.md:26: the first Go code begins here, not by line 25")
	expect(t, with(23, 124), "README.md:151: 151 lines, at most 150 are read")
	expect(t, map[string]string{"README.md": "# X\n"}, "README.md: shows no Go code")
}

// expect checks that the repository of these files has these problems, in this order.
func expect(t *testing.T, files map[string]string, want ...string) {
	t.Helper()
	r, err := docs.Check(repository(t, files))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range r.Problems {
		got = append(got, p.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		file := filepath.Join(root, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
