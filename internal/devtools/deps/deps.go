// Package deps holds the direction of this module's dependencies. Its test runs as part of go test ./..., and make deps prints
// what it looked at.
//
// Three things hold: each package of ours imports only what its [Rule] allows, however indirectly; a package that users can
// import and that no rule names is an error, so a new package states its place; and go.mod requires directly what [Requirements]
// lists, no more and no less.
package deps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the path of the root module.
const Module = "github.com/otelproto/otelproto-go"

// Paths that rules speak about. A path stands for itself and everything beneath it.
const (
	sdk          = "go.opentelemetry.io/otel/sdk"
	grpc         = "google.golang.org/grpc"
	htmlTemplate = "html/template"
)

// Rule says what one package, and all that it imports, may consist of.
type Rule struct {
	Package string   // relative to Module
	Own     []string // packages of ours that it may import, relative to Module
	Never   []string // paths that no package in its dependencies may have
	// NotByUs are paths that no package of ours in its dependencies imports itself. grpc brings html/template along (its
	// x/net/trace page), so what imports grpc can only be held to this.
	NotByUs []string
}

// Rules returns the rule of every package that users can import.
func Rules() []Rule {
	return []Rule{
		{Package: "otelproto", Own: []string{"stats", "internal/semattr"}, Never: []string{sdk}, NotByUs: []string{htmlTemplate}},
		{Package: "stats", Never: []string{sdk, grpc, htmlTemplate}},
		{Package: "stats/statsmetric", Own: []string{"stats", "internal/semattr"}, Never: []string{grpc, htmlTemplate}},
		{Package: "stats/statshttp", Own: []string{"stats"}, Never: []string{sdk, grpc}},
		{Package: "channel", Never: []string{sdk}, NotByUs: []string{htmlTemplate}},
		{Package: "broadcast", Never: []string{sdk, grpc, htmlTemplate}},
	}
}

// Requirements returns the modules that the root go.mod requires directly, sorted.
func Requirements() []string {
	return []string{
		"github.com/google/go-cmp", // tests
		"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc", // tests: coexistence and comparison
		"go.opentelemetry.io/otel",
		"go.opentelemetry.io/otel/metric",
		"go.opentelemetry.io/otel/sdk/metric",
		"go.opentelemetry.io/otel/trace",
		"go.uber.org/goleak", // tests
		"google.golang.org/grpc",
		"google.golang.org/protobuf",
	}
}

// Package is what go list tells of one package.
type Package struct {
	ImportPath string
	Imports    []string // direct, without those of its tests
	Deps       []string // all, in no particular order
}

// List runs go list in dir, a folder of a module, and returns the packages that match.
func List(dir string, patterns ...string) ([]Package, error) {
	out, err := command(dir, append([]string{"list", "-json=ImportPath,Imports,Deps", "--"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var list []Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("deps: go list: %w", err)
		}
		list = append(list, p)
	}
}

// Check returns a line for each import in list that breaks a rule and for each public package without one.
func Check(rules []Rule, list []Package) []string {
	byPath := make(map[string]Package, len(list))
	for _, p := range list {
		byPath[p.ImportPath] = p
	}
	var problems []string
	for _, p := range list {
		rel, ours := strings.CutPrefix(p.ImportPath, Module+"/")
		if !ours || strings.HasPrefix(rel, "internal/") {
			continue
		}
		i := slices.IndexFunc(rules, func(r Rule) bool { return r.Package == rel })
		if i < 0 {
			problems = append(problems, rel+": no rule says what it may import: add one to Rules")
			continue
		}
		problems = append(problems, check(rules[i], p, byPath)...)
	}
	slices.Sort(problems)
	return problems
}

func check(r Rule, p Package, byPath map[string]Package) []string {
	var problems []string
	for _, dep := range p.Deps {
		if rel, ours := strings.CutPrefix(dep, Module+"/"); ours && !slices.Contains(r.Own, rel) {
			problems = append(problems, fmt.Sprintf("%s: depends on our %s (allowed: %s)", r.Package, rel, listed(r.Own)))
		}
		if slices.ContainsFunc(r.Never, func(path string) bool { return beneath(dep, path) }) {
			problems = append(problems, fmt.Sprintf("%s: depends on %s%s", r.Package, dep, through(dep, p, byPath)))
		}
	}
	for _, path := range append([]string{p.ImportPath}, p.Deps...) {
		for _, imported := range byPath[path].Imports {
			if slices.ContainsFunc(r.NotByUs, func(path string) bool { return beneath(imported, path) }) {
				problems = append(problems, fmt.Sprintf("%s: %s imports %s", r.Package, path, imported))
			}
		}
	}
	return problems
}

// through names the package of ours that imports dep itself, if one does.
func through(dep string, p Package, byPath map[string]Package) string {
	for _, path := range append([]string{p.ImportPath}, p.Deps...) {
		if slices.Contains(byPath[path].Imports, dep) {
			return ", imported by " + path
		}
	}
	return ""
}

func beneath(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// goMod is what go mod edit -json prints, as far as it matters here.
type goMod struct {
	Module  struct{ Path string }
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []struct{ Old, New struct{ Path string } }
}

func readGoMod(dir string) (goMod, error) {
	out, err := command(dir, "mod", "edit", "-json")
	if err != nil {
		return goMod{}, err
	}
	var m goMod
	if err := json.Unmarshal(out, &m); err != nil {
		return goMod{}, fmt.Errorf("deps: go mod edit: %w", err)
	}
	return m, nil
}

// CheckRequirements returns a line for each difference between want and the direct requirements of the go.mod in dir.
func CheckRequirements(dir string, want []string) ([]string, error) {
	m, err := readGoMod(dir)
	if err != nil {
		return nil, err
	}
	var problems, got []string
	for _, r := range m.Require {
		if r.Indirect {
			continue
		}
		got = append(got, r.Path)
		if !slices.Contains(want, r.Path) {
			problems = append(problems, "go.mod: requires "+r.Path+", which is not one of the module's requirements")
		}
	}
	for _, path := range want {
		if !slices.Contains(got, path) {
			problems = append(problems, "go.mod: doesn't require "+path+" directly")
		}
	}
	return problems, nil
}

// CheckNested returns a line for each problem with the nested module in dir: its path follows from its place, and it uses the
// root beside it and not one from elsewhere.
func CheckNested(root, dir string) ([]string, error) {
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return nil, fmt.Errorf("deps: %w", err)
	}
	m, err := readGoMod(dir)
	if err != nil {
		return nil, err
	}
	rel = filepath.ToSlash(rel)
	var problems []string
	if want := Module + "/" + rel; m.Module.Path != want {
		problems = append(problems, fmt.Sprintf("%s/go.mod: module %s, not %s", rel, m.Module.Path, want))
	}
	for _, r := range m.Require {
		own, ours := strings.CutPrefix(r.Path+"/", Module+"/")
		if !ours {
			continue
		}
		replaced := false
		for _, repl := range m.Replace {
			replaced = replaced || repl.Old.Path == r.Path && filepath.Join(dir, repl.New.Path) == filepath.Join(root, own)
		}
		if !replaced {
			problems = append(problems, fmt.Sprintf("%s/go.mod: %s isn't replaced by the folder in this repository", rel, r.Path))
		}
	}
	return problems, nil
}

func command(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil, fmt.Errorf("deps: go %s: %w\n%s", args[0], err, exit.Stderr)
		}
		return nil, fmt.Errorf("deps: go %s: %w", args[0], err)
	}
	return out, nil
}
