package otelproto_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBothSidesCountWhatGRPCCounts(t *testing.T) {
	for name, opts := range map[string][]grpc.CallOption{"plain": nil, "gzip": {useGzip()}} {
		t.Run(name, func(t *testing.T) {
			reg := stats.NewRegistry()

			var atClient, atServer witness

			p := grpctest.New(t, grpctest.Options{
				Server: []grpc.ServerOption{
					grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(reg))), grpc.StatsHandler(&atServer),
				},
				Dial: append(otelproto.DialOptions(otelproto.WithRegistry(reg)), grpc.WithStatsHandler(&atClient)),
			})
			workload(t, p.Client, opts...)
			p.Close()

			s := reg.Snapshot()
			client, server := rowsOf(s.Total, true), rowsOf(s.Total, false)
			diff(t, "client and grpc", client, atClient.rows)
			diff(t, "server and grpc", server, atServer.rows)
			diff(t, "server and client", mirrored(server), client)

			empty := client[stats.Key{
				Method: "otelproto.test.Test/Unary", Direction: stats.Transmit, Type: "otelproto.test.Command",
			}]
			if want := (counts{Messages: 2, Wire: 10, Size: 0}); empty != want {
				t.Errorf("two empty messages: %+v, expected %+v", empty, want)
			}
		})
	}
}

func TestLiveConnectionsReturnToZeroAndTotalsStay(t *testing.T) {
	reg := stats.NewRegistry()
	server := otelproto.NewServerHandler(otelproto.WithRegistry(reg))
	dial := otelproto.DialOptions(otelproto.WithRegistry(reg))

	p := grpctest.New(t, grpctest.Options{Server: []grpc.ServerOption{grpc.StatsHandler(server)}, Dial: dial})

	if _, err := p.Client.Unary(t.Context(), &testproto.Command{}); err != nil {
		t.Fatal(err)
	}

	live := reg.Snapshot().Conns
	if len(live) != 2 {
		t.Fatalf("%d live connections, expected the client's and the server's", len(live))
	}

	for _, c := range live {
		switch {
		case c.Info.Client && (c.Info.Authority != p.Addr || c.Info.Remote.String() != p.Addr):
			t.Errorf("client's connection: %+v", c.Info)
		case !c.Info.Client && (c.Info.Authority != "" || c.Info.Local.String() != p.Addr):
			t.Errorf("server's connection: %+v", c.Info)
		}
	}

	p.Close()

	s := reg.Snapshot()
	if len(s.Conns) != 0 {
		t.Errorf("live after the end: %+v", s.Conns)
	}

	for _, r := range s.Closed {
		if r.Messages != 1 {
			t.Errorf("closed: %+v", r)
		}
	}

	diff(t, "rows", len(s.Closed), 4)
}

func TestThreeThousandConnectionsComeAndGo(t *testing.T) {
	const n = 3_000

	reg := stats.NewRegistry()
	lis := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(reg))))
	testproto.RegisterTestServer(server, grpctest.Echo{})

	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()

	client := otelproto.NewClientHandler(otelproto.WithRegistry(reg))
	call := func() {
		conn, err := grpc.NewClient("passthrough:///pipe", grpc.WithStatsHandler(client),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Error(err)

			return
		}
		defer conn.Close()

		if _, err := testproto.NewTestClient(conn).Unary(t.Context(), &testproto.Command{Id: "id"}); err != nil {
			t.Error(err)
		}
	}

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range n / 4 {
				call()
			}
		})
	}
	wg.Wait()
	server.Stop()

	if err := <-served; err != nil {
		t.Error(err)
	}

	s := reg.Snapshot()
	if len(s.Conns) != 0 {
		t.Errorf("%d live connections", len(s.Conns))
	}

	for _, r := range s.Total {
		if r.Messages != n {
			t.Errorf("%+v: %d messages, expected %d", r.Key, r.Messages, n)
		}
	}

	diff(t, "rows", len(s.Total), 4)
}

func TestHostileMethodNamesLeaveNothing(t *testing.T) {
	reg := stats.NewRegistry()
	p := grpctest.New(t, grpctest.Options{
		Server: []grpc.ServerOption{grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(reg)))},
	})

	for i := range 10_000 {
		err := p.Conn.Invoke(t.Context(), fmt.Sprintf("/hostile.Service%d/Method", i), &testproto.Command{}, &testproto.Reply{})
		if status.Code(err) != codes.Unimplemented {
			t.Fatal(err)
		}
	}

	s := reg.Snapshot()
	if len(s.Total) != 0 {
		t.Errorf("series: %+v", s.Total)
	}

	diff(t, "live connections", len(s.Conns), 1)
	p.Close()
	diff(t, "live connections at the end", len(reg.Snapshot().Conns), 0)
}

func TestUnknownServiceHandlerFoldsMethodsIntoOther(t *testing.T) {
	reports := catchReports(t)
	reg := stats.NewRegistry()
	p := grpctest.New(t, grpctest.Options{Server: []grpc.ServerOption{
		grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(reg), otelproto.WithKnownMethods(func(m string) bool {
			return m == "/proxied.Service/Known" || m == testproto.Test_Bidi_FullMethodName
		}))),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			m := &testproto.Command{}
			if err := s.RecvMsg(m); err != nil {
				return err
			}

			return s.SendMsg(&testproto.Reply{})
		}),
	}})

	for i := range 1_500 {
		err := p.Conn.Invoke(t.Context(), fmt.Sprintf("/hostile.Service%d/Method", i), &testproto.Command{}, &testproto.Reply{})
		if err != nil {
			t.Fatal(err)
		}
	}

	if err := p.Conn.Invoke(t.Context(), "/proxied.Service/Known", &testproto.Command{}, &testproto.Reply{}); err != nil {
		t.Fatal(err)
	}

	workload(t, p.Client)
	p.Close()

	methods := make(map[string]uint64)
	for _, r := range reg.Snapshot().Total {
		methods[r.Key.Method] += r.Messages
	}

	diff(t, "messages by method", methods, map[string]uint64{
		"_OTHER": 3_000, "proxied.Service/Known": 2, "otelproto.test.Test/Bidi": 22,
		"otelproto.test.Test/Unary": 22, "otelproto.test.Test/ClientStream": 12, "otelproto.test.Test/ServerStream": 4,
	})

	diff(t, "reports", reports.all(), []string{})
}

func TestLinkedInMethodsAreKnownByDefault(t *testing.T) {
	reg := stats.NewRegistry()
	p := grpctest.New(t, grpctest.Options{Server: []grpc.ServerOption{
		grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(reg))),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return nil }),
	}})

	s, err := p.Client.Bidi(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if err := s.Send(&testproto.Command{}); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}

	for _, r := range reg.Snapshot().Total {
		diff(t, "method", r.Key.Method, "otelproto.test.Test/Bidi")
	}

	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}

	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func TestServeHTTPHasOneConnectionForEachPeer(t *testing.T) {
	reg := stats.NewRegistry()
	server := grpc.NewServer(grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(reg))))
	testproto.RegisterTestServer(server, grpctest.Echo{})

	for name, next := range map[string]func(http.Handler) http.Handler{
		"with a local address": func(h http.Handler) http.Handler { return h },
		"without": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, nil)))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := reg.Snapshot()

			web := httptest.NewUnstartedServer(next(server))
			web.EnableHTTP2 = true
			web.StartTLS()
			defer web.Close()

			conn, err := grpc.NewClient(web.Listener.Addr().String(),
				grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()

			client := testproto.NewTestClient(conn)

			var streams []grpc.BidiStreamingClient[testproto.Command, testproto.Reply]

			for range 3 {
				s, err := client.Bidi(t.Context())
				if err != nil {
					t.Fatal(err)
				}

				if err := s.Send(&testproto.Command{}); err != nil {
					t.Fatal(err)
				}

				if _, err := s.Recv(); err != nil {
					t.Fatal(err)
				}

				streams = append(streams, s)
			}

			live := reg.Snapshot().Conns
			if len(live) != 1 {
				t.Fatalf("%d live connections with three streams of one peer, expected 1", len(live))
			}

			eventually(t, "three messages each way", func() bool { // an answer is counted after it was sent
				rows := reg.Snapshot().Conns[0].Rows

				return len(rows) == 2 && rows[0].Messages == 3 && rows[1].Messages == 3
			})

			for _, s := range streams {
				if err := s.CloseSend(); err != nil {
					t.Fatal(err)
				}

				if _, err := s.Recv(); !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}

			eventually(t, "no live connection", func() bool { return len(reg.Snapshot().Conns) == 0 })

			for _, r := range reg.Snapshot().Sub(before).Total {
				diff(t, "messages in the end", r.Messages, uint64(3))
			}
		})
	}
}

func TestConnectionsOfEveryKindOfAddress(t *testing.T) {
	pipe := bufconn.Listen(1 << 16)
	abstract := fmt.Sprintf("@otelproto-%d", time.Now().UnixNano())
	path := filepath.Join(t.TempDir(), "socket")

	listen := func(network, address string) net.Listener {
		var lc net.ListenConfig

		lis, err := lc.Listen(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}

		return lis
	}

	v6 := listen("tcp", "[::1]:0")

	for name, o := range map[string]grpctest.Options{
		"unix path":     {Listener: listen("unix", path), Target: "unix:" + path},
		"unix abstract": {Listener: listen("unix", abstract), Target: "unix-abstract:" + abstract[1:]},
		"IPv6":          {Listener: v6, Target: v6.Addr().String()},
		"pipe": {Listener: pipe, Target: "passthrough:///pipe", Dial: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reg := stats.NewRegistry()
			reader, mp := newReader()
			conn := otelproto.WithConnAttributes(otelproto.PeerAddress, otelproto.PeerPort, otelproto.LocalAddress)

			o.Server = []grpc.ServerOption{
				grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(reg))),
				grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithMeterProvider(mp), conn)),
			}
			o.Dial = append(o.Dial, otelproto.DialOptions(otelproto.WithRegistry(reg))...)
			o.Dial = append(o.Dial, otelproto.DialOptions(otelproto.WithMeterProvider(mp), conn)...)

			p := grpctest.New(t, o)
			workload(t, p.Client)
			diff(t, "live connections", len(reg.Snapshot().Conns), 2)
			p.Close()

			s := reg.Snapshot()
			diff(t, "live connections at the end", len(s.Conns), 0)
			diff(t, "sides", mirrored(rowsOf(s.Total, false)), rowsOf(s.Total, true))
			diff(t, "points", len(points(t, reader)), 2*len(s.Total))
		})
	}
}

func TestSeveralHandlersEachWorkOnTheirOwnState(t *testing.T) {
	a, b, c := stats.NewRegistry(), stats.NewRegistry(), stats.NewRegistry()
	only := otelproto.WithFilter(func(info *grpcstats.RPCTagInfo) bool { return strings.HasSuffix(info.FullMethodName, "/Unary") })

	p := grpctest.New(t, grpctest.Options{
		Server: []grpc.ServerOption{
			grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(a))),
			grpc.StatsHandler(otelgrpc.NewServerHandler()),
			grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(b), otelproto.WithoutVariants())),
			grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(c), only)),
		},
		Dial: append(append(otelproto.DialOptions(otelproto.WithRegistry(a)), grpc.WithStatsHandler(otelgrpc.NewClientHandler())),
			append(otelproto.DialOptions(otelproto.WithRegistry(b), otelproto.WithoutVariants()),
				otelproto.DialOptions(otelproto.WithRegistry(c), only)...)...),
	})
	workload(t, p.Client)
	p.Close()

	all, unnamed, unary := make(map[string]uint64), make(map[string]uint64), make(map[string]uint64)

	for _, r := range a.Snapshot().Total {
		all[r.Key.Method] += r.Wire.Sum
	}

	for _, r := range b.Snapshot().Total {
		unnamed[r.Key.Method] += r.Wire.Sum

		if r.Key.Variant != "" {
			t.Errorf("a variant: %+v", r.Key)
		}
	}

	for _, r := range c.Snapshot().Total {
		unary[r.Key.Method] += r.Wire.Sum
	}

	diff(t, "with and without variants", unnamed, all)
	diff(t, "filtered", unary, map[string]uint64{"otelproto.test.Test/Unary": all["otelproto.test.Test/Unary"]})
}

// A call that is made with the context of a call: each has its own state, filtered ones too.
func TestACallWithinACall(t *testing.T) {
	reg := stats.NewRegistry()
	h := otelproto.NewClientHandler(otelproto.WithRegistry(reg), otelproto.WithFilter(func(info *grpcstats.RPCTagInfo) bool {
		return info.FullMethodName != "/filtered/Method"
	}))

	outer := h.TagRPC(t.Context(), &grpcstats.RPCTagInfo{FullMethodName: "/outer/Method"})
	inner := h.TagRPC(outer, &grpcstats.RPCTagInfo{FullMethodName: "/inner/Method"})
	filtered := h.TagRPC(inner, &grpcstats.RPCTagInfo{FullMethodName: "/filtered/Method"})

	for _, ctx := range []context.Context{outer, inner, inner, filtered, t.Context()} {
		h.HandleRPC(ctx, &grpcstats.OutPayload{Client: true, Length: 1, WireLength: 6})
	}

	methods := make(map[string]uint64)
	for _, r := range reg.Snapshot().Total {
		methods[r.Key.Method] = r.Messages
	}

	diff(t, "messages by method", methods, map[string]uint64{"outer/Method": 1, "inner/Method": 2})
}

// Events in an order that grpc-go doesn't produce today must not leave a connection open.
func TestLateEventsLeaveNoConnectionOpen(t *testing.T) {
	reg := stats.NewRegistry()
	h := otelproto.NewClientHandler(otelproto.WithRegistry(reg))
	local, remote := &net.TCPAddr{Port: 1}, &net.TCPAddr{Port: 2}

	conn := h.TagConn(t.Context(), &grpcstats.ConnTagInfo{LocalAddr: local, RemoteAddr: remote})
	h.HandleConn(conn, &grpcstats.ConnBegin{Client: true})

	ctx := h.TagRPC(t.Context(), &grpcstats.RPCTagInfo{FullMethodName: "/s/m"})
	h.HandleConn(conn, &grpcstats.ConnEnd{Client: true}) // before the header
	h.HandleRPC(ctx, &grpcstats.OutHeader{Client: true, LocalAddr: local, RemoteAddr: remote, Authority: "a"})
	diff(t, "live during the RPC", len(reg.Snapshot().Conns), 1)
	h.HandleRPC(ctx, &grpcstats.OutPayload{Client: true, WireLength: 5})
	h.HandleRPC(ctx, &grpcstats.End{Client: true})
	diff(t, "live after it", len(reg.Snapshot().Conns), 0)
	h.HandleRPC(ctx, &grpcstats.End{Client: true})
	h.HandleRPC(ctx, &grpcstats.InPayload{Client: true, WireLength: 5})
	h.HandleRPC(ctx, &grpcstats.InTrailer{Client: true})

	s := reg.Snapshot()
	diff(t, "live in the end", len(s.Conns), 0)
	diff(t, "rows", len(s.Closed), 2)
}

// An RPC may still deliver what was received before its socket closed.
func TestAConnectionStaysOpenUntilItsLastRPCHasEnded(t *testing.T) {
	for side, client := range map[string]bool{"client": true, "server": false} {
		t.Run(side, func(t *testing.T) {
			reg := stats.NewRegistry()
			h := otelproto.NewServerHandler(otelproto.WithRegistry(reg))

			if client {
				h = otelproto.NewClientHandler(otelproto.WithRegistry(reg))
			}

			local, remote := &net.TCPAddr{Port: 1}, &net.TCPAddr{Port: 2}
			conn := h.TagConn(t.Context(), &grpcstats.ConnTagInfo{LocalAddr: local, RemoteAddr: remote})
			h.HandleConn(conn, &grpcstats.ConnBegin{Client: client})

			rpc := h.TagRPC(conn, &grpcstats.RPCTagInfo{FullMethodName: "/s/m"})
			h.HandleRPC(rpc, &grpcstats.Begin{Client: client})

			if client {
				h.HandleRPC(rpc, &grpcstats.OutHeader{Client: true, LocalAddr: local, RemoteAddr: remote, Authority: "a"})
			}

			h.HandleConn(conn, &grpcstats.ConnEnd{Client: client})
			diff(t, "live during the RPC", len(reg.Snapshot().Conns), 1)
			h.HandleRPC(rpc, &grpcstats.InPayload{Client: client, WireLength: 5})
			h.HandleRPC(rpc, &grpcstats.End{Client: client})

			s := reg.Snapshot()
			diff(t, "live after it", len(s.Conns), 0)
			diff(t, "rows", len(s.Closed), 1)
		})
	}
}

type badAddr []byte // can't be a map key

func (badAddr) Network() string  { return "bad" }
func (a badAddr) String() string { return string(a) }

func TestAddressesThatCannotBeCompared(t *testing.T) {
	reg := stats.NewRegistry()
	h := otelproto.NewServerHandler(otelproto.WithRegistry(reg))

	for range 2 {
		conn := h.TagConn(t.Context(), &grpcstats.ConnTagInfo{LocalAddr: badAddr("l"), RemoteAddr: badAddr("r")})
		h.HandleConn(conn, &grpcstats.ConnBegin{})
		diff(t, "live", len(reg.Snapshot().Conns), 1)
		h.HandleConn(conn, &grpcstats.ConnEnd{})
		h.HandleConn(conn, &grpcstats.ConnEnd{})
		diff(t, "live after the end", len(reg.Snapshot().Conns), 0)
	}
}

// eventually polls until ok or a deadline that only a stuck program reaches.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()

	deadline := time.After(30 * time.Second)

	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still not: %s", what)
		}
	}
}
