package stats_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy passes TCP connections on and counts their bytes, independently of what is tested.
type proxy struct {
	net.Listener

	target string
	// up counts what clients sent, down what servers sent.
	up, down atomic.Uint64
	conns    sync.WaitGroup
	mu       sync.Mutex
	open     []net.Conn
}

func listen(tb testing.TB) net.Listener {
	tb.Helper()

	var lc net.ListenConfig

	l, err := lc.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}

	return l
}

func newProxy(tb testing.TB, target string) *proxy {
	tb.Helper()

	p := &proxy{Listener: listen(tb), target: target}

	p.conns.Go(func() {
		for {
			c, err := p.Accept()
			if err != nil {
				return
			}

			var d net.Dialer

			s, err := d.DialContext(tb.Context(), "tcp", p.target)
			if err != nil {
				_ = c.Close()

				continue
			}

			p.mu.Lock()
			p.open = append(p.open, c, s)
			p.mu.Unlock()

			p.conns.Go(func() { pass(s, c, &p.up) })
			p.conns.Go(func() { pass(c, s, &p.down) })
		}
	})
	tb.Cleanup(p.stop)

	return p
}

func pass(to, from net.Conn, n *atomic.Uint64) {
	buffer := make([]byte, 1<<16)

	for {
		read, err := from.Read(buffer)
		n.Add(uint64(read))
		_, _ = to.Write(buffer[:read]) // it counts what came, whether it can be passed on or not

		if err != nil {
			_ = to.(*net.TCPConn).CloseWrite()

			return
		}
	}
}

// finish waits for the end of connections that both ends have closed.
func (p *proxy) finish() {
	_ = p.Close()
	p.conns.Wait()
}

func (p *proxy) stop() {
	_ = p.Close()

	p.mu.Lock()
	for _, c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()

	p.conns.Wait()
}
