package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	header   = "package m\n\nimport \"testing\"\n\n"
	passing  = header + "func TestGood(t *testing.T) { t.Run(\"sub\", func(*testing.T) {}) }\n"
	failing  = header + "func TestBad(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"oh no\") }) }\n"
	skipping = header + "func TestTool(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Skip(\"no such tool\") }) }\n"
	panicky  = header + "func TestPanic(t *testing.T) { t.Log(\"about to\"); panic(\"oh dear\") }\n"
	broken   = "package m\n\nvar x int = \"\"\n"
)

func TestARunIsJudgedAndShown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		files  map[string]string
		strict bool
		ok     bool
		want   []string // in the output
		never  []string
	}{
		{
			"passed", map[string]string{"a_test.go": passing}, false, true,
			[]string{"ok  \tm\t", "1 packages, 2 tests passed, 0 failed, 0 skipped\n"},
			[]string{"TestGood"},
		},
		{
			"passed, strict", map[string]string{"a_test.go": passing}, true, true,
			[]string{"--- PASS: TestGood ", "ok  \tm\t"},
			[]string{"TestGood/sub", "=== RUN"},
		},
		{
			"failed", map[string]string{"a_test.go": failing, "b_test.go": passing}, false, false,
			[]string{"--- FAIL: TestBad ", "a_test.go:5: oh no", "FAIL\tm\t", "1 packages, 2 tests passed, 2 failed, 0 skipped\n"},
			[]string{"TestGood", "=== RUN"},
		},
		{
			"skipped on a laptop", map[string]string{"a_test.go": skipping}, false, true,
			[]string{"--- SKIP: TestTool/sub ", "a_test.go:5: no such tool", "1 tests passed, 0 failed, 1 skipped\n"},
			[]string{"with CI=true"},
		},
		{
			"skipped, strict", map[string]string{"a_test.go": skipping, "b_test.go": passing}, true, false,
			[]string{"with CI=true a skip is a failure:\n  TestTool/sub in m: a_test.go:5: no such tool\n"},
			nil,
		},
		{
			"panicked", map[string]string{"a_test.go": panicky}, false, false,
			[]string{"about to", "panic: oh dear", "FAIL\tm"},
			nil,
		},
		{
			"not built", map[string]string{"a.go": broken, "a_test.go": passing}, false, false,
			[]string{"./a.go:3:", "[build failed]"},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), "module m\n\ngo 1.26\n")
			for name, text := range tt.files {
				write(t, filepath.Join(dir, name), text)
			}
			var b strings.Builder
			ok, err := run(dir, []string{"-count=1", "./..."}, &b, tt.strict)
			if err != nil {
				t.Fatal(err)
			}
			if ok != tt.ok {
				t.Errorf("ok = %v, want %v", ok, tt.ok)
			}
			for _, s := range tt.want {
				if !strings.Contains(b.String(), s) {
					t.Errorf("the output doesn't say %q", s)
				}
			}
			for _, s := range tt.never {
				if strings.Contains(b.String(), s) {
					t.Errorf("the output says %q", s)
				}
			}
			if t.Failed() {
				t.Logf("output:\n%s", b.String())
			}
		})
	}
}

func TestAPackageThatMatchesNothingFails(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module m\n\ngo 1.26\n")
	var b strings.Builder
	if ok, _ := run(dir, []string{"./nowhere"}, &b, false); ok {
		t.Errorf("ok for a package that doesn't exist; output:\n%s", b.String())
	}
	if _, err := run(filepath.Join(dir, "nowhere"), nil, &b, false); err == nil {
		t.Error("no error for a folder that doesn't exist")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
