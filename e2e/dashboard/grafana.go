package dashboard

// Grafana gives the dashboard for Grafana, whose variables are the data source and the side.
func Grafana() ([]byte, error) {
	var (
		panels []any
		y      int
	)

	id := 0
	next := func() int { id++; return id }

	for _, r := range Rows() {
		panels = append(panels, map[string]any{
			"id": next(), "type": "row", "title": r.Title, "collapsed": false, "panels": []any{},
			"gridPos": map[string]int{"x": 0, "y": y, "w": 24, "h": 1},
		})
		y++

		for i, p := range r.Panels {
			width := 24 / min(len(r.Panels), 2)

			panels = append(panels, grafanaPanel(p, next(), map[string]int{"x": i % 2 * 12, "y": y, "w": width, "h": 8}))

			if i%2 == 1 || i == len(r.Panels)-1 {
				y += 8
			}
		}
	}

	return encode(map[string]any{
		"uid": "otelproto", "title": "gRPC messages by type", "tags": []string{"grpc", "opentelemetry"}, "schemaVersion": 39,
		"time": map[string]string{"from": "now-30m", "to": "now"}, "refresh": "10s", "panels": panels, "editable": true,
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			map[string]any{
				"name": "side", "label": "Side", "type": "custom", "query": "client,server",
				"current": map[string]string{"text": "client", "value": "client"},
				"options": []any{
					map[string]any{"text": "client", "value": "client", "selected": true},
					map[string]any{"text": "server", "value": "server", "selected": false},
				},
			},
		}},
	})
}

func grafanaPanel(p Panel, id int, pos map[string]int) map[string]any {
	source := map[string]string{"type": "prometheus", "uid": "${datasource}"}

	targets := make([]any, 0, len(p.Queries))

	for i, q := range p.Queries {
		targets = append(targets, map[string]any{
			"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "range": true,
			"expr": resolve(q.Expr, "${side}", "$__rate_interval"), "legendFormat": q.Legend,
		})
	}

	return map[string]any{
		"id": id, "type": "timeseries", "title": p.Title, "description": p.Description, "datasource": source, "gridPos": pos,
		"targets": targets,
		"fieldConfig": map[string]any{
			"defaults": map[string]any{
				"unit": p.Unit.grafana(), "min": 0, "custom": map[string]any{"fillOpacity": 10, "showPoints": "never"},
			},
			"overrides": []any{},
		},
		"options": map[string]any{
			"legend":  map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
		},
	}
}
