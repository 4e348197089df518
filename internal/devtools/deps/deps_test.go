package deps_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/internal/devtools/deps"
)

const root = "../../.."

func TestDependenciesPointOneWay(t *testing.T) {
	list, err := deps.List(root, "./...")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range deps.Rules() {
		present := false
		for _, p := range list {
			if p.ImportPath == deps.Module+"/"+r.Package {
				present = true
				t.Logf("%s: %d dependencies; of ours only %v; never %v; not imported by us %v",
					r.Package, len(p.Deps), r.Own, r.Never, r.NotByUs)
			}
		}
		if !present {
			t.Logf("%s: no such package, nothing to check", r.Package)
		}
	}
	for _, problem := range deps.Check(deps.Rules(), list) {
		t.Error(problem)
	}
}

func TestTheRootModuleRequiresExactlyWhatIsAllowed(t *testing.T) {
	want := deps.Requirements()
	t.Logf("direct requirements: %s", strings.Join(want, " "))
	problems, err := deps.CheckRequirements(root, want)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// The walk over the whole tree also makes go test's cache see every change to it; what the go command reads escapes the cache.
func TestNestedModulesUseTheRootBesideThem(t *testing.T) {
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != top && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || d.Name() != "go.mod" || filepath.Dir(path) == top:
			return nil
		}
		t.Logf("%s", strings.TrimPrefix(path, top+"/"))
		problems, err := deps.CheckNested(top, filepath.Dir(path))
		for _, problem := range problems {
			t.Error(problem)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCheckNamesWhatBreaksARule(t *testing.T) {
	const (
		ours = deps.Module + "/"
		sdk  = "go.opentelemetry.io/otel/sdk/metric"
	)
	rules := []deps.Rule{
		{Package: "a", Own: []string{"b"}, Never: []string{"go.opentelemetry.io/otel/sdk"}, NotByUs: []string{"html/template"}},
		{Package: "b", Never: []string{"html/template"}},
	}
	for _, tt := range []struct {
		name string
		list []deps.Package
		want []string
	}{
		{
			"all as it should be",
			[]deps.Package{
				{ImportPath: ours + "a", Imports: []string{ours + "b", "grpc"}, Deps: []string{ours + "b", "grpc", "html/template"}},
				{ImportPath: ours + "b", Deps: []string{"go.opentelemetry.io/otel/sdkish"}},
				{ImportPath: ours + "internal/x", Imports: []string{sdk}, Deps: []string{sdk}},
			},
			nil,
		},
		{
			"a forbidden path beneath another package of ours",
			[]deps.Package{
				{ImportPath: ours + "a", Imports: []string{ours + "b"}, Deps: []string{ours + "b", sdk}},
				{ImportPath: ours + "b", Imports: []string{sdk}, Deps: []string{sdk}},
			},
			[]string{"a: depends on " + sdk + ", imported by " + ours + "b"},
		},
		{
			"a package of ours that isn't allowed",
			[]deps.Package{{ImportPath: ours + "b", Imports: []string{ours + "a"}, Deps: []string{ours + "a"}}},
			[]string{"b: depends on our a (allowed: none)"},
		},
		{
			"html/template, which grpc may bring, imported by us",
			[]deps.Package{{ImportPath: ours + "a", Imports: []string{"html/template"}, Deps: []string{"html/template"}}},
			[]string{"a: " + ours + "a imports html/template"},
		},
		{
			"a package without a rule",
			[]deps.Package{{ImportPath: ours + "c"}},
			[]string{"c: no rule says what it may import: add one to Rules"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, deps.Check(rules, tt.list)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckRequirementsNamesWhatIsExtraAndWhatIsMissing(t *testing.T) {
	dir := module(t, "module m\n\nrequire (\n\texample.com/a v1.0.0\n\texample.com/c v1.0.0\n\texample.com/d v1.0.0 // indirect\n)\n")
	got, err := deps.CheckRequirements(dir, []string{"example.com/a", "example.com/b"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"go.mod: requires example.com/c, which is not one of the module's requirements",
		"go.mod: doesn't require example.com/b directly",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestCheckNestedNamesAWrongPathAndAMissingReplace(t *testing.T) {
	root := t.TempDir()
	for _, tt := range []struct {
		name, gomod string
		want        []string
	}{
		{
			"good",
			"module " + deps.Module + "/x/y\n\nrequire " + deps.Module + " v0.0.0\n\nreplace " + deps.Module + " => ../../\n",
			nil,
		},
		{
			"wrong path",
			"module example.com/y\n",
			[]string{"x/y/go.mod: module example.com/y, not " + deps.Module + "/x/y"},
		},
		{
			"no replace",
			"module " + deps.Module + "/x/y\n\nrequire " + deps.Module + " v0.0.0\n",
			[]string{"x/y/go.mod: " + deps.Module + " isn't replaced by the folder in this repository"},
		},
		{
			"replaced by another folder",
			"module " + deps.Module + "/x/y\n\nrequire " + deps.Module + " v0.0.0\n\nreplace " + deps.Module + " => ../\n",
			[]string{"x/y/go.mod: " + deps.Module + " isn't replaced by the folder in this repository"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(root, "x", "y")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "go.mod"), tt.gomod)
			got, err := deps.CheckNested(root, dir)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestListReportsWhatTheGoCommandSays(t *testing.T) {
	dir := module(t, "module m\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "m.go"), "package m\n\nimport _ \"strings\"\n")
	list, err := deps.List(dir, "./...")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].ImportPath != "m" || !cmp.Equal(list[0].Imports, []string{"strings"}) || len(list[0].Deps) < 2 {
		t.Errorf("list = %+v", list)
	}
	if _, err := deps.List(dir, "./nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a folder that doesn't exist: err = %v", err)
	}
}

func module(t *testing.T, gomod string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), gomod)
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
