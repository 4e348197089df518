// Package stats counts messages and their bytes in this process, by connection and by what the message is.
//
// # Usage
//
// A [Registry] holds the counts. Handlers of package otelproto fill it (WithRegistry); any other protocol can:
//
//	reg := stats.NewRegistry()
//	conn := reg.Open(stats.ConnInfo{Client: true, Local: c.LocalAddr(), Remote: c.RemoteAddr()})
//	defer conn.Close()
//	puts := conn.Series(stats.Key{Method: "kv/Put", Direction: stats.Transmit, Type: "kv.PutRequest"})
//	puts.Record(ctx, wire, size) // for each message
//
// [Registry.Snapshot] reads it: each live connection, the totals of those that closed, and the sum of both. The difference
// of two snapshots, [Snapshot.Sub], is a window, with rates ([Snapshot.PerSecond]) and shares ([Snapshot.Share]). A [Row] has
// two histograms, of the bytes on the wire and of the uncompressed bytes, with mean, quantile estimates and compression ratio.
//
// [Registry.Listener] and [Registry.DialContext] count the bytes of sockets. A counted socket is a live connection by itself, and an
// Open with its addresses joins it, so that the snapshot tells how much of each connection the messages are and how much is
// overhead ([ConnSnapshot.Overhead]).
//
// What exports at its own pace uses a [Reader] instead: sums without the single connections, or each connection with its final
// counts once it has closed. Package statsmetric makes metrics of it, statshttp a page.
//
// # Concurrency
//
// Everything may be called from any goroutine. [Series.Record] takes no lock. [Registry.Open], [Conn.Series] and [Conn.Close]
// take locks that are held for a few map look-ups. A snapshot or reading takes as long as there are series to read, and none of
// the others waits for it. Snapshots, readings, and making or closing a connection reader wait for each other.
//
// # Guarantees
//
// No message is lost or counted twice: a connection that closes moves its counts to the totals, and a message that is
// recorded after that, by an RPC that ends late, counts in the totals as well. A snapshot has each connection once,
// live or closed. Every reader of connections gets the final counts of each once.
//
// The wire bytes of the messages and the overhead are the bytes of the sockets, exactly, when nothing is under way and every message on
// them is recorded. Until then a message that was sent and is not yet written, or read and not yet received, is on one side only.
//
// Memory is bounded: by the live connections up to [WithConnLimit] and by the different keys up to [WithSeriesLimit], however
// many connections came and went, and by [WithWaitingLimit] for readers that don't read. What is beyond a limit is counted under
// [Other], or under the connection with ID 0, and reported once through the handler of package otel.
//
// # Not guaranteed
//
// A snapshot isn't a single moment: a message that is recorded while it reads may be in its counts and not yet in its sums.
// The next snapshot has all of it. Quantiles are estimates within a bucket.
//
// # Cost
//
// A message costs two atomic additions where its wire size is its size plus gRPC's 5-byte prefix, as it is for every message
// that isn't compressed, and four otherwise; no allocation. A series takes at most 512 bytes with [DefaultBuckets],
// about 270 while no message in it is compressed; in a snapshot each takes 440. A socket's read or write costs one addition more.
package stats
