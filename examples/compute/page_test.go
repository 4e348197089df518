package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestThePageShowsTheControllersRegistryWhileItRuns(t *testing.T) {
	unset(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	events, stderr := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-debug-addr", "127.0.0.1:0"}, io.Discard, stderr)
		stderr.Close()
	}()
	lines := bufio.NewScanner(events)
	if !lines.Scan() {
		t.Fatal("nothing on stderr")
	}
	url, ok := strings.CutPrefix(lines.Text(), "compute: the debug page is at ")
	if !ok {
		t.Fatalf("stderr: %q", lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, events) }()

	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	get := func(query string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err, string(body))
		}
		return string(body)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !strings.Contains(get("?format=json"), "peek_response"); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the page never showed a peek_response")
		}
	}
	if page := get(""); !json.Valid([]byte(get("?format=json"))) || !strings.Contains(page, "ComputeResponse") {
		t.Errorf("page:\n%s", page)
	}

	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAPortThatIsTakenIsNamed(t *testing.T) {
	unset(t)
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = run(t.Context(), []string{"-debug-addr", listener.Addr().String()}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "compute: the debug page: ") || !strings.Contains(err.Error(), "-debug-addr") {
		t.Errorf("got %v", err)
	}
}

func TestTheRegistryIsExportedConnectionByConnection(t *testing.T) {
	unset(t)
	url, metrics := collect(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	if err := run(t.Context(), []string{"-duration", "500ms", "-export", "registry"}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	got := metrics()
	for _, name := range []string{"otelproto.client.message.wire_size", "otelproto.client.message.size"} {
		for _, key := range []string{"network.peer.port", "network.local.port", "otelproto.message.variant"} {
			if !slices.Contains(got[name], key) {
				t.Errorf("%s has attributes %v", name, got[name])
			}
		}
	}
	for _, name := range []string{"otelproto.connection.io", "otelproto.connection.overhead", "otelproto.connections"} {
		if _, ok := got[name]; !ok {
			t.Errorf("no %s in %v", name, got)
		}
	}
	if _, ok := got["otelproto.server.message.size"]; ok {
		t.Error("the replicas' sizes were exported too")
	}
}
