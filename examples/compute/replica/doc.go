// Package replica is the side of the compute protocol that does the work: it installs dataflows over generated tables, keeps
// their rows as time passes, and answers.
//
// # Usage
//
//	r, err := replica.Start("r1", 2, nil) // two processes, each a gRPC server of its own on 127.0.0.1
//	instance.AddReplica(r.Name(), r.Addresses())
//	defer r.Stop()
//
// # Parts
//
// A [Worker] is one process's share of an instance as a plain state machine: commands and time go in, responses come out. It
// has no goroutine, no clock and no lock, so a test can drive it tick by tick, and two workers that were told the same end up
// the same. A [Process] runs one worker per stream: the worker begins empty when the stream opens and is gone when it ends. A
// [Replica] is a number of processes among which the rows are spread by key.
//
// # Guarantees
//
//   - All rows follow from the sources' seeds and the time, so every replica of an instance holds the same ones.
//   - Responses of one process come in order: a batch comes before the frontier that it reaches, a frontier before the answers
//     that waited for it.
//   - Every peek gets exactly one response from every process: rows, an error, or canceled.
//   - Nothing is computed before initialization_complete, and nothing is written to the outside before allow_writes.
//
// # Not guaranteed
//
// A process keeps nothing when its stream ends. Whoever opens the next one has to say again what there should be.
package replica
