// Package statsmetric exports what a [stats.Registry] has counted as metrics, through any reader of the OpenTelemetry SDK.
//
// # Usage
//
//	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(statsmetric.NewProducer(registry)))
//	provider := metric.NewMeterProvider(metric.WithReader(reader))
//
// Sizes are the histograms otelproto.client.message.wire_size and otelproto.client.message.size, or those of the server; sockets of
// the registry's listener and dialer are the counters otelproto.connection.io and otelproto.connection.overhead; live connections
// are otelproto.connections. Names, units and attributes are those of the reference in docs. A metric without a value isn't exported.
//
// # Which mode answers which question
//
// Summed, the default: what do my bytes consist of, and to which server do they go? One series for each method, direction, type
// and variant, and on a client for each server. The number of series doesn't grow with connections, and the sums never go
// backwards: they have what live and closed connections counted together.
//
// [PerConnection]: who takes the bandwidth, and which connection is stuck? The same by network.peer.address, network.peer.port and,
// on a client, network.local.port; otelproto.connection.id where there are no ports, or where these are taken by another
// live connection. A connection's series end with the export after it closed, and nothing else repeats its bytes: the sum of rates
// over all series is the rate of the process. It makes a series for each connection and kind of message, so it is for
// few connections or for a backend that takes series that come and go. Don't sum both modes.
//
// Cumulative, the default: for Prometheus and most backends. [Delta]: for those that want the change since the export before.
// The reader's own temporality selector has no say in what a producer gives.
//
// # Concurrency
//
// Produce may be called from any goroutine; two calls wait for each other. Recording doesn't wait for it. Any number of
// producers may share a registry, each with its own mode and pace.
//
// # Guarantees
//
// Start times: a cumulative summed series starts when the registry did, one of a connection when that was opened. A delta series
// covers exactly the time since the export before. A connection that lived only between two exports is exported once, with its own start.
//
// What is recorded on a connection after its last export, by an RPC that ends late, is exported once more, starting at that export.
//
// A producer per connection that isn't asked for long keeps no more closed connections than stats.WithWaitingLimit; what is beyond is
// exported under otelproto.connection.id 0, as are connections beyond stats.WithConnLimit. No byte is lost or exported twice.
// A producer that is garbage lets go of the registry; Close does so at once.
//
// # Not guaranteed
//
// An export that fails on its way is gone with the delta, or the last values of closed connections, that it had.
//
// The overhead is a counter and can't go backwards, but bytes of a message are read before the message is received: where an export
// saw such bytes as overhead, the counter waits until the overhead has grown past that. It is ahead by what was under way at most. A
// snapshot has the exact difference, and so has otelproto.connection.io less the sums of wire_size.
//
// A connection that serves several authorities is one connection; its messages carry the server's name, its socket's bytes don't.
//
// # Cost
//
// An export takes about 0.2 µs for each series of the registry, summed, and 2 µs per connection, where each series needs a set
// of attributes of its own. [Delta] keeps the counts of the export before. Where the registry keeps exemplars, each point
// has the largest message of a sampled span since the export before.
package statsmetric
