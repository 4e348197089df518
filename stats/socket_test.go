package stats_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	"github.com/otelproto/otelproto-go/stats"
)

// connect gives both ends of a counted connection.
func connect(t *testing.T, r *stats.Registry) (client, server net.Conn) {
	t.Helper()

	l := r.Listener(listen(t))
	defer l.Close()

	client, err := r.DialContext(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })

	return client, server
}

func TestASocketWithoutMessagesIsAConnectionToo(t *testing.T) {
	r := stats.NewRegistry()
	client, server := connect(t, r)

	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}

	if _, err := io.ReadFull(server, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}

	s := r.Snapshot()
	if len(s.Conns) != 2 || s.Sockets != (stats.Sockets{Read: 5, Written: 5}) || !s.Conns[0].HasSocket {
		t.Errorf("got %+v, %+v", s.Conns, s.Sockets)
	}

	if read, written := s.Sockets.Overhead(); read != 5 || written != 5 {
		t.Errorf("overhead %d, %d", read, written)
	}

	_ = client.Close()
	_ = client.Close()
	_ = server.Close()

	s = r.Snapshot()
	if len(s.Conns) != 0 || s.ClosedSockets != (stats.Sockets{Read: 5, Written: 5}) {
		t.Errorf("got %+v, %+v", s.Conns, s.ClosedSockets)
	}
}

func TestAConnOfASocketKeepsItOpen(t *testing.T) {
	r := stats.NewRegistry()
	client, _ := connect(t, r)
	c := r.Open(stats.ConnInfo{Client: true, Local: client.LocalAddr(), Remote: client.RemoteAddr(), Authority: "a"})
	record(t.Context(), c.Series(stats.Key{Type: "A"}), 1, 1)
	_ = client.Close()

	s := r.Snapshot()
	if len(s.Conns) != 2 || s.Conns[0].Info.Authority != "a" {
		t.Errorf("got %+v", s.Conns)
	}

	c.Close()

	if s := r.Snapshot(); len(s.Conns) != 1 || s.Closed[0].Messages != 1 {
		t.Errorf("got %+v", s.Conns)
	}

	// The address of a socket that is closed joins nothing.
	if again := r.Open(stats.ConnInfo{Local: client.LocalAddr()}); again.ID() == c.ID() {
		t.Error("joined a closed socket")
	}
}

// The remote address alone tells it too; equal text doesn't.
func TestASocketIsKnownByItsOwnAddresses(t *testing.T) {
	r := stats.NewRegistry()
	client, server := connect(t, r)
	ids := make(map[net.Conn]uint64)

	for _, c := range []net.Conn{client, server} {
		byLocal, byRemote := r.Open(stats.ConnInfo{Local: c.LocalAddr()}), r.Open(stats.ConnInfo{Remote: c.RemoteAddr()})
		if byLocal.ID() != byRemote.ID() {
			t.Errorf("%d by the local address, %d by the remote", byLocal.ID(), byRemote.ID())
		}

		ids[c] = byLocal.ID()
	}

	if ids[client] == ids[server] {
		t.Error("both ends are one connection")
	}

	own := *client.LocalAddr().(*net.TCPAddr)
	if c := r.Open(stats.ConnInfo{Local: &own}); c.ID() == ids[client] {
		t.Error("joined by equal text")
	}

	if n := r.NewReader().Read().Live; n != 3 {
		t.Errorf("%d live, expected 3", n)
	}
}

func TestConnectionsWhoseAddressesAreEqualValuesAreToldApart(t *testing.T) {
	r := stats.NewRegistry()
	pipe := bufconn.Listen(1 << 10)
	l := r.Listener(pipe)

	for i := range 3 {
		accepted := make(chan net.Conn, 1)

		go func() {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
			}

			accepted <- c
		}()

		raw, err := pipe.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		client, server := r.Wrap(raw, true), <-accepted

		if client.LocalAddr().String() != "bufconn" || client.LocalAddr().Network() != "bufconn" {
			t.Errorf("address %v", client.LocalAddr())
		}

		_ = r.Open(stats.ConnInfo{Client: true, Local: client.LocalAddr(), Remote: client.RemoteAddr()})
		_ = r.Open(stats.ConnInfo{Local: server.LocalAddr(), Remote: server.RemoteAddr()})

		if n := len(r.Snapshot().Conns); n != 2*(i+1) {
			t.Errorf("%d connections, expected %d", n, 2*(i+1))
		}

		t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	}

	_ = l.Close()
}

func TestASocketKeepsItsAbilities(t *testing.T) {
	r := stats.NewRegistry()
	client, server := connect(t, r)

	type socket interface {
		syscall.Conn
		CloseRead() error
		CloseWrite() error
		SetReadBuffer(n int) error
		SetWriteBuffer(n int) error
		File() (*os.File, error)
		NetConn() net.Conn
	}

	tcp, ok := client.(interface {
		socket
		io.ReaderFrom
		SetKeepAlive(on bool) error
		SetNoDelay(on bool) error
		SetLinger(seconds int) error
		SetKeepAliveConfig(config net.KeepAliveConfig) error
	})
	if !ok {
		t.Fatalf("%T lacks what a TCP socket can do", client)
	}

	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}

	if err := raw.Control(func(fd uintptr) {
		if _, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Error(err)
	}

	if err := errors.Join(tcp.SetKeepAlive(true), tcp.SetNoDelay(true), tcp.SetLinger(1), tcp.SetReadBuffer(1<<16),
		tcp.SetWriteBuffer(1<<16), tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true})); err != nil {
		t.Error(err)
	}

	if _, ok := tcp.NetConn().(*net.TCPConn); !ok {
		t.Errorf("beneath is a %T", tcp.NetConn())
	}

	if err := tcp.CloseWrite(); err != nil {
		t.Error(err)
	}

	if n, err := server.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v; expected the end", n, err)
	}

	var lc net.ListenConfig

	l, err := lc.Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	unix, err := r.DialContext(t.Context(), "unix:"+l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()

	if _, ok := unix.(socket); !ok {
		t.Errorf("%T lacks what a Unix socket can do", unix)
	}

	if _, ok := unix.(io.ReaderFrom); ok {
		t.Errorf("%T has what a Unix socket hasn't", unix)
	}

	here, there := net.Pipe()
	defer there.Close()

	pipe := r.Wrap(here, true)
	defer pipe.Close()

	if _, ok := pipe.(syscall.Conn); ok {
		t.Errorf("%T has a descriptor", pipe)
	}
}

func TestWhatIsWrittenInOtherWaysIsCountedToo(t *testing.T) {
	const size = 3<<20 + 17

	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		write func(t *testing.T, c net.Conn) error
		want  uint64
	}{
		"a file": {func(t *testing.T, c net.Conn) error {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()

			n, err := io.Copy(c, f)
			if n != size {
				t.Errorf("copied %d", n)
			}

			return err
		}, size},
		"a part of a file": {func(t *testing.T, c net.Conn) error {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()

			n, err := io.CopyN(c, f, 2<<20)
			if at, _ := f.Seek(0, io.SeekCurrent); n != 2<<20 || at != 2<<20 {
				t.Errorf("copied %d up to %d", n, at)
			}

			return err
		}, 2 << 20},
		"a reader": {func(_ *testing.T, c net.Conn) error {
			_, err := io.Copy(c, strings.NewReader(strings.Repeat("y", 100)))

			return err
		}, 100},
		"a reader that fails": {func(_ *testing.T, c net.Conn) error {
			_, err := io.Copy(c, io.MultiReader(strings.NewReader("abc"), failingReader{}))
			if err == nil {
				return errors.New("no error")
			}

			return nil
		}, 3},
		"buffers": {func(_ *testing.T, c net.Conn) error {
			_, err := (&net.Buffers{[]byte("abc"), []byte("defg")}).WriteTo(c)

			return err
		}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			r := stats.NewRegistry()
			client, server := connect(t, r)

			var (
				wg sync.WaitGroup
				n  int64
			)
			wg.Go(func() { n, _ = io.Copy(io.Discard, server) })

			if err := c.write(t, client); err != nil {
				t.Error(err)
			}

			_ = client.Close()
			wg.Wait()
			_ = server.Close()

			if got := r.Snapshot().Sockets; got.Written != c.want || got.Read != c.want || uint64(n) != c.want {
				t.Errorf("got %+v, and %d came; expected %d", got, n, c.want)
			}
		})
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("as asked") }

func TestADialThatFailsLeavesNothing(t *testing.T) {
	r := stats.NewRegistry()
	l := listen(t)
	_ = l.Close()

	if c, err := r.DialContext(t.Context(), l.Addr().String()); err == nil || c != nil {
		t.Errorf("got %v, %v", c, err)
	}

	if c, err := r.Listener(l).Accept(); err == nil || c != nil {
		t.Errorf("got %v, %v", c, err)
	}

	if n := len(r.Snapshot().Conns); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestSocketsBeyondTheLimitAreCountedTogether(t *testing.T) {
	collectErrors(t)

	r := stats.NewRegistry(stats.WithConnLimit(1))
	r.Open(stats.ConnInfo{})

	var ends []net.Conn

	for range 3 {
		client, server := connect(t, r)
		ends = append(ends, client, server)
		c := r.Open(stats.ConnInfo{Client: true, Local: client.LocalAddr()})
		record(t.Context(), c.Series(stats.Key{Type: "A"}), 1, 1)

		if _, err := client.Write(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}

		if _, err := io.ReadFull(server, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}

		c.Close()
	}

	other := r.Open(stats.ConnInfo{Client: true}) // without a socket
	record(t.Context(), other.Series(stats.Key{Type: "A"}), 1, 1_000)

	s := r.Snapshot()
	if len(s.Conns) != 4 || s.Sockets != (stats.Sockets{Read: 30, Written: 30, MessagesWritten: 18}) {
		t.Errorf("%d connections, %+v", len(s.Conns), s.Sockets)
	}

	if n := r.NewReader().Read().Live; n != 1+6+1 {
		t.Errorf("%d live, expected 8", n)
	}

	for _, c := range ends {
		_ = c.Close()
	}

	s = r.Snapshot()
	if len(s.Conns) != 2 || s.ClosedSockets != (stats.Sockets{Read: 30, Written: 30, MessagesWritten: 18}) {
		t.Errorf("%d connections, %+v", len(s.Conns), s.ClosedSockets)
	}
}

// Reads and closes at the same time: what a read got is counted wherever its connection is by then.
func TestSocketsCloseDuringSnapshots(t *testing.T) {
	r := stats.NewRegistry()
	rd := r.NewConnReader()

	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		want     uint64
		finished = make(chan struct{})
	)

	for range 4 {
		wg.Go(func() {
			for range 50 {
				here, there := net.Pipe()
				c := r.Wrap(here, true)

				var inner sync.WaitGroup
				inner.Go(func() {
					var read uint64

					for buffer := make([]byte, 100); ; {
						n, err := c.Read(buffer)
						read += uint64(n)

						if err != nil {
							break
						}
					}

					mu.Lock()
					defer mu.Unlock()

					want += read
				})

				for i := range 20 {
					_, _ = there.Write(make([]byte, i))
				}

				_ = c.Close()
				inner.Wait()
				_ = there.Close()
			}
		})
	}

	var seen uint64

	read := func() {
		for _, c := range rd.Read().Closed {
			seen += c.SocketRead
		}
	}

	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-finished:
				return
			default:
				read()
				r.Snapshot()
			}
		}
	})
	wg.Wait()
	close(finished)
	watcher.Wait()
	read()

	if got := r.Snapshot().ClosedSockets.Read; got != want || seen != want {
		t.Errorf("closed sockets read %d, the reader saw %d; expected %d", got, seen, want)
	}
}

// A socket that nobody closes is garbage some time, and its connection ends.
func TestAForgottenSocketEnds(t *testing.T) {
	r := stats.NewRegistry()
	here, there := net.Pipe()

	func() { _ = r.Wrap(here, true) }()

	until(t, "the connection has ended", func() bool {
		runtime.GC()

		return len(r.Snapshot().Conns) == 0
	})

	_ = here.Close()
	_ = there.Close()
}

// fakeConn writes whatever it is given. Each time it is asked, it gives another pointer, or the same to all: neither may confuse.
type fakeConn struct {
	net.Conn

	addr net.Addr
}

func (fakeConn) Write(p []byte) (int, error) { return len(p), nil }
func (fakeConn) Close() error                { return nil }
func (c fakeConn) LocalAddr() net.Addr       { return c.addr }
func (c fakeConn) RemoteAddr() net.Addr      { return c.addr }

func TestSocketsThatShareAnAddressPointerAreToldApart(t *testing.T) {
	for _, addr := range []net.Addr{
		&net.TCPAddr{Port: 1}, &net.UnixAddr{Name: "/s"}, &net.UDPAddr{Port: 1}, nil, (*net.TCPAddr)(nil), (*net.UnixAddr)(nil),
	} {
		r := stats.NewRegistry()
		one, two := r.Wrap(fakeConn{addr: addr}, true), r.Wrap(fakeConn{addr: addr}, true)
		c, d := r.Open(stats.ConnInfo{Local: one.LocalAddr()}), r.Open(stats.ConnInfo{Local: two.LocalAddr()})

		if c.ID() == d.ID() {
			t.Errorf("%T: both joined connection %d", addr, c.ID())
		}

		if addr != nil && one.LocalAddr() != nil && one.LocalAddr().String() != addr.String() {
			t.Errorf("%T: %s, expected %s", addr, one.LocalAddr(), addr)
		}

		_, _ = one.Close(), two.Close()
	}
}
