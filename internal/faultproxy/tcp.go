package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// TCP is a proxy on a loopback port.
type TCP struct {
	addr     string
	accepted atomic.Int64
	wg       sync.WaitGroup

	// mu guards what follows. It is not held while reading or writing.
	mu      sync.Mutex
	backend string
	ln      net.Listener
	mute    bool
	hangUp  bool
	flow    chan struct{} // closed while bytes flow
	conns   map[net.Conn]struct{}
	closed  bool
}

// ListenTCP starts a proxy to backend.
func ListenTCP(backend string) (*TCP, error) {
	p := &TCP{addr: "127.0.0.1:0", backend: backend, flow: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	close(p.flow)
	if err := p.Up(); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr is the address to dial; it stays the same over Down and Up.
func (p *TCP) Addr() string { return p.addr }

// Accepted counts connections since the start.
func (p *TCP) Accepted() int { return int(p.accepted.Load()) }

// SetBackend sets where connections go that are accepted from now on.
func (p *TCP) SetBackend(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend = addr
}

// Mute makes the proxy hold connections that it accepts from now on, without
// a backend and without a byte.
func (p *TCP) Mute(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = on
}

// HangUp makes the proxy reset connections that it accepts from now on.
func (p *TCP) HangUp(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangUp = on
}

// Stall stops, or lets go on, the bytes of all connections.
func (p *TCP) Stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flow:
		if on {
			p.flow = make(chan struct{})
		}
	default:
		if !on {
			close(p.flow)
		}
	}
}

// Up listens, on the same port as before. It fails if another socket has got
// the port in the meantime, which the kernel gives to outgoing connections
// too: for a target that comes and goes a lot HangUp is better.
func (p *TCP) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil || p.closed {
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("faultproxy: listen: %w", err)
	}
	p.ln = ln
	p.addr = ln.Addr().String()
	p.wg.Add(1)
	go p.accept(ln)
	return nil
}

// Down refuses connections and resets those that stand.
func (p *TCP) Down() {
	p.mu.Lock()
	ln := p.ln
	p.ln = nil
	p.mu.Unlock()
	if ln != nil {
		_ = ln.Close()
	}
	p.Reset()
}

// Reset ends the connections that stand with a TCP reset.
func (p *TCP) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// Close ends everything and waits for it.
func (p *TCP) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Down()
	p.Stall(false)
	p.wg.Wait()
}

func (p *TCP) accept(ln net.Listener) {
	defer p.wg.Done()
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		p.wg.Add(1)
		go p.serve(c)
	}
}

// add takes a connection under control, unless the proxy is down.
func (p *TCP) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln == nil || p.hangUp {
		reset(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *TCP) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

func (p *TCP) serve(client net.Conn) {
	defer p.wg.Done()
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	p.mu.Lock()
	backend, mute := p.backend, p.mute
	p.mu.Unlock()
	if mute {
		// Reads so that it notices when the client hangs up.
		buf := make([]byte, 1024)
		for {
			if _, err := client.Read(buf); err != nil {
				return
			}
		}
	}
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", backend)
	if err != nil {
		return
	}
	if !p.add(server) {
		return
	}
	defer p.remove(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.pump(server, client)
	}()
	p.pump(client, server)
	<-done
}

// pump copies until an end is reached, and then hangs up on both.
func (p *TCP) pump(dst, src net.Conn) {
	defer func() { _ = errors.Join(src.Close(), dst.Close()) }()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		p.mu.Lock()
		flow := p.flow
		p.mu.Unlock()
		<-flow
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
