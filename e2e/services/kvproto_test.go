package services_test

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// Messages that gogo generated are not messages of the protobuf module: their size is what their own Size says.
var kvNames names = func(payload any) (string, string, int) {
	switch m := payload.(type) {
	case *tikvpb.BatchCommandsRequest:
		return "tikvpb.BatchCommandsRequest", "", m.Size()
	case *tikvpb.BatchCommandsResponse:
		return "tikvpb.BatchCommandsResponse", "", m.Size()
	case *kvrpcpb.GetRequest:
		return "kvrpcpb.GetRequest", "", m.Size()
	case *kvrpcpb.GetResponse:
		return "kvrpcpb.GetResponse", "", m.Size()
	default:
		return "", "", -1
	}
}

// store answers each command with an empty answer of its kind.
type store struct {
	tikvpb.UnimplementedTikvServer
}

func (*store) BatchCommands(stream tikvpb.Tikv_BatchCommandsServer) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		out := &tikvpb.BatchCommandsResponse{RequestIds: in.GetRequestIds()}

		for _, r := range in.GetRequests() {
			a := &tikvpb.BatchCommandsResponse_Response{}

			switch c := r.GetCmd().(type) {
			case *tikvpb.BatchCommandsRequest_Request_Get:
				a.Cmd = &tikvpb.BatchCommandsResponse_Response_Get{Get: &kvrpcpb.GetResponse{Value: c.Get.GetKey()}}
			case *tikvpb.BatchCommandsRequest_Request_Prewrite:
				a.Cmd = &tikvpb.BatchCommandsResponse_Response_Prewrite{Prewrite: &kvrpcpb.PrewriteResponse{MinCommitTs: 1}}
			case *tikvpb.BatchCommandsRequest_Request_Commit:
				a.Cmd = &tikvpb.BatchCommandsResponse_Response_Commit{Commit: &kvrpcpb.CommitResponse{CommitVersion: 2}}
			}

			out.Responses = append(out.Responses, a)
		}

		if err := stream.Send(out); err != nil {
			return err
		}
	}
}

func batches() []*tikvpb.BatchCommandsRequest {
	get := func(key string) *tikvpb.BatchCommandsRequest_Request {
		return &tikvpb.BatchCommandsRequest_Request{
			Cmd: &tikvpb.BatchCommandsRequest_Request_Get{Get: &kvrpcpb.GetRequest{Key: []byte(key), Version: 7}},
		}
	}
	prewrite := func(n int) *tikvpb.BatchCommandsRequest_Request {
		return &tikvpb.BatchCommandsRequest_Request{
			Cmd: &tikvpb.BatchCommandsRequest_Request_Prewrite{Prewrite: &kvrpcpb.PrewriteRequest{
				Mutations: []*kvrpcpb.Mutation{{Key: []byte("key"), Value: make([]byte, n)}},
			}},
		}
	}
	commit := &tikvpb.BatchCommandsRequest_Request{
		Cmd: &tikvpb.BatchCommandsRequest_Request_Commit{Commit: &kvrpcpb.CommitRequest{Keys: [][]byte{[]byte("key")}}},
	}
	all := [][]*tikvpb.BatchCommandsRequest_Request{
		{get("a")}, {get("b"), get("c"), prewrite(1000)}, {prewrite(20_000), commit}, {}, {{}}, {commit, get("d"), commit},
	}

	var requests []*tikvpb.BatchCommandsRequest

	for _, commands := range all {
		r := &tikvpb.BatchCommandsRequest{Requests: commands}
		for i := range commands {
			r.RequestIds = append(r.RequestIds, uint64(1000*len(requests)+i))
		}

		requests = append(requests, r)
	}

	return requests
}

func TestBatchCommandsOfGogoMessages(t *testing.T) {
	s := newSides("kvproto BatchCommands", kvNames, false)
	addr := s.start(t, func(r *grpc.Server) { tikvpb.RegisterTikvServer(r, &store{}) })
	runBatches(t, tikvpb.NewTikvClient(s.connect(t, addr)))
	s.check(t, same)
}

// kvParts gives the commands of a batch, by the names that their cases have in tikvpb.proto.
func kvParts(payload any) (parts []part) {
	switch m := payload.(type) {
	case *tikvpb.BatchCommandsRequest:
		for _, r := range m.GetRequests() {
			variant := ""

			switch r.GetCmd().(type) {
			case *tikvpb.BatchCommandsRequest_Request_Get:
				variant = "Get"
			case *tikvpb.BatchCommandsRequest_Request_Prewrite:
				variant = "Prewrite"
			case *tikvpb.BatchCommandsRequest_Request_Commit:
				variant = "Commit"
			}

			parts = append(parts, part{variant, r.Size()})
		}
	case *tikvpb.BatchCommandsResponse:
		for _, r := range m.GetResponses() {
			variant := ""

			switch r.GetCmd().(type) {
			case *tikvpb.BatchCommandsResponse_Response_Get:
				variant = "Get"
			case *tikvpb.BatchCommandsResponse_Response_Prewrite:
				variant = "Prewrite"
			case *tikvpb.BatchCommandsResponse_Response_Commit:
				variant = "Commit"
			}

			parts = append(parts, part{variant, r.Size()})
		}
	}

	return parts
}

// One message carries many commands, none of which its own type tells.
func TestEachCommandOfABatchCounts(t *testing.T) {
	for name, call := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)}} {
		t.Run(name, func(t *testing.T) {
			s := newSides("kvproto BatchCommands, each command, "+name, kvNames, len(call) > 0,
				otelproto.WithVariantField("tikvpb.BatchCommandsRequest", "requests.cmd"),
				otelproto.WithVariantField("tikvpb.BatchCommandsResponse", "responses.cmd"))
			s.client.witness.parts, s.server.witness.parts = kvParts, kvParts

			addr := s.start(t, func(r *grpc.Server) { tikvpb.RegisterTikvServer(r, &store{}) })
			runBatches(t, tikvpb.NewTikvClient(s.connect(t, addr)), call...)
			s.check(t, same)

			// The same again without the witness: what batches() sends.
			commands := make(map[string]uint64)

			for k, c := range s.client.rows() {
				if k.Direction == stats.Transmit {
					commands[k.Variant] = c.Messages
				}
			}

			want := map[string]uint64{"Get": 4, "Prewrite": 2, "Commit": 3, "": 2} // an empty batch, and an empty command
			if d := cmp.Diff(want, commands); d != "" {
				t.Errorf("commands sent (-want +got):\n%s", d)
			}
		})
	}
}

func runBatches(t *testing.T, client tikvpb.TikvClient, opts ...grpc.CallOption) {
	t.Helper()

	stream, err := client.BatchCommands(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}

	for _, r := range batches() {
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}

		a, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}

		if len(a.GetResponses()) != len(r.GetRequests()) {
			t.Fatalf("%d answers to %d commands", len(a.GetResponses()), len(r.GetRequests()))
		}
	}

	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}

	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}
