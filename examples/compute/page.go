package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

// defaultDebugAddr is where the page is, unless that port is taken.
const defaultDebugAddr = "127.0.0.1:8080"

// A page is the debug page of a registry, on a server of its own.
type page struct {
	url    string
	server *http.Server
	done   chan error
}

// servePage serves the page. Where the default address is taken it goes to another port; an address that was asked for is an error
// then. Without an address it gives nil.
func servePage(ctx context.Context, address string, registry *stats.Registry) (*page, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // no page is no error, and closing it does nothing
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil && address == defaultDebugAddr {
		listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("compute: the debug page: %w; choose another address with -debug-addr", err)
	}
	p := &page{
		url: "http://" + listener.Addr().String() + "/",
		server: &http.Server{
			Handler:           statshttp.Handler(registry, statshttp.WithTitle("controller")),
			ReadHeaderTimeout: 10 * time.Second,
			WriteTimeout:      10 * time.Second,
		},
		done: make(chan error, 1),
	}
	go func() { p.done <- p.server.Serve(listener) }()
	return p, nil
}

// close ends the server at once.
func (p *page) close() error {
	if p == nil {
		return nil
	}
	err := p.server.Close()
	if served := <-p.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("compute: the debug page: %w", err)
	}
	return nil
}
