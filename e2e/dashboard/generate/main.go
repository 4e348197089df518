// Command generate writes docs/dashboards.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/otelproto/otelproto-go/e2e/dashboard"
	"github.com/otelproto/otelproto-go/e2e/pipeline"
)

func main() {
	if err := write(); err != nil {
		log.Fatal(err)
	}
}

func write() error {
	root, err := pipeline.Root()
	if err != nil {
		return err
	}

	files, err := dashboard.Files()
	if err != nil {
		return err
	}

	for name, text := range files {
		path := filepath.Join(root, "docs", "dashboards", name)

		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}

		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}

	return nil
}
