// Package broadcast hands events to every subscriber of one process, and loses none silently.
//
// # Usage
//
// A [Topic] is a log that publishers append to and subscriptions read at their own pace:
//
//	topic, err := broadcast.New(broadcast.Options[Event]{})
//	sub := topic.Subscribe(ctx)
//	defer sub.Close()
//	for e, err := range sub.All() { … }
//
// A subscriber may lag. What that means is a choice of three:
//
//  1. Nothing given: every event arrives while the subscriber lags by no more than the window. Past it, one [ResyncError]
//     names the events that are gone, and delivery goes on with the oldest that is left.
//  2. [Await] and [Waiters], for the outcome of things that are recorded in some state: they register first, check the
//     state, and then wait. The outcome arrives with a window of one event, or none, and without polling.
//  3. A [Source], the authoritative log behind the topic: what left the window is read from there and joined to the live
//     events without a gap or a repetition.
//
// Await watches one thing over a topic that others use too; each event wakes everybody who waits. Waiters wake only
// those whose key is completed, and are the choice when many wait for one thing each.
//
// # Concurrency
//
// All methods of Topic and Waiters may be called from any goroutine, from code that consumes events, and under any lock of
// the caller's. A [Subscription] is read by one goroutine at a time: a second one gets [ErrConcurrent], and each event
// still arrives once at most. Its Lag and Close may be called from anywhere.
//
// No goroutine is started, but for the one of [context.AfterFunc] when a context ends under a Next that waits.
//
// # Guarantees
//
//   - Sequence numbers are dense and in the order in which Publish calls take effect; all subscribers see that order.
//   - An event whose Publish begins after Subscribe has returned is delivered or in a gap that is named; one whose Publish
//     had returned before Subscribe was called is not delivered.
//   - The window is exact. A gap is reported once, and the event after it is delivered however fast publishers are.
//   - If Publish has returned, a Next that stands before its event returns without a further publish.
//   - Publish doesn't wait for subscribers, wakes one goroutine itself, and runs no code of the user's but Options.Size,
//     before it takes a lock.
//   - A Next whose context ends consumes nothing; an event that is at hand wins over the context.
//   - A topic retains the window and at most 63 events more, and a subscription that lags retains one chunk of 64 events.
//     With a byte bound, the surplus is at most an eighth of the bound or the size of a chunk's slots, and one event.
//   - A subscription that is dropped without Close is collected, and with it all that the topic and the context know of it.
//   - With a Source only [ErrTruncated] surfaces, and only for what the source has lost. A source that fails is read again
//     after a pause that doubles from 10 ms to 5 s, until the context ends; Stats shows the error, as does Next when the
//     context ends, and the first of a row goes to otel.Handle.
//
// # Not guaranteed
//
//   - Events don't outlive the process; a Source may.
//   - Subscribers that wait are woken in no particular order, and one that is not scheduled holds up those that it has to
//     wake: the wake-ups of a publish fan out from subscriber to subscriber, up to 61 at a time.
//   - With a Source, gaps are closed only if the source holds an event before Publish is called with it, in one order.
//   - Await and Waiters rely on the outcome being recorded before it is published or completed.
//   - A value is handed to all subscribers as it is: what it points to is shared.
//
// # Cost
//
// Publishing doesn't depend on the number of subscribers that don't wait, and hardly on those that do. It allocates once
// in 64 events, Next not at all. [Subscription.NextBatch] is the cheapest way to read a stream. An event is stored by
// value, 64 to a chunk: publish pointers to large ones. A topic keeps nothing of a subscription but its position and,
// while it waits, its place in line. The metrics are asynchronous and are removed by Topic.Close.
package broadcast
