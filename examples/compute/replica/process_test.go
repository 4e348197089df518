package replica_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
	"github.com/otelproto/otelproto-go/examples/compute/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type stream = grpc.BidiStreamingClient[computepb.ComputeCommand, computepb.ComputeResponse]

// open starts a replica of one process and opens a stream to it.
func open(t *testing.T) (*replica.Replica, stream) {
	t.Helper()
	r, err := replica.Start("r", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(r.Addresses()[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := computepb.NewComputeClient(conn).CommandResponseStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

func send(t *testing.T, s stream, commands ...*computepb.ComputeCommand) {
	t.Helper()
	for _, c := range commands {
		if err := s.Send(c); err != nil {
			t.Fatal(err)
		}
	}
}

func begin() []*computepb.ComputeCommand {
	return []*computepb.ComputeCommand{
		{Kind: &computepb.ComputeCommand_CreateTimely{CreateTimely: &computepb.CreateTimely{Processes: 1}}},
		{Kind: &computepb.ComputeCommand_CreateInstance{CreateInstance: &computepb.CreateInstance{
			EpochUnixNanos: time.Now().UnixNano(), TickNanos: time.Millisecond.Nanoseconds(),
		}}},
		{Kind: &computepb.ComputeCommand_CreateDataflow{CreateDataflow: &computepb.CreateDataflow{Dataflow: &computepb.Dataflow{
			Id:      1,
			Source:  &computepb.Generator{Keys: 10, Period: 10, MinBytes: 1, MaxBytes: 10},
			Exports: []*computepb.Export{{Collection: 2, Kind: &computepb.Export_Index{Index: &computepb.Index{}}}},
		}}}},
		{Kind: &computepb.ComputeCommand_Schedule{Schedule: &computepb.Schedule{Dataflow: 1}}},
		{Kind: &computepb.ComputeCommand_InitializationComplete{InitializationComplete: &computepb.InitializationComplete{}}},
	}
}

func TestFrontiersAdvanceWithTheClock(t *testing.T) {
	r, s := open(t)
	defer func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}()
	send(t, s, begin()...)
	var last uint64
	for range 5 {
		response, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if response.GetStatus() != nil {
			continue
		}
		upper := response.GetFrontiers().GetUpper()
		if upper <= last {
			t.Errorf("frontier %d follows %d: %v", upper, last, response)
		}
		last = upper
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := s.Recv(); err != nil {
			if err.Error() != "EOF" {
				t.Errorf("stream ends with %v, want EOF", err)
			}
			return
		}
	}
}

func TestAStreamThatMakesNoSenseEnds(t *testing.T) {
	r, s := open(t)
	defer func() { _ = r.Stop() }()
	send(t, s, begin()[1:2]...)
	_, err := s.Recv()
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want InvalidArgument", err)
	}
}

func TestStopEndsStreams(t *testing.T) {
	r, s := open(t)
	send(t, s, begin()...)
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	for {
		if _, err := s.Recv(); err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Errorf("got %v, want Unavailable", err)
			}
			return
		}
	}
}

func TestAReplicaHasAtLeastOneProcess(t *testing.T) {
	if _, err := replica.Start("r", 0, nil); err == nil {
		t.Error("a replica without processes starts")
	}
}
