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

// translated gives the names in Prometheus of the metrics and attributes of docs/metrics.md.
func translated(t *testing.T) (metrics, labels map[string]bool) {
	t.Helper()

	metrics, labels = make(map[string]bool), map[string]bool{"le": true}

	for _, name := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(read(t, "metrics.md"), -1) {
		labels[strings.ReplaceAll(name[1], ".", "_")] = true
	}

	row := regexp.MustCompile("(?m)^\\| ((?:`[a-z_.]+`(?:, )?)+) \\|(.*)$")

	for _, m := range row.FindAllStringSubmatch(read(t, "metrics.md"), -1) {
		cells := strings.Split(m[2], "|")

		for name := range strings.SplitSeq(m[1], ", ") {
			name = strings.ReplaceAll(strings.Trim(name, "`"), ".", "_")

			if len(cells) < 4 { // a row of attributes
				continue
			}

			if unit := strings.Trim(cells[1], " `"); unit == "By" {
				name += "_bytes"
			} else if unit == "s" {
				name += "_seconds"
			}

			switch kind := strings.TrimSpace(cells[0]); {
			case strings.HasPrefix(kind, "histogram"):
				for _, part := range []string{"_bucket", "_count", "_sum"} {
					metrics[name+part] = true
				}
			case strings.HasPrefix(kind, "counter"):
				metrics[name+"_total"] = true
			default:
				metrics[name] = true
			}
		}
	}

	return metrics, labels
}

func TestQueriesUseTheNamesOfTheContract(t *testing.T) {
	metrics, labels := translated(t)
	word := regexp.MustCompile(`[a-z_$]*_[a-z_$]+`)
	functions := []string{"histogram_quantile", "group_left", "label_replace"}
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
