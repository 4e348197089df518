package faultproxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"
)

// HTTP is an HTTP/2 proxy without TLS on a loopback port.
type HTTP struct {
	addr     string
	accepted atomic.Int64
	served   atomic.Int64
	status   atomic.Int64 // for connections to come; 0: forward
	server   *http.Server
	client   *http.Transport
	done     chan struct{}
}

// connState is what one client connection gets, for good.
type connState struct{ status atomic.Int64 }

type connKey struct{}

// ListenHTTP starts a proxy to backend, which speaks HTTP/2 without TLS.
func ListenHTTP(backend string) (*HTTP, error) {
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: listen: %w", err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	p := &HTTP{
		addr:   ln.Addr().String(),
		client: &http.Transport{Protocols: protocols},
		done:   make(chan struct{}),
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: backend}) },
		Transport:     p.client,
		FlushInterval: -1, // streams
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.server = &http.Server{
		Protocols:         protocols,
		ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			p.accepted.Add(1)
			s := &connState{}
			s.status.Store(p.status.Load())
			return context.WithValue(ctx, connKey{}, s)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.served.Add(1)
			s, ok := r.Context().Value(connKey{}).(*connState)
			if !ok {
				panic("bug: request without a connection")
			}
			if status := s.status.Load(); status != 0 {
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(int(status))
				_, _ = w.Write([]byte("<html>no backend</html>"))
				return
			}
			forward.ServeHTTP(w, r)
		}),
	}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(ln)
	}()
	return p, nil
}

// Addr is the address to dial.
func (p *HTTP) Addr() string { return p.addr }

// Accepted counts connections since the start.
func (p *HTTP) Accepted() int { return int(p.accepted.Load()) }

// Served counts requests since the start.
func (p *HTTP) Served() int { return int(p.served.Load()) }

// Sicken makes connections that are accepted from now on answer every request
// with the HTTP status, for as long as they stand; 0 makes them forward.
func (p *HTTP) Sicken(status int) { p.status.Store(int64(status)) }

// Close ends everything and waits for the listener.
func (p *HTTP) Close() {
	_ = p.server.Close()
	p.client.CloseIdleConnections()
	<-p.done
}
