package dashboard

import (
	"fmt"
	"strings"
)

// Markdown lists every panel with its queries.
func Markdown() []byte {
	var b strings.Builder

	b.WriteString("# Queries behind the panels\n\n" +
		"Generated from `e2e/dashboard`. `$side` stands for `client` or `server`, `$window` for the range of a rate, such as `1m`.\n")

	for _, r := range Rows() {
		fmt.Fprintf(&b, "\n## %s\n", r.Title)

		for _, p := range r.Panels {
			fmt.Fprintf(&b, "\n**%s.** %s\n", p.Title, p.Description)

			for _, q := range p.Queries {
				fmt.Fprintf(&b, "\n```promql\n%s\n```\n", q.Expr)
			}
		}
	}

	return []byte(b.String())
}
