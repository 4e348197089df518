package services_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
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
	func(payload any) (string, string, int) { // DoUnimplementedMethod sends nil
		if payload == nil {
			return "_OPAQUE", "", 0
		}

		return "", "", -1
	},
)

func startInterop(t *testing.T, name string, compressed bool) (*sides, *grpc.ClientConn) {
	t.Helper()

	s := newSides(name, interopNames, compressed)
	addr := s.start(t, func(r *grpc.Server) { testgrpc.RegisterTestServiceServer(r, interop.NewTestServer()) })

	return s, s.connect(t, addr)
}

// Cases in which both ends see everything.
func TestInteropCasesAgreeOnBothSides(t *testing.T) {
	for name, opts := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)}} {
		t.Run(name, func(t *testing.T) {
			s, conn := startInterop(t, "interop, "+name, opts != nil)
			client := testgrpc.NewTestServiceClient(conn)
			ctx := t.Context()

			interop.DoEmptyUnaryCall(ctx, client, opts...)
			interop.DoLargeUnaryCall(ctx, client, opts...)
			interop.DoClientStreaming(ctx, client, opts...)
			interop.DoServerStreaming(ctx, client, opts...)
			interop.DoPingPong(ctx, client, opts...)
			interop.DoEmptyStream(ctx, client, opts...)
			interop.DoCustomMetadata(ctx, client, opts...)
			interop.DoSpecialStatusMessage(ctx, client, opts...)
			interop.DoStatusCodeAndMessage(ctx, client, opts...)
			s.check(t, same)
		})
	}
}

// Cases in which an end may go before the other's message arrives: each end must count what grpc reports there.
func TestInteropCasesThatBreakOffCountWhatHappenedOnEachSide(t *testing.T) {
	for name, opts := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)}} {
		t.Run(name, func(t *testing.T) {
			s, conn := startInterop(t, "interop broken off, "+name, opts != nil)
			client := testgrpc.NewTestServiceClient(conn)
			ctx := t.Context()

			interop.DoTimeoutOnSleepingServer(ctx, client, opts...)
			interop.DoCancelAfterBegin(ctx, client, opts...)
			interop.DoCancelAfterFirstResponse(ctx, client, opts...)
			interop.DoUnimplementedMethod(ctx, conn)
			interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
			s.check(t, nil)
		})
	}
}
