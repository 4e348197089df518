package channel_test

import (
	"context"
	"errors"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/channel"
)

var (
	somebody = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	spoken   = metadata.Pairs("content-type", "application/grpc+proto")
)

const text503 = `unexpected HTTP status code received from server: 503 (Service Unavailable); ` +
	`transport: received unexpected content-type "text/html"`

// failures has at least one failure for each row of the table, by the name
// that the row has in the code and in docs/channel.md. Where two rows could
// match, the earlier one has to win.
var failures = []struct {
	row  string
	want channel.Class
	f    channel.Failure
}{
	{"answered in gRPC", channel.Application, channel.Failure{
		Err:  status.Error(codes.Unavailable, "no healthy upstream"),
		Peer: somebody, Trailer: spoken, State: connectivity.Ready,
	}},
	{"answered in gRPC", channel.Application, channel.Failure{
		Err:  status.Error(codes.Unavailable, "error reading from server: EOF"),
		Peer: somebody, Header: spoken,
	}},
	{"answered in gRPC", channel.Application, channel.Failure{
		Err:  status.Error(codes.Unavailable, "unexpected HTTP status code received from server: 503 (Service Unavailable)"),
		Peer: somebody, Header: spoken, State: connectivity.Ready,
	}},
	{"answered in gRPC", channel.Application, channel.Failure{
		Err:  status.Error(codes.Canceled, "grpc: the client connection is closing"),
		Peer: somebody, Trailer: spoken,
	}},
	{"answered in gRPC", channel.Application, channel.Failure{
		Err:  status.Error(codes.DeadlineExceeded, "server gave up"),
		Peer: somebody, Trailer: spoken,
	}},
	{"client connection closed", channel.Closed, channel.Failure{
		Err: status.Error(codes.Canceled, "grpc: the client connection is closing"),
	}},
	{"client connection closed", channel.Closed, channel.Failure{
		Err:  status.Error(codes.Canceled, "grpc: the client connection is closing"),
		Peer: somebody, State: connectivity.Shutdown,
	}},
	{"reset by the peer", channel.TransportLost, channel.Failure{
		Err:  status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL"),
		Peer: somebody,
	}},
	{"reset by the peer", channel.TransportLost, channel.Failure{
		Err:  status.Error(codes.Unavailable, "stream terminated by RST_STREAM with error code: REFUSED_STREAM"),
		Peer: somebody,
	}},
	{"cancelled or out of time", channel.Caller, channel.Failure{
		Err:  status.Error(codes.Canceled, "context canceled"),
		Peer: somebody,
	}},
	{"cancelled or out of time", channel.Caller, channel.Failure{
		Err: status.Error(codes.DeadlineExceeded, "deadline exceeded while waiting for connections to become ready"),
	}},
	{"no connection", channel.NeverSent, channel.Failure{
		Err:   status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: refused"`),
		State: connectivity.TransientFailure,
	}},
	{"no connection", channel.NeverSent, channel.Failure{
		Err: status.Error(codes.Unavailable, "name resolver error: produced zero addresses"),
	}},
	{"refused before sending", channel.Caller, channel.Failure{
		Err: status.Error(codes.Unauthenticated, "transport: per-RPC creds failed"),
	}},
	{"HTTP 429, 502, 503 or 504, connection ready", channel.Suspect, channel.Failure{
		Err:  status.Error(codes.Unavailable, text503),
		Peer: somebody, State: connectivity.Ready,
	}},
	{"HTTP 429, 502, 503 or 504, connection ready", channel.Suspect, channel.Failure{
		Err:  status.Error(codes.Unavailable, "unexpected HTTP status code received from server: 429 (Too Many Requests)"),
		Peer: somebody, State: connectivity.Ready,
	}},
	{"HTTP 429, 502, 503 or 504, connection gone", channel.TransportLost, channel.Failure{
		Err:  status.Error(codes.Unavailable, "unexpected HTTP status code received from server: 502 (Bad Gateway)"),
		Peer: somebody, State: connectivity.Idle,
	}},
	{"connection lost", channel.TransportLost, channel.Failure{
		Err:  status.Error(codes.Unavailable, "error reading from server: EOF"),
		Peer: somebody,
	}},
	{"connection lost", channel.TransportLost, channel.Failure{
		Err:  status.Error(codes.Unavailable, "closing transport due to: x, received prior goaway: code: ENHANCE_YOUR_CALM"),
		Peer: somebody,
	}},
	{"anything else", channel.Application, channel.Failure{
		Err:  status.Error(codes.Unavailable, "try later"),
		Peer: somebody,
	}},
	{"anything else", channel.Application, channel.Failure{
		Err:  status.Error(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)"),
		Peer: somebody, State: connectivity.Ready,
	}},
	{"anything else", channel.Application, channel.Failure{
		Err:  status.Error(codes.Internal, "unexpected HTTP status code received from server: 5"),
		Peer: somebody, State: connectivity.Ready,
	}},
	{"anything else", channel.Application, channel.Failure{
		Err:  errors.New("no status"),
		Peer: somebody,
	}},
}

// The table stands in the code and in docs/channel.md; they have the same
// rows, in the same order, with the same classes, and each row is reached.
func TestTheTableInTheCodeIsTheTableInTheDocumentation(t *testing.T) {
	t.Parallel()
	inCode := channel.Rules()
	text, err := os.ReadFile("../docs/channel.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| ([^|`]+?) \\| [^|]+ \\| `([A-Za-z]+)` \\|")
	var inDocs [][2]string
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		inDocs = append(inDocs, [2]string{m[1], m[2]})
	}
	if diff := cmp.Diff(inCode, inDocs); diff != "" {
		t.Errorf("code and docs/channel.md differ (-code +docs):\n%s", diff)
	}
	reached := make(map[string]bool)
	for _, tc := range failures {
		row, class := channel.ClassifyRow(tc.f)
		if row != tc.row || class != tc.want || channel.Classify(tc.f) != tc.want {
			t.Errorf("%v: row %q, class %v; want %q, %v", tc.f.Err, row, class, tc.row, tc.want)
		}
		reached[row] = true
	}
	for _, row := range inCode {
		if !reached[row[0]] {
			t.Errorf("no failure of this test reaches the row %q", row[0])
		}
	}
	for c := channel.NeverSent; c <= channel.Caller; c++ {
		if !strings.Contains(string(text), "`"+c.String()+"`") {
			t.Errorf("docs/channel.md doesn't say what %v means", c)
		}
	}
}

func TestAnyUnavailableTakesEveryUnavailableForSuspectAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, tc := range failures {
		want := tc.want
		if status.Code(tc.f.Err) == codes.Unavailable {
			want = channel.Suspect
		}
		if got := channel.AnyUnavailable(tc.f); got != want {
			t.Errorf("%v: %v, want %v", tc.f.Err, got, want)
		}
	}
}

// What grpc-go really reports, over sockets: the texts and the evidence that
// the table relies on.
func TestFailuresOnRealSocketsMatchTheTable(t *testing.T) {
	t.Parallel()
	type provoke func(t *testing.T, saw func() channel.Option) error
	reset := func(t *testing.T, saw func() channel.Option) error {
		s := serve(t, "127.0.0.1:0")
		p := tcpProxy(t, s.addr)
		s.answer(func(ctx context.Context, _ string) error { p.Reset(); <-ctx.Done(); return nil })
		return do(withPatience(t), dial(t, p.Addr(), quick(), saw()), "x")
	}
	proxied := func(code int) provoke {
		return func(t *testing.T, saw func() channel.Option) error {
			s := serve(t, "127.0.0.1:0")
			p := httpProxy(t, s.addr)
			p.Sicken(code)
			return do(withPatience(t), dial(t, p.Addr(), quick(), saw()), "x")
		}
	}
	answered := func(header bool, opts ...grpc.CallOption) provoke {
		return func(t *testing.T, saw func() channel.Option) error {
			s := serve(t, "127.0.0.1:0")
			s.answer(func(ctx context.Context, _ string) error {
				if header {
					if err := sendHeader(ctx); err != nil {
						return err
					}
				}
				return statusUnavailable()
			})
			return do(withPatience(t), dial(t, s.addr, quick(), saw()), "x", opts...)
		}
	}
	for name, tc := range map[string]struct {
		run  provoke
		want string
	}{
		"nobody listens": {func(t *testing.T, saw func() channel.Option) error {
			p := tcpProxy(t, "127.0.0.1:1")
			p.Down()
			return do(withPatience(t), dial(t, p.Addr(), quick(), saw()), "x")
		}, "no connection"},
		"no such scheme's address": {func(t *testing.T, saw func() channel.Option) error {
			c, err := channel.New("unix:///no/such/socket", quick(), saw(), channel.WithDialOptions(plaintext()))
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			return do(withPatience(t), c, "x")
		}, "no connection"},
		"application, trailers only":       {answered(false), "answered in gRPC"},
		"application, header and trailers": {answered(true), "answered in gRPC"},
		"unknown method": {func(t *testing.T, saw func() channel.Option) error {
			s := serve(t, "127.0.0.1:0")
			return dial(t, s.addr, quick(), saw()).Invoke(withPatience(t), "/no/such", spokenMessage(), spokenMessage())
		}, "answered in gRPC"},
		"proxy 429":        {proxied(429), "HTTP 429, 502, 503 or 504, connection ready"},
		"proxy 502":        {proxied(502), "HTTP 429, 502, 503 or 504, connection ready"},
		"proxy 503":        {proxied(503), "HTTP 429, 502, 503 or 504, connection ready"},
		"proxy 504":        {proxied(504), "HTTP 429, 502, 503 or 504, connection ready"},
		"proxy 404":        {proxied(404), "anything else"},
		"connection reset": {reset, "connection lost"},
		"connection age and grace": {func(t *testing.T, saw func() channel.Option) error {
			s := serve(t, "127.0.0.1:0", grpc.KeepaliveParams(keepalive.ServerParameters{
				MaxConnectionAge: 20 * time.Millisecond, MaxConnectionAgeGrace: 20 * time.Millisecond,
			}))
			s.answer(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
			return do(withPatience(t), dial(t, s.addr, quick(), saw()), "x")
		}, "connection lost"},
		"message too large": {func(t *testing.T, saw func() channel.Option) error {
			s := serve(t, "127.0.0.1:0")
			return do(withPatience(t), dial(t, s.addr, quick(), saw()), "too large", grpc.MaxCallSendMsgSize(1))
		}, "anything else"},
		"bad metadata": {func(t *testing.T, saw func() channel.Option) error {
			s := serve(t, "127.0.0.1:0")
			ctx := metadata.AppendToOutgoingContext(withPatience(t), "a key", "x")
			return do(ctx, dial(t, s.addr, quick(), saw()), "x")
		}, "refused before sending"},
		"client connection closed by an interceptor": {func(t *testing.T, saw func() channel.Option) error {
			s := serve(t, "127.0.0.1:0")
			c, err := channel.New("passthrough:///"+s.addr, quick(), saw(), channel.WithDialOptions(plaintext(),
				grpc.WithUnaryInterceptor(func(
					ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
					invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
				) error {
					if err := cc.Close(); err != nil {
						return err
					}
					return invoke(ctx, method, req, reply, cc, opts...)
				})), channel.WithRetry(channel.RetryPolicy{MaxAttempts: 1}))
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			return do(withPatience(t), c, "x")
		}, "client connection closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var row atomic.Pointer[string]
			saw := func() channel.Option {
				return channel.WithClassifier(func(f channel.Failure) channel.Class {
					name, class := channel.ClassifyRow(f)
					row.Store(&name)
					if class == channel.NeverSent && f.Peer != nil {
						t.Errorf("peer %v and class %v", f.Peer, class)
					}
					if f.Method == "" {
						t.Error("no method")
					}
					return class
				})
			}
			err := tc.run(t, saw)
			got := row.Load()
			if err == nil || got == nil || *got != tc.want {
				t.Fatalf("got row %v for %v, want %q", deref(got), err, tc.want)
			}
		})
	}
}

func deref(s *string) string {
	if s == nil {
		return "(classifier not asked)"
	}
	return *s
}

func TestTheCallersOwnEndIsNeverShownToTheClassifier(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	// A handler that watched the deadline might answer before our timer fires.
	s.answer(func(context.Context, string) error { <-s.release; return nil })
	defer close(s.release)
	c := dial(t, s.addr, quick(), channel.WithUnavailableThreshold(1), channel.WithClassifier(func(f channel.Failure) channel.Class {
		t.Errorf("asked about %v", f.Err)
		return channel.Suspect
	}))
	ctx, cancel := context.WithCancel(withPatience(t))
	errs := make(chan error, 1)
	go func() { errs <- do(ctx, c, "x") }()
	eventually(t, "call", func() bool { return s.count("x") == 1 })
	cancel()
	wantCode(t, <-errs, codes.Canceled)
	ctx, cancel = context.WithTimeout(withPatience(t), 30*time.Millisecond)
	defer cancel()
	wantCode(t, do(ctx, c, "y"), codes.DeadlineExceeded)
	if got := c.State().Generation; got != 1 {
		t.Errorf("generation %d", got)
	}
}

func TestClientConnClosedByAnInterceptorIsDialledAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0")
	var once atomic.Bool
	c, err := channel.New("passthrough:///"+s.addr, quick(), channel.WithDialOptions(plaintext(),
		grpc.WithUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if !once.Swap(true) {
				if err := cc.Close(); err != nil {
					return err
				}
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := do(withPatience(t), c, "x"); err != nil {
		t.Errorf("never sent, so sent on another connection, but: %v", err)
	}
	if n, got := s.count("x"), c.State().Generation; n != 1 || got != 2 {
		t.Errorf("sent %d times, generation %d; want 1 and 2", n, got)
	}
}
