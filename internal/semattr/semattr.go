// Package semattr makes the attributes of messages and connections, so that instruments and producers name them alike.
package semattr

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/otelproto/otelproto-go/stats"
)

// The attributes that the semantic conventions don't define.
const (
	typeKey       = attribute.Key("otelproto.message.type")
	variantKey    = attribute.Key("otelproto.message.variant")
	retryKey      = attribute.Key("otelproto.rpc.retry")
	connectionKey = attribute.Key("otelproto.connection.id")
)

// maxAddress is the longest address that an attribute keeps, in bytes.
const maxAddress = 256

// Message gives the attributes that come from a series' key.
func Message(k stats.Key) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		semconv.RPCSystemNameGRPC, semconv.RPCMethod(valid(k.Method)), Direction(k.Direction), typeKey.String(k.Type),
	}
	if k.Variant != "" {
		attrs = append(attrs, variantKey.String(k.Variant))
	}

	if k.Retry {
		attrs = append(attrs, retryKey.Bool(true))
	}

	return attrs
}

// Direction gives network.io.direction.
func Direction(d stats.Direction) attribute.KeyValue {
	if d == stats.Receive {
		return semconv.NetworkIODirectionReceive
	}

	return semconv.NetworkIODirectionTransmit
}

// Server gives server.address and server.port of an authority; none where it is empty.
func Server(authority string) []attribute.KeyValue {
	if authority == "" {
		return nil
	}

	host, port := splitHostPort(authority)
	if decoded, err := url.PathUnescape(host); err == nil { // grpc-go encodes what may not stand in an authority
		host = decoded
	}

	attrs := []attribute.KeyValue{semconv.ServerAddress(valid(host))}
	if port > 0 {
		attrs = append(attrs, semconv.ServerPort(port))
	}

	return attrs
}

// ConnectionID gives otelproto.connection.id.
func ConnectionID(id uint64) attribute.KeyValue {
	return connectionKey.Int64(int64(id))
}

// PeerAddress gives network.peer.address; none where the address has no text.
func PeerAddress(a net.Addr) []attribute.KeyValue {
	if host, _ := split(a); host != "" {
		return []attribute.KeyValue{semconv.NetworkPeerAddress(host)}
	}

	return nil
}

// PeerPort gives network.peer.port; none where there is none.
func PeerPort(a net.Addr) []attribute.KeyValue {
	if _, port := split(a); port > 0 {
		return []attribute.KeyValue{semconv.NetworkPeerPort(port)}
	}

	return nil
}

// LocalAddress gives network.local.address; none where the address has no text.
func LocalAddress(a net.Addr) []attribute.KeyValue {
	if host, _ := split(a); host != "" {
		return []attribute.KeyValue{semconv.NetworkLocalAddress(host)}
	}

	return nil
}

// LocalPort gives network.local.port; none where there is none.
func LocalPort(a net.Addr) []attribute.KeyValue {
	if _, port := split(a); port > 0 {
		return []attribute.KeyValue{semconv.NetworkLocalPort(port)}
	}

	return nil
}

// split gives the parts of an address; no port where there is none.
func split(a net.Addr) (host string, port int) {
	switch a := a.(type) {
	case nil:
		return "", 0
	case *net.TCPAddr:
		if a == nil || a.IP == nil {
			return "", 0
		}

		ap := a.AddrPort()

		return ap.Addr().Unmap().String(), int(ap.Port())
	case *net.UnixAddr:
		if a == nil {
			return "", 0
		}

		return valid(a.Name), 0
	default:
		return splitHostPort(valid(a.String()))
	}
}

// splitHostPort also takes a host without a port.
func splitHostPort(s string) (host string, port int) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().String(), int(ap.Port())
	}

	host, portText, err := net.SplitHostPort(s)
	if err != nil {
		return strings.Trim(s, "[]"), 0
	}

	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return s, 0
	}

	return host, int(n)
}

// valid cuts text and makes it valid UTF-8, without which exporters refuse it.
func valid(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxAddress)], "\uFFFD")
}
