package dashboard_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/otelproto/otelproto-go/e2e/dashboard"
	"github.com/otelproto/otelproto-go/e2e/pipeline"
)

func read(t *testing.T, name ...string) string {
	t.Helper()

	root, err := pipeline.Root()
	if err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(filepath.Join(append([]string{root, "docs"}, name...)...))
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func TestFilesAreWhatTheSourceGives(t *testing.T) {
	files, err := dashboard.Files()
	if err != nil {
		t.Fatal(err)
	}

	for name, text := range files {
		if d := cmp.Diff(string(text), read(t, "dashboards", name)); d != "" {
			t.Errorf("docs/dashboards/%s is stale, run go generate in e2e/dashboard (-source +file):\n%s", name, d)
		}
	}
}

func TestQueriesUseTheNamesOfTheContract(t *testing.T) {
	metrics, labels := dashboard.Translate(read(t, "metrics.md"))
	word := regexp.MustCompile(`[a-z_$]*_[a-z_$]+`)
	functions := []string{"histogram_quantile", "group_left", "label_replace", "avg_over_time"}
	used := make(map[string]bool)

	for _, r := range dashboard.Rows() {
		for _, p := range r.Panels {
			for _, q := range p.Queries {
				for _, side := range []string{"client", "server"} {
					text := strings.ReplaceAll(q.Expr+" "+q.Legend, "$side", side)

					for _, w := range word.FindAllString(text, -1) {
						if !metrics[w] && !labels[w] && !slices.Contains(functions, w) {
							t.Errorf("%s: %s: docs/metrics.md has no %s", r.Title, p.Title, w)
						}

						used[w] = true
					}
				}
			}
		}
	}

	for m := range metrics {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m, "_bucket"), "_count"), "_sum")
		if !used[m] && !used[base+"_bucket"] && !used[base+"_sum"] && !used[base+"_count"] {
			t.Errorf("no panel shows %s", m)
		}
	}
}
