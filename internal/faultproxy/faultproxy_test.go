package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/otelproto/otelproto-go/internal/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo serves one line of bytes back, on every connection.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return ln.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ping sends a byte and waits for it.
func ping(c net.Conn, patience time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

const patience = 20 * time.Second

func TestTCPForwardsStallsResetsAndComesBackOnTheSamePort(t *testing.T) {
	p, err := faultproxy.ListenTCP(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := dial(t, p.Addr())
	if err := ping(c, patience); err != nil {
		t.Fatalf("forwarding: %v", err)
	}
	p.Stall(true)
	var timeout net.Error
	if err := ping(c, 50*time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("stalled: got %v, want a timeout", err)
	}
	p.Stall(false)
	if _, err := io.ReadFull(c, make([]byte, 0)); err != nil {
		t.Fatal(err)
	}
	if err := ping(c, patience); err != nil {
		t.Fatalf("after the stall: %v", err)
	}
	p.Down()
	if err := ping(c, patience); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("down: got %v, want a reset", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); err == nil {
		t.Fatal("down, and accepts")
	}
	if err := p.Up(); err != nil {
		t.Fatal(err)
	}
	if err := ping(dial(t, p.Addr()), patience); err != nil {
		t.Fatalf("up again: %v", err)
	}
	p.HangUp(true)
	hungUp, err := net.Dial("tcp", p.Addr())
	if err == nil { // the reset may come while dialling
		defer func() { _ = hungUp.Close() }()
		err = ping(hungUp, patience)
	}
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("hangs up: got %v, want a reset", err)
	}
	p.HangUp(false)
	p.Mute(true)
	if err := ping(dial(t, p.Addr()), 50*time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("mute: got %v, want a timeout", err)
	}
	if got := p.Accepted(); got != 4 {
		t.Errorf("accepted %d connections, want 4", got)
	}
}

func TestHTTPAnswersForTheBackendOnConnectionsOpenedWhileSick(t *testing.T) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	backend := &http.Server{
		Protocols:         protocols,
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "end")
			w.WriteHeader(http.StatusOK)
			w.Header().Set("End", "reached")
		}),
	}
	go func() { _ = backend.Serve(ln) }()
	defer func() { _ = backend.Close() }()
	p, err := faultproxy.ListenHTTP(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	get := func(rt *http.Transport) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.Addr()+"/s/m", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return res.StatusCode, res.Trailer.Get("End")
	}
	p.Sicken(http.StatusServiceUnavailable)
	// One connection each: net/http would dial another beside one that is about to become idle.
	old := &http.Transport{Protocols: protocols, MaxConnsPerHost: 1}
	defer old.CloseIdleConnections()
	if status, _ := get(old); status != http.StatusServiceUnavailable {
		t.Fatalf("sick: status %d", status)
	}
	p.Sicken(0)
	if status, _ := get(old); status != http.StatusServiceUnavailable {
		t.Fatalf("healed, old connection: status %d", status)
	}
	fresh := &http.Transport{Protocols: protocols, MaxConnsPerHost: 1}
	defer fresh.CloseIdleConnections()
	if status, end := get(fresh); status != http.StatusOK || end != "reached" {
		t.Fatalf("healed, new connection: status %d, trailer %q", status, end)
	}
	if got := p.Accepted(); got != 2 {
		t.Errorf("accepted %d connections, want 2", got)
	}
}
