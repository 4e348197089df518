package dashboard

import (
	"regexp"
	"strings"
)

var (
	quotedName = regexp.MustCompile("`([a-z_.]+)`")
	tableRow   = regexp.MustCompile("(?m)^\\| ((?:`[a-z_.]+`(?:, )?)+) \\|(.*)$")
)

// Translate gives the names in Prometheus of the metrics and attributes in the tables of docs/metrics.md.
func Translate(page string) (metrics, labels map[string]bool) {
	metrics, labels = make(map[string]bool), map[string]bool{"le": true}

	for _, name := range quotedName.FindAllStringSubmatch(page, -1) {
		labels[strings.ReplaceAll(name[1], ".", "_")] = true
	}

	for _, m := range tableRow.FindAllStringSubmatch(page, -1) {
		cells := strings.Split(m[2], "|")
		if len(cells) < 4 { // a row of attributes
			continue
		}

		for name := range strings.SplitSeq(m[1], ", ") {
			for _, n := range translate(strings.Trim(name, "`"), strings.TrimSpace(cells[0]), strings.Trim(cells[1], " `")) {
				metrics[n] = true
			}
		}
	}

	return metrics, labels
}

// translate gives the names of one metric.
func translate(name, kind, unit string) []string {
	name = strings.ReplaceAll(name, ".", "_")

	switch unit {
	case "By":
		name += "_bytes"
	case "s":
		name += "_seconds"
	}

	switch {
	case strings.HasPrefix(kind, "histogram"):
		return []string{name + "_bucket", name + "_count", name + "_sum"}
	case strings.HasPrefix(kind, "counter"):
		return []string{name + "_total"}
	default:
		return []string{name}
	}
}
