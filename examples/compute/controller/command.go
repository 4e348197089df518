package controller

import (
	"time"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// One function per kind of command.

func createTimely(process int, addresses []string) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_CreateTimely{CreateTimely: &computepb.CreateTimely{
		Process: uint32(process), Processes: uint32(len(addresses)), Addresses: addresses,
	}}}
}

func createInstance(name string, epoch time.Time, tick time.Duration) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_CreateInstance{CreateInstance: &computepb.CreateInstance{
		Name: name, EpochUnixNanos: epoch.UnixNano(), TickNanos: tick.Nanoseconds(),
	}}}
}

func initializationComplete() *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_InitializationComplete{
		InitializationComplete: &computepb.InitializationComplete{},
	}}
}

func updateConfiguration(parameters map[string]string) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_UpdateConfiguration{
		UpdateConfiguration: &computepb.UpdateConfiguration{Parameters: parameters},
	}}
}

func createDataflow(d *computepb.Dataflow) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_CreateDataflow{
		CreateDataflow: &computepb.CreateDataflow{Dataflow: d},
	}}
}

func schedule(dataflow uint64) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_Schedule{
		Schedule: &computepb.Schedule{Dataflow: dataflow},
	}}
}

// allowCompaction drops the collection if the frontier is nil.
func allowCompaction(collection uint64, frontier *uint64) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_AllowCompaction{
		AllowCompaction: &computepb.AllowCompaction{Collection: collection, Frontier: frontier},
	}}
}

func allowWrites(collection uint64) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_AllowWrites{
		AllowWrites: &computepb.AllowWrites{Collection: collection},
	}}
}

func peekCommand(uuid string, p Peek) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_Peek{Peek: &computepb.Peek{
		Uuid: []byte(uuid), Collection: p.Collection, Timestamp: p.Timestamp, FirstKey: p.FirstKey, EndKey: p.EndKey,
	}}}
}

func cancelPeek(uuid string) *computepb.ComputeCommand {
	return &computepb.ComputeCommand{Kind: &computepb.ComputeCommand_CancelPeek{
		CancelPeek: &computepb.CancelPeek{Uuid: []byte(uuid)},
	}}
}
