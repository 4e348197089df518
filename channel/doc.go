// Package channel shares one self-healing gRPC connection per target.
//
// # Usage
//
// A Conn is a grpc.ClientConnInterface, so a generated client takes it
// unchanged. New is for one target, a Cache for many:
//
//	cache, err := channel.NewCache(channel.WithDialOptions(grpc.WithTransportCredentials(creds)))
//	...
//	defer cache.Close()
//	client := pb.NewGreeterClient(cache.Conn("dns:///greeter:443"))
//
// No option is needed beyond credentials. grpc.ClientConn reconnects a broken
// transport by itself; this package is for what a ClientConn can't see: a
// connection that stands and is worth nothing (a proxy that answers 503 on
// it), an error that is replayed from an attempt long over, a name that
// resolves elsewhere by now, a server's limit of concurrent streams.
//
// # Concurrency
//
// Everything is safe for concurrent use. A generation is one grpc.ClientConn;
// one goroutine makes it, watches it, and closes it. RPCs start no goroutine
// of ours and take no lock on a connection that works (with WithConnections
// above 1 they take the target's). A connection attempt belongs to the
// target, not to the caller that wanted it: each caller leaves on its own
// context, and the attempt goes on. Options' callbacks (classifier, logger)
// are called without locks held.
//
// # Guarantees
//
//   - At most one connection attempt per target at a time (one more while
//     connections are added), however many callers wait; attempts are paced
//     with full jitter, at most 10 s apart, until an RPC succeeds.
//   - The failure of an attempt is seen by those who waited for it and nobody
//     else. An RPC that finds no connection waits for a turn in the backoff,
//     never longer than a connect timeout, and one attempt; one that meets a
//     connection as it is lost waits for grpc's reconnect before that. An RPC
//     that waits for ready waits until it is.
//   - A connection is replaced only after the replacement is connected, and
//     only if it is still the current one: a late failure of an old generation
//     does nothing to its successor.
//   - An answer of the application never counts against a connection, unless a
//     classifier says so.
//   - RPCs on a replaced, idle, evicted or forgotten connection run on to their
//     end. A stream is under way until grpc ends it: final RecvMsg, failed
//     SendMsg, end of its context.
//   - An RPC whose method isn't declared idempotent is sent again only if no
//     stream was ever created for it. This holds for every classifier. With
//     WithConnections above 1, an RPC that waits for a stream may move to
//     another connection; if a stream comes up in the same instant it is reset
//     before a message was written to it.
//   - Close waits for every goroutine and ends every RPC; what it ends, and
//     what comes later, reports ErrClosed with the target.
//
// # Not guaranteed
//
//   - That an RPC succeeds: what grpc would fail, fails, with grpc's error.
//   - Detection of a connection that silently drops packets before keepalive or
//     TCP notices. A deadline of a caller says nothing about the connection.
//   - Order between RPCs around a replacement: they may run on two connections.
//   - A limit on draining connections, unless WithDrainTimeout sets one in time.
//   - Exactness of the limit of concurrent streams, which grpc-go doesn't tell
//     and which is inferred from RPCs that wait 20 ms for a stream; a wrong
//     guess costs connections within the maximum, never throughput.
//
// # Cost
//
// Measured by the benchmarks of the package, see docs/channel.md: a hit of
// Cache.Conn allocates nothing; an RPC on a handle costs three allocations
// more than on a grpc.ClientConn; a message of a stream none. A target holds
// one goroutine of ours per connection, beside grpc's own.
package channel
