package dashboard

import (
	"encoding/json"
	"strings"
)

// window is the range of a rate in vmui, which has no variables.
const window = "1m"

// resolve puts the variables' values into a query.
func resolve(expr, side, window string) string {
	return strings.NewReplacer("$side", side, "$window", window).Replace(expr)
}

// VMUI gives the dashboards for vmui by file name. It has no variables, so clients and servers have a dashboard each.
func VMUI() (map[string][]byte, error) {
	files := make(map[string][]byte)

	for name, d := range map[string]vmuiDashboard{
		"1-client.json":            vmuiOf("gRPC clients", "client", func(r Row) bool { return r.Side }),
		"2-server.json":            vmuiOf("gRPC servers", "server", func(r Row) bool { return r.Side }),
		"3-channel-broadcast.json": vmuiOf("Connections, channels, broadcasts", "", func(r Row) bool { return !r.Side }),
	} {
		text, err := encode(d)
		if err != nil {
			return nil, err
		}

		files[name] = text
	}

	return files, nil
}

type vmuiDashboard struct {
	Title string    `json:"title"`
	Rows  []vmuiRow `json:"rows"`
}

type vmuiRow struct {
	Title  string      `json:"title"`
	Panels []vmuiPanel `json:"panels"`
}

type vmuiPanel struct {
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Unit        string   `json:"unit,omitempty"`
	Expr        []string `json:"expr"`
	Alias       []string `json:"alias"`
	ShowLegend  bool     `json:"showLegend"`
	Width       int      `json:"width"`
}

func vmuiOf(title, side string, has func(Row) bool) vmuiDashboard {
	d := vmuiDashboard{Title: title}

	for _, r := range Rows() {
		if !has(r) {
			continue
		}

		row := vmuiRow{Title: r.Title}

		for _, p := range r.Panels {
			panel := vmuiPanel{
				Title: p.Title, Description: p.Description, Unit: string(p.Unit), ShowLegend: true,
				Width: 12 / min(len(r.Panels), 2), // of 12 columns
			}
			for _, q := range p.Queries {
				panel.Expr = append(panel.Expr, resolve(q.Expr, side, window))
				panel.Alias = append(panel.Alias, q.Legend)
			}

			row.Panels = append(row.Panels, panel)
		}

		d.Rows = append(d.Rows, row)
	}

	return d
}

func encode(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")

	return append(text, '\n'), err
}
