package stats_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// testTLS gives the settings of a server and of a client that trusts it.
func testTLS(tb testing.TB) (server, client *tls.Config) {
	tb.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"test", "other"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}

	pool := x509.NewCertPool()
	pool.AddCert(cert)

	server = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{"h2"}, MinVersion: tls.VersionTLS12,
	}

	return server, &tls.Config{RootCAs: pool, ServerName: "test", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
}

// until waits for a condition, without saying how long that takes.
func until(tb testing.TB, what string, done func() bool) {
	tb.Helper()

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()

	for deadline := time.Now().Add(20 * time.Second); !done(); <-tick.C {
		if time.Now().After(deadline) {
			tb.Fatalf("still not: %s", what)
		}
	}
}

// breakdown checks that what the snapshot says of sockets and messages adds up.
func breakdown(t *testing.T, s stats.Snapshot) {
	t.Helper()

	var messages stats.Sockets

	for _, r := range s.Total {
		if r.Key.Direction == stats.Receive {
			messages.Read += r.Wire.Sum
		} else {
			messages.Written += r.Wire.Sum
		}
	}

	read, written := s.Sockets.Overhead()
	if messages.Read+read != s.Sockets.Read || messages.Written+written != s.Sockets.Written {
		t.Errorf("messages %d + overhead %d = %d read, messages %d + overhead %d = %d written?",
			messages.Read, read, s.Sockets.Read, messages.Written, written, s.Sockets.Written)
	}

	for _, c := range s.Conns {
		own, overhead := c.Sockets(), stats.Sockets{}
		overhead.Read, overhead.Written = c.Overhead()

		if own.MessagesRead+overhead.Read != c.SocketRead || own.MessagesWritten+overhead.Written != c.SocketWritten {
			t.Errorf("connection %d: %+v, overhead %+v", c.ID, own, overhead)
		}
	}
}

// traffic is some RPCs of every kind.
func traffic(t *testing.T, c testproto.TestClient) {
	t.Helper()

	put := func(n int) *testproto.Command {
		return &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: bytes.Repeat([]byte("v"), n)}}}
	}

	for _, n := range []int{0, 10, 1_000, 100_000} {
		if _, err := c.Unary(t.Context(), put(n)); err != nil {
			t.Fatal(err)
		}

		if _, err := c.Unary(t.Context(), put(n), grpc.UseCompressor(gzip.Name)); err != nil {
			t.Fatal(err)
		}
	}

	s, err := c.Bidi(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for n := range 20 {
		if err := s.Send(put(n * 2_000)); err != nil {
			t.Fatal(err)
		}

		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}

	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}

	for err == nil {
		_, err = s.Recv()
	}
}

func TestSocketBytesAreThoseOfAnIndependentProxy(t *testing.T) {
	serverTLS, clientTLS := testTLS(t)

	for name, creds := range map[string][2]credentials.TransportCredentials{
		"plain": {insecure.NewCredentials(), insecure.NewCredentials()},
		"tls":   {credentials.NewTLS(serverTLS), credentials.NewTLS(clientTLS)},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := stats.NewRegistry(), stats.NewRegistry()
			l := listen(t)
			p := newProxy(t, l.Addr().String())
			pair := grpctest.New(t, grpctest.Options{
				Listener: server.Listener(l),
				Target:   "passthrough:///" + p.Addr().String(),
				Server: []grpc.ServerOption{
					grpc.Creds(creds[0]), grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(server))),
				},
				Dial: append(otelproto.DialOptions(otelproto.WithRegistry(client)),
					grpc.WithTransportCredentials(creds[1]), grpc.WithContextDialer(client.DialContext)),
			})

			traffic(t, pair.Client)

			// Quiet for a moment: what one end has written, the other has read, and the proxy has seen. A late ping may follow.
			var (
				c, s     stats.Snapshot
				up, down uint64
			)

			until(t, "both ends and the proxy have the same bytes", func() bool {
				c, s, up, down = client.Snapshot(), server.Snapshot(), p.up.Load(), p.down.Load()

				return c.Sockets.Written == s.Sockets.Read && c.Sockets.Read == s.Sockets.Written &&
					c.Sockets.Written == up && c.Sockets.Read == down
			})
			breakdown(t, c)
			breakdown(t, s)

			if len(c.Conns) != 1 || len(s.Conns) != 1 {
				t.Fatalf("%d and %d connections, expected one each", len(c.Conns), len(s.Conns))
			}

			if c.Conns[0].SocketWritten != up || s.Conns[0].SocketWritten != down {
				t.Errorf("client wrote %d, server %d; expected %d and %d", c.Conns[0].SocketWritten, s.Conns[0].SocketWritten, up, down)
			}

			if !c.Conns[0].Info.Client || c.Conns[0].Info.Authority == "" || s.Conns[0].Info.Client || len(c.Conns[0].Rows) == 0 {
				t.Errorf("client %+v, server %+v", c.Conns[0].Info, s.Conns[0].Info)
			}

			pair.Close()
			until(t, "no connection is open", func() bool {
				return len(client.Snapshot().Conns)+len(server.Snapshot().Conns) == 0
			})
			p.finish()

			c, s = client.Snapshot(), server.Snapshot()
			breakdown(t, c)
			breakdown(t, s)

			if c.Sockets.Written != p.up.Load() || s.Sockets.Written != p.down.Load() ||
				c.ClosedSockets != c.Sockets || s.ClosedSockets != s.Sockets {
				t.Errorf("closed: client %+v, server %+v; expected %d up, %d down", c.Sockets, s.Sockets, p.up.Load(), p.down.Load())
			}
		})
	}
}

// A second authority on one client connection.
func TestTwoAuthoritiesShareTheirSocketsBytes(t *testing.T) {
	registry := stats.NewRegistry()
	l := listen(t)
	p := newProxy(t, l.Addr().String())
	pair := grpctest.New(t, grpctest.Options{
		Listener: l, Target: "passthrough:///" + p.Addr().String(),
		Dial: append(otelproto.DialOptions(otelproto.WithRegistry(registry)), grpc.WithContextDialer(registry.DialContext)),
	})

	for _, authority := range []string{"one", "two", "one"} {
		_, err := pair.Client.Unary(t.Context(), &testproto.Command{Id: authority}, grpc.CallAuthority(authority))
		if err != nil {
			t.Fatal(err)
		}
	}

	var (
		s  stats.Snapshot
		up uint64
	)

	until(t, "the proxy has the same bytes", func() bool {
		s, up = registry.Snapshot(), p.up.Load()

		return s.Sockets.Written == up
	})
	breakdown(t, s)

	if len(s.Conns) != 1 || s.Conns[0].Info.Authority != "one" || s.Conns[0].SocketWritten != up {
		t.Fatalf("got %+v, expected one connection with %d bytes", s.Conns, up)
	}

	servers := make(map[string]uint64)
	for _, r := range registry.NewReader().Read().Sums {
		servers[r.Server] += r.Messages
	}

	if servers["one"] != 4 || servers["two"] != 2 {
		t.Errorf("got %v", servers)
	}

	pair.Close()
	until(t, "the connection is closed", func() bool { return len(registry.Snapshot().Conns) == 0 })
}

// Through ServeHTTP each request is a connection to grpc; it is one socket all the same.
func TestRequestsThroughServeHTTPShareTheirSocket(t *testing.T) {
	registry := stats.NewRegistry()
	serverTLS, clientTLS := testTLS(t)
	l := listen(t)
	p := newProxy(t, l.Addr().String())
	server := grpc.NewServer(grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(registry))))
	testproto.RegisterTestServer(server, grpctest.Echo{})

	web := &http.Server{Handler: server, TLSConfig: serverTLS, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)

	go func() { served <- web.ServeTLS(registry.Listener(l), "", "") }()

	conn, err := grpc.NewClient("passthrough:///"+p.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(clientTLS)))
	if err != nil {
		t.Fatal(err)
	}

	for range 3 {
		traffic(t, testproto.NewTestClient(conn))

		var (
			s  stats.Snapshot
			up uint64
		)

		until(t, "the proxy has the same bytes", func() bool {
			s, up = registry.Snapshot(), p.up.Load()

			return s.Sockets.Read == up
		})
		breakdown(t, s)

		if len(s.Conns) != 1 || s.Conns[0].SocketRead != up || len(s.Conns[0].Rows) == 0 {
			t.Fatalf("got %+v, expected one connection that has read %d", s.Conns, up)
		}
	}

	_ = conn.Close()
	_ = web.Shutdown(context.Background())

	if err := <-served; err != http.ErrServerClosed { //nolint:errorlint // it is that very value
		t.Error(err)
	}

	until(t, "the connection is closed", func() bool { return len(registry.Snapshot().Conns) == 0 })
	p.finish()
	breakdown(t, registry.Snapshot())

	if got := registry.Snapshot().Sockets; got.Read != p.up.Load() || got.Written != p.down.Load() {
		t.Errorf("got %+v, expected %d up, %d down", got, p.up.Load(), p.down.Load())
	}
}

func TestGRPCOverUnixSocketsIsCounted(t *testing.T) {
	for name, path := range map[string]string{
		"path": "unix://" + t.TempDir() + "/s", "abstract": fmt.Sprint("unix-abstract:otelproto-", time.Now().UnixNano()),
	} {
		t.Run(name, func(t *testing.T) {
			registry := stats.NewRegistry()
			address := strings.TrimPrefix(path, "unix://")

			if name, abstract := strings.CutPrefix(path, "unix-abstract:"); abstract {
				address = "@" + name
			}

			var lc net.ListenConfig

			l, err := lc.Listen(t.Context(), "unix", address)
			if err != nil {
				t.Fatal(err)
			}

			pair := grpctest.New(t, grpctest.Options{
				Listener: registry.Listener(l), Target: path,
				Server: []grpc.ServerOption{grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(registry)))},
				Dial:   append(otelproto.DialOptions(otelproto.WithRegistry(registry)), grpc.WithContextDialer(registry.DialContext)),
			})
			traffic(t, pair.Client)
			var s stats.Snapshot

			until(t, "all is read", func() bool {
				s = registry.Snapshot()

				return s.Sockets.Read == s.Sockets.Written
			})
			breakdown(t, s)

			if len(s.Conns) != 2 {
				t.Errorf("got %+v", s.Conns)
			}

			for _, c := range s.Conns {
				if c.SocketRead == 0 || len(c.Rows) == 0 {
					t.Errorf("got %+v", c)
				}
			}

			pair.Close()
			until(t, "the connections are closed", func() bool { return len(registry.Snapshot().Conns) == 0 })
		})
	}
}
