package dashboard

import "path/filepath"

//go:generate go run ./generate

// Files gives what stands in docs/dashboards, by path.
func Files() (map[string][]byte, error) {
	files := make(map[string][]byte)

	grafana, err := Grafana()
	if err != nil {
		return nil, err
	}

	files["grafana.json"], files["queries.md"] = grafana, Markdown()

	vmui, err := VMUI()
	if err != nil {
		return nil, err
	}

	for name, text := range vmui {
		files[filepath.Join("vmui", name)] = text
	}

	return files, nil
}
