package stats

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Listener counts the bytes of each connection that l accepts, beneath TLS and HTTP/2, from its first to its last: hand it to
// grpc.Server.Serve. Each is a live connection of the registry from Accept to Close, and a handler that records into the same
// registry joins it by its addresses.
//
// A connection keeps what a TCP or Unix socket can do: SyscallConn, CloseRead, CloseWrite, File, ReadFrom and the socket
// options. What is read or written through SyscallConn or File is not counted. LocalAddr and RemoteAddr give the socket's own
// copies of the addresses, by which it is known.
func (r *Registry) Listener(l net.Listener) net.Listener { return &listener{l, r} }

// DialContext connects to addr and counts the bytes of the connection, as [Registry.Listener] does: hand it to
// grpc.WithContextDialer. addr is what grpc passes: host:port, unix:path, unix:///path, or the name of an abstract Unix
// socket after a zero byte. As with grpc's own dialer, TCP keepalive has the operating system's times. With a dialer of its
// own, grpc doesn't look for a proxy in the environment.
func (r *Registry) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	network := "tcp"

	switch path, unix := strings.CutPrefix(addr, "unix:"); {
	case unix:
		network, addr = "unix", strings.TrimPrefix(path, "//")
	case strings.HasPrefix(addr, "\x00"):
		network = "unix"
	}

	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}}

	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}

	return r.Wrap(c, true), nil
}

// Wrap counts the bytes of a connection that was made in another way, as [Registry.Listener] does; client is true where this
// process dialled it.
func (r *Registry) Wrap(c net.Conn, client bool) net.Conn {
	s := &socketConn{Conn: c, local: ownAddr(c.LocalAddr()), remote: ownAddr(c.RemoteAddr())}
	s.conn = r.openSocket(ConnInfo{Client: client, Local: s.local, Remote: s.remote})
	s.counts = s.conn.c
	// The descriptor of a socket that nobody closes is closed when it is garbage. So is its connection.
	s.cleanup = runtime.AddCleanup(s, closeSocket, socketEnd{s.conn, s.local, s.remote})

	switch c := c.(type) {
	case *net.TCPConn:
		return &tcpConn{streamConn{s, c}, c}
	case *net.UnixConn:
		return &streamConn{s, c}
	case syscall.Conn:
		return &syscallConn{s, c}
	default:
		return s
	}
}

type listener struct {
	net.Listener

	registry *Registry
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	return l.registry.Wrap(c, false), nil
}

// socketAddr makes an address that others may share one that is known by its pointer.
type socketAddr struct{ net.Addr }

// ownAddr gives a copy of an address that no other socket has.
func ownAddr(a net.Addr) net.Addr {
	switch a := a.(type) {
	case nil:
		return nil
	case *net.TCPAddr:
		if a == nil {
			return nil
		}

		own := *a

		return &own
	case *net.UnixAddr:
		if a == nil {
			return nil
		}

		own := *a

		return &own
	default:
		return &socketAddr{a}
	}
}

// socketConn counts the bytes of a connection.
//
// The connection is not embedded by its own type, which would bring methods along that pass the counters by, among them the
// unexported one behind net.Buffers.
type socketConn struct {
	net.Conn

	local, remote net.Addr
	conn          *Conn
	counts        *connection
	closed        atomic.Bool
	cleanup       runtime.Cleanup
}

// Read reads and counts.
func (c *socketConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.counts.count(Receive, n)

	return n, err
}

// Write writes and counts.
func (c *socketConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.counts.count(Transmit, n)

	return n, err
}

// Close closes the connection, and the registry's with it once all its Conns are closed.
func (c *socketConn) Close() error {
	err := c.Conn.Close()

	if c.closed.CompareAndSwap(false, true) {
		c.cleanup.Stop()
		closeSocket(socketEnd{c.conn, c.local, c.remote})
	}

	return err
}

// LocalAddr gives this end, always the same pointer.
func (c *socketConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr gives the other end, always the same pointer.
func (c *socketConn) RemoteAddr() net.Addr { return c.remote }

// NetConn gives the connection beneath. What is read or written on it is not counted.
func (c *socketConn) NetConn() net.Conn { return c.Conn }

type socketEnd struct {
	conn          *Conn
	local, remote net.Addr
}

func closeSocket(s socketEnd) { s.conn.c.registry.closeSocket(s.conn, s.local, s.remote) }

// syscallConn is a connection that gives access to its descriptor.
type syscallConn struct {
	*socketConn

	raw syscall.Conn
}

// SyscallConn gives access to the descriptor.
func (c *syscallConn) SyscallConn() (syscall.RawConn, error) { return rawOf(c.raw) }

// rawConn hides what else package net's raw connections can do: by it, os.File.WriteTo would write to the socket past us.
type rawConn struct{ syscall.RawConn }

func rawOf(c syscall.Conn) (syscall.RawConn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}

	return rawConn{raw}, nil
}

// stream is what TCP and Unix sockets can do.
type stream interface {
	syscall.Conn
	CloseRead() error
	CloseWrite() error
	SetReadBuffer(n int) error
	SetWriteBuffer(n int) error
	File() (*os.File, error)
}

// streamConn is a Unix socket, or what a TCP socket shares with it.
type streamConn struct {
	*socketConn
	stream
}

// SyscallConn gives access to the descriptor.
func (c *streamConn) SyscallConn() (syscall.RawConn, error) { return rawOf(c.stream) }

// tcpConn is a TCP socket.
type tcpConn struct {
	streamConn

	tcp *net.TCPConn
}

// copyChunk is how many bytes ReadFrom moves between two additions to the counter.
const copyChunk = 1 << 20

// ReadFrom writes what it reads from r, without a copy in this process where the operating system can do that.
func (c *tcpConn) ReadFrom(r io.Reader) (written int64, err error) {
	// The system call is taken for a file or socket behind at most one LimitedReader, so ours must not stand before another.
	outer, limited := r.(*io.LimitedReader)

	for {
		chunk := io.LimitedReader{R: r, N: copyChunk}
		if limited {
			chunk.R, chunk.N = outer.R, min(outer.N, copyChunk)
		}

		wanted := chunk.N
		n, err := c.tcp.ReadFrom(&chunk)
		c.counts.count(Transmit, int(n))

		written += n
		if limited {
			outer.N -= wanted - chunk.N
		}

		if err != nil || chunk.N > 0 || n == 0 {
			return written, err
		}
	}
}

// SetKeepAlive is [net.TCPConn.SetKeepAlive].
func (c *tcpConn) SetKeepAlive(on bool) error { return c.tcp.SetKeepAlive(on) }

// SetKeepAlivePeriod is [net.TCPConn.SetKeepAlivePeriod].
func (c *tcpConn) SetKeepAlivePeriod(d time.Duration) error { return c.tcp.SetKeepAlivePeriod(d) }

// SetKeepAliveConfig is [net.TCPConn.SetKeepAliveConfig].
func (c *tcpConn) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	return c.tcp.SetKeepAliveConfig(config)
}

// SetLinger is [net.TCPConn.SetLinger].
func (c *tcpConn) SetLinger(seconds int) error { return c.tcp.SetLinger(seconds) }

// SetNoDelay is [net.TCPConn.SetNoDelay].
func (c *tcpConn) SetNoDelay(on bool) error { return c.tcp.SetNoDelay(on) }
