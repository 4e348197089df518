// Package executor runs the workers of the shards that it owns, one invocation of a worker at a time, and tells the callers who
// wait what came of theirs.
//
// The order of things is what loses nothing:
//
//   - An invocation is in the journal before it is queued, and its outcome is in the journal before anybody is told.
//   - A caller registers as a waiter, then looks into the journal, then waits: broadcast.Waiters and broadcast.Await see to it.
//   - A shard that moves away is marked so before its waiters are failed, and a caller looks at the mark after it has registered.
//     So it either sees the mark or is among those who are failed, and turns to the new owner at once.
//   - The journal refuses what an executor records in an epoch that has passed.
package executor
