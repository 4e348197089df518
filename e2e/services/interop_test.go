package services_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	orcadatapb "github.com/cncf/xds/go/xds/data/orca/v3"
	orcapb "github.com/cncf/xds/go/xds/service/orca/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// interopNames are the messages of grpc's interoperability tests. None is an envelope.
var interopNames = oneOf(
	of[*testgrpc.Empty]("grpc.testing.Empty", nil),
	of[*testgrpc.SimpleRequest]("grpc.testing.SimpleRequest", nil),
	of[*testgrpc.SimpleResponse]("grpc.testing.SimpleResponse", nil),
	of[*testgrpc.StreamingInputCallRequest]("grpc.testing.StreamingInputCallRequest", nil),
	of[*testgrpc.StreamingInputCallResponse]("grpc.testing.StreamingInputCallResponse", nil),
	of[*testgrpc.StreamingOutputCallRequest]("grpc.testing.StreamingOutputCallRequest", nil),
	of[*testgrpc.StreamingOutputCallResponse]("grpc.testing.StreamingOutputCallResponse", nil),
	of[*orcapb.OrcaLoadReportRequest]("xds.service.orca.v3.OrcaLoadReportRequest", nil),
	of[*orcadatapb.OrcaLoadReport]("xds.data.orca.v3.OrcaLoadReport", nil),
	func(payload any) (string, string, int) { // DoUnimplementedMethod sends nil
		if payload == nil {
			return "_OPAQUE", "", 0
		}

		return "", "", -1
	},
)

// interopRun is one case's two ends.
type interopRun struct {
	*testing.T

	sides  *sides
	addr   string
	dial   []grpc.DialOption
	conn   *grpc.ClientConn
	client testgrpc.TestServiceClient
}

// interopCase is a function of grpc's package interop.
type interopCase struct {
	// does is the function's name, and what tells apart two cases of one function.
	does string
	run  func(ctx context.Context, r *interopRun)
	// apart says that the ends don't see the same: each must count what grpc reports there. In most of them an end may go before
	// the other's message arrives, and of ORCA grpc tells the client's handlers nothing: that stream is the balancer's own.
	apart bool
	// silent says that no message flows.
	silent bool
	// google says that credentials stand before the call: those that this function gives.
	google func(t *testing.T) []grpc.DialOption
	// servers is the number of servers, 1 if not given.
	servers int
	// policy is the client's load balancing policy.
	policy string
}

// simple is a case that needs a client only.
func simple(f func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)) func(context.Context, *interopRun) {
	return func(ctx context.Context, r *interopRun) { f(ctx, r.client) }
}

// late is a case that breaks off: it needs a connection that is ready, for otherwise nothing at all might be sent.
func late(f func(context.Context, *interopRun)) func(context.Context, *interopRun) {
	return func(ctx context.Context, r *interopRun) {
		interop.DoEmptyUnaryCall(ctx, r.client)
		f(ctx, r)
	}
}

// orcaPolicy is the policy of package interop that asks servers for their load.
const orcaPolicy = "test_backend_metrics_load_balancer"

// interopCases are all that package interop has.
var interopCases = []interopCase{
	{does: "EmptyUnaryCall", run: simple(interop.DoEmptyUnaryCall)},
	{does: "LargeUnaryCall", run: simple(interop.DoLargeUnaryCall)},
	{does: "ClientStreaming", run: simple(interop.DoClientStreaming)},
	{does: "ServerStreaming", run: simple(interop.DoServerStreaming)},
	{does: "PingPong", run: simple(interop.DoPingPong)},
	{does: "EmptyStream", run: simple(interop.DoEmptyStream), silent: true},
	{does: "CustomMetadata", run: simple(interop.DoCustomMetadata)},
	{does: "SpecialStatusMessage", run: simple(interop.DoSpecialStatusMessage)},
	{does: "StatusCodeAndMessage", run: simple(interop.DoStatusCodeAndMessage)},
	{does: "CancelAfterBegin", run: simple(interop.DoCancelAfterBegin), silent: true},
	{does: "CancelAfterFirstResponse", run: simple(interop.DoCancelAfterFirstResponse)},
	{does: "TimeoutOnSleepingServer", apart: true, run: late(simple(interop.DoTimeoutOnSleepingServer))},
	{does: "UnimplementedMethod", apart: true, run: late(func(ctx context.Context, r *interopRun) {
		interop.DoUnimplementedMethod(ctx, r.conn)
	})},
	{does: "UnimplementedService", apart: true, run: late(func(ctx context.Context, r *interopRun) {
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(r.conn))
	})},
	{does: "PickFirstUnary", servers: 3, run: func(ctx context.Context, r *interopRun) { interop.DoPickFirstUnary(ctx, r.client) }},
	{does: "SoakTest, one channel", run: func(ctx context.Context, r *interopRun) {
		soak(ctx, r, func() (*grpc.ClientConn, func()) { return r.conn, func() {} })
	}},
	{does: "SoakTest, a channel for each call", run: func(ctx context.Context, r *interopRun) {
		soak(ctx, r, func() (*grpc.ClientConn, func()) {
			conn, err := grpc.NewClient(r.addr, r.dial...)
			if err != nil {
				r.Error(err)
			}

			return conn, func() { conn.Close() }
		})
	}},
	{does: "ORCAPerRPCTest", policy: orcaPolicy, apart: true, run: func(ctx context.Context, r *interopRun) {
		interop.DoORCAPerRPCTest(ctx, r.client)
	}},
	{does: "ORCAOOBTest", policy: orcaPolicy, apart: true, run: func(ctx context.Context, r *interopRun) {
		interop.DoORCAOOBTest(ctx, r.client)
	}},
	{does: "ComputeEngineCreds", google: computeEngine, run: func(ctx context.Context, r *interopRun) {
		interop.DoComputeEngineCreds(ctx, r.client, account, scope)
	}},
	{does: "ServiceAccountCreds", google: serviceAccount, run: func(ctx context.Context, r *interopRun) {
		interop.DoServiceAccountCreds(ctx, r.client, google.keyFile, scope)
	}},
	{does: "JWTTokenCreds", google: jwtToken, run: func(ctx context.Context, r *interopRun) {
		interop.DoJWTTokenCreds(ctx, r.client, google.keyFile)
	}},
	{does: "Oauth2TokenCreds", google: oauth2Token, run: func(ctx context.Context, r *interopRun) {
		interop.DoOauth2TokenCreds(ctx, r.client, google.keyFile, scope)
	}},
	{does: "PerRPCCreds", google: tlsOnly, run: func(ctx context.Context, r *interopRun) {
		interop.DoPerRPCCreds(ctx, r.client, google.keyFile, scope)
	}},
	{does: "GoogleDefaultCredentials", google: googleDefault, run: func(ctx context.Context, r *interopRun) {
		interop.DoGoogleDefaultCredentials(ctx, r.client, account)
	}},
	{does: "ComputeEngineChannelCredentials", google: computeEngineChannel, run: func(ctx context.Context, r *interopRun) {
		interop.DoComputeEngineChannelCredentials(ctx, r.client, account)
	}},
}

// soak is a small soak test: nothing here judges by the clock.
func soak(ctx context.Context, r *interopRun, channel func() (*grpc.ClientConn, func())) {
	interop.DoSoakTest(ctx, interop.SoakTestConfig{
		RequestSize: 271828, ResponseSize: 314159, PerIterationMaxAcceptableLatency: time.Minute, OverallTimeout: time.Minute,
		ServerAddr: r.addr, NumWorkers: 2, Iterations: 10, ChannelForTest: channel,
	})
}

func TestEveryInteropCaseAgrees(t *testing.T) {
	t.Parallel()

	for _, c := range interopCases {
		for _, compressor := range []string{"plain", gzip.Name} {
			t.Run(c.does+", "+compressor, func(t *testing.T) {
				t.Parallel()

				r := c.start(t, compressor)
				c.run(t.Context(), r)

				switch {
				case c.silent:
					r.sides.silent(t)

					return
				case c.apart:
					r.sides.check(t, nil)
				default:
					r.sides.check(t, same)
				}

				r.sides.tabulate(t)
			})
		}
	}
}

// start starts the servers and connects.
func (c interopCase) start(t *testing.T, compressor string) *interopRun {
	t.Helper()

	r := &interopRun{T: t, sides: newSides("interop "+c.does+", "+compressor, interopNames, compressor == gzip.Name)}
	r.dial = append(slices.Clone(r.sides.dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	r.sides.serve = append(r.sides.serve, orca.CallMetricsServerOption(nil))

	if compressor == gzip.Name {
		r.dial = append(r.dial, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}

	if c.google != nil {
		r.dial = append(r.dial, c.google(t)...)
		r.sides.serve = append(r.sides.serve, grpc.Creds(google.tls))
	}

	if c.policy != "" {
		r.dial = append(r.dial, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"`+c.policy+`": {}}]}`))
	}

	var addrs []resolver.Address

	for n := range max(1, c.servers) {
		recorder := orca.NewServerMetricsRecorder()
		addr := r.sides.start(t, func(s *grpc.Server) {
			testgrpc.RegisterTestServiceServer(s, &testServer{
				TestServiceServer: interop.NewTestServer(interop.NewTestServerOptions{MetricsRecorder: recorder}),
				id:                fmt.Sprint("server ", n),
			})
			orcapb.RegisterOpenRcaServiceServer(s, &loads{provider: recorder})
		})
		addrs = append(addrs, resolver.Address{Addr: addr})
	}

	r.addr = addrs[0].Addr

	if len(addrs) > 1 {
		builder := manual.NewBuilderWithScheme("several")
		builder.InitialState(resolver.State{Addresses: addrs})

		r.addr = "several:///servers"
		r.dial = append(r.dial, grpc.WithResolvers(builder))
	}

	conn, err := grpc.NewClient(r.addr, r.dial...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })

	r.conn, r.client = conn, testgrpc.NewTestServiceClient(conn)

	return r
}

// silent checks that neither handlers nor witnesses have anything.
func (s *sides) silent(t *testing.T) {
	t.Helper()

	for what, end := range map[string]side{"client": s.client, "server": s.server} {
		if seen, faults := end.witness.seen(); len(seen)+len(faults) > 0 {
			t.Errorf("%s: %s: a message: %v, %v", s.name, what, seen, faults)
		}

		if rows := end.rows(); len(rows) > 0 {
			t.Errorf("%s: %s: recorded %v", s.name, what, rows)
		}
	}
}

// testServer is that of package interop, and fills in what this leaves to the servers that Google runs: who calls, and who answers.
type testServer struct {
	testgrpc.TestServiceServer

	id string
}

func (s *testServer) UnaryCall(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	answer, err := s.TestServiceServer.UnaryCall(ctx, r)
	if err != nil {
		return nil, err
	}

	if r.GetFillServerId() {
		answer.ServerId = s.id
	}

	if !r.GetFillUsername() && !r.GetFillOauthScope() {
		return answer, nil
	}

	user, granted, err := callerOf(ctx)
	if err != nil {
		return nil, err
	}

	if r.GetFillUsername() {
		answer.Username = user
	}

	if r.GetFillOauthScope() {
		answer.OauthScope = granted
	}

	return answer, nil
}

// loads tells how loaded a server is whenever that changes. grpc's own service does so every 30 seconds, which is longer than
// interop waits; what makes it quicker is internal to grpc.
type loads struct {
	orcapb.UnimplementedOpenRcaServiceServer

	provider orca.ServerMetricsProvider
}

func (l *loads) StreamCoreMetrics(_ *orcapb.OrcaLoadReportRequest, stream orcapb.OpenRcaService_StreamCoreMetricsServer) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	var before *orca.ServerMetrics

	for {
		if now := l.provider.ServerMetrics(); before == nil || !cmp.Equal(before, now) {
			before = now

			if err := stream.Send(&orcadatapb.OrcaLoadReport{
				CpuUtilization: max(0, now.CPUUtilization), MemUtilization: max(0, now.MemUtilization), Utilization: now.Utilization,
			}); err != nil {
				return err
			}
		}

		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// None is left out: the cases are read off the source of the package that is linked in.
func TestNoInteropCaseIsMissing(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "google.golang.org/grpc/interop").Output()
	if err != nil {
		t.Fatal(err)
	}

	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*.go"))
	if err != nil {
		t.Fatal(err)
	}

	there := make(map[string]bool)

	for _, f := range files {
		file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}

		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Do") {
				there[strings.TrimPrefix(f.Name.Name, "Do")] = true
			}
		}
	}

	run := make(map[string]bool)

	for _, c := range interopCases {
		name, _, _ := strings.Cut(c.does, ",")
		run[name] = true
	}

	if d := cmp.Diff(slices.Sorted(maps.Keys(there)), slices.Sorted(maps.Keys(run))); d != "" || len(run) == 0 {
		t.Errorf("cases (-package +run):\n%s", d)
	}
}
