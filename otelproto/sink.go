package otelproto

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelproto/otelproto-go/stats"
)

// sink is where sizes go: OTel instruments or a registry.
type sink interface {
	// open adds a connection.
	open(info ConnInfo) sinkConn
}

// sinkConn is one connection of a sink.
type sinkConn interface {
	// series gives the series of a key, or the one for what is beyond the limit of series. attrs are the RPC's own.
	series(k stats.Key, attrs attribute.Set) recorder
	// close ends the connection.
	close()
}

// recorder counts messages.
type recorder interface {
	Record(ctx context.Context, wire, size int)
}

// beyond is the key of the series that stands for k beyond the limit.
func beyond(k stats.Key) stats.Key {
	return stats.Key{Method: other, Direction: k.Direction, Type: other, Variant: "", Retry: k.Retry}
}

// registrySink records into a registry. It has no place for the attributes of RPCs.
type registrySink struct {
	registry *stats.Registry
	limit    *seriesLimit
}

func (s registrySink) open(info ConnInfo) sinkConn {
	return registryConn{s.registry.Open(info), s.limit}
}

type registryConn struct {
	conn  *stats.Conn
	limit *seriesLimit
}

func (c registryConn) series(k stats.Key, _ attribute.Set) recorder {
	if !c.limit.take(seriesID{method: k.Method, message: k.Type, variant: k.Variant}) {
		c.limit.report()

		k = beyond(k)
	}

	return c.conn.Series(k)
}

func (c registryConn) close() { c.conn.Close() }
