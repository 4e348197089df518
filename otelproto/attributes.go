package otelproto

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelproto/otelproto-go/internal/semattr"
)

// PeerAddress is for [WithConnAttributes]: network.peer.address, the IP address or socket path of the other end.
func PeerAddress(c ConnInfo) []attribute.KeyValue { return semattr.PeerAddress(c.Remote) }

// PeerPort is for [WithConnAttributes]: network.peer.port, where the other end has one.
func PeerPort(c ConnInfo) []attribute.KeyValue { return semattr.PeerPort(c.Remote) }

// LocalAddress is for [WithConnAttributes]: network.local.address, the IP address or socket path of this end.
func LocalAddress(c ConnInfo) []attribute.KeyValue { return semattr.LocalAddress(c.Local) }

// serverAttributes are server.address and server.port of a client, from the authority.
func serverAttributes(c ConnInfo) []attribute.KeyValue {
	if !c.Client {
		return nil
	}

	return semattr.Server(c.Authority)
}
