// Package otelproto measures the messages of gRPC: the size of each on the wire and uncompressed, by protobuf type, by the
// command inside an envelope, by method and direction.
//
// # Usage
//
// One option on each side:
//
//	conn, err := grpc.NewClient(target, append(otelproto.DialOptions(), creds)...)
//	server := grpc.NewServer(grpc.StatsHandler(otelproto.NewServerHandler()))
//
// Without options the sizes go to two histograms of the global MeterProvider, otelproto.client.message.wire_size and
// otelproto.client.message.size, or those of the server. With [WithRegistry] they go to a [stats.Registry] in this process, which
// keeps every connection apart and costs less. Other handlers, such as otelgrpc's, may stand beside in any order.
//
// The variant of a message is the command inside: automatic for envelopes (exactly one oneof, with at least two cases that
// are messages), declared by [WithVariantField] or [WithVariantFunc] for others. Of a message with a repeated field of commands, each
// can count on its own.
//
// # Concurrency
//
// A handler serves any number of connections and RPCs at once. Recording a known kind of message takes no lock; a new
// kind, connection or method takes a short one.
//
// # Guarantees
//
// Every message that grpc-go reports is counted once, with the sizes that grpc-go reports: WireLength and Length of its payload
// events. A payload that can't be named counts as _OPAQUE. Payloads are not retained, and not walked a second time, except the
// elements of a repeated field that [WithVariantField] names: each of them counts once, and their sizes add up to the message's.
//
// A repeated attempt sends its messages again, and they are counted again, since they crossed the wire again; otelproto.rpc.retry
// tells them apart. A server marks what the client says it repeats. A client marks transparent retries always, and retries by the
// service config's policy only with the interceptors that [DialOptions] adds: nothing else tells a handler of them.
//
// Nothing that a peer sends panics, blocks, or grows memory without bound. A method that a server doesn't serve leaves nothing
// behind; with a handler for unknown services it counts as _OTHER, as does everything beyond [WithSeriesLimit]. Each limit is
// reported once through the handler of package otel when it is first hit.
//
// A connection lives in the registry from its first RPC (on a server: from its start) until it is closed and its last
// RPC has ended. Connections with equal addresses that are values, not pointers, share one: in-memory pipes, and requests through
// grpc.Server.ServeHTTP.
//
// # Not guaranteed
//
// With the client handler alone, without DialOptions, messages repeated by policy are counted but not marked.
// A message that was handed to the transport counts as sent, as in grpc-go, even if the connection breaks before it leaves.
//
// # Cost
//
// An RPC costs one allocation (two with DialOptions), a message none. With a registry a message costs about what otelgrpc spends to
// ignore it, an envelope too; with instruments, the SDK's two histogram records. A discriminator other than a oneof of the
// message itself is read by reflection, which costs more; elements of a repeated field cost something each. See docs/variants.md
// and docs/cardinality.md.
package otelproto
