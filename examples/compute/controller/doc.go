// Package controller is the side of the compute protocol that decides: it says what an instance's replicas have to be, asks them,
// and makes one answer of theirs.
//
// # Usage
//
//	instance := controller.New(controller.Options{Name: "main"})
//	defer instance.Close()
//	instance.AddReplica("r1", addresses)
//	ids, err := instance.Install(&computepb.Dataflow{…})
//	err = instance.Initialize()
//	err = instance.AwaitUpper(ctx, ids[0], instance.Now())
//	rows, err := instance.Peek(ctx, controller.Peek{Collection: ids[0], Timestamp: …})
//
// # Parts
//
// An [Instance] sends every command to every replica and keeps it in a [History]. A replica that connects, for the first time or
// after a restart, is brought up to date by replaying the history, which is compacted first: what was dropped, finished or
// overtaken isn't in it any more, so it grows with what there is and not with what has ever been.
//
// # Concurrency
//
// All methods of an Instance may be called concurrently. Each replica has one goroutine that keeps it connected, and while it is,
// one that sends and one that receives per process. Close and DropReplica wait for theirs.
//
// # Guarantees
//
//   - Every replica gets the same commands in the same order, from the replay on.
//   - A peek's answer is that of the first replica all of whose processes have answered. The others are told to cancel theirs, and
//     what they still send is counted and thrown away.
//   - A subscription hands each update out once and in order of time, whichever replicas come and go meanwhile.
//   - No collection is compacted beyond a peek that waits, beyond what a subscription has handed out, or beyond what a connected
//     process has computed.
//
// # Not guaranteed
//
// Peeks, subscriptions and copies wait as long as no replica is connected; only the caller's context ends that.
package controller
