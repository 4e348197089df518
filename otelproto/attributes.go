package otelproto

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
	keyType    = attribute.Key("otelproto.message.type")
	keyVariant = attribute.Key("otelproto.message.variant")
	keyRetry   = attribute.Key("otelproto.rpc.retry")
)

// PeerAddress is for [WithConnAttributes]: network.peer.address, the IP address or socket path of the other end.
func PeerAddress(c ConnInfo) []attribute.KeyValue {
	if host, _ := splitAddr(c.Remote); host != "" {
		return []attribute.KeyValue{semconv.NetworkPeerAddress(host)}
	}

	return nil
}

// PeerPort is for [WithConnAttributes]: network.peer.port, where the other end has one.
func PeerPort(c ConnInfo) []attribute.KeyValue {
	if _, port := splitAddr(c.Remote); port > 0 {
		return []attribute.KeyValue{semconv.NetworkPeerPort(port)}
	}

	return nil
}

// LocalAddress is for [WithConnAttributes]: network.local.address, the IP address or socket path of this end.
func LocalAddress(c ConnInfo) []attribute.KeyValue {
	if host, _ := splitAddr(c.Local); host != "" {
		return []attribute.KeyValue{semconv.NetworkLocalAddress(host)}
	}

	return nil
}

// serverAttributes are server.address and server.port of a client, from the authority.
func serverAttributes(c ConnInfo) []attribute.KeyValue {
	if !c.Client || c.Authority == "" {
		return nil
	}

	host, port := splitHostPort(c.Authority)
	if decoded, err := url.PathUnescape(host); err == nil { // grpc-go encodes what may not stand in an authority
		host = decoded
	}

	attrs := []attribute.KeyValue{semconv.ServerAddress(valid(host))}
	if port > 0 {
		attrs = append(attrs, semconv.ServerPort(port))
	}

	return attrs
}

// splitAddr gives the parts of an address; no port where there is none.
func splitAddr(a net.Addr) (host string, port int) {
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

// maxAddress is the longest address that an attribute keeps, in bytes.
const maxAddress = 256

// valid cuts text and makes it valid UTF-8, without which exporters refuse it.
func valid(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxAddress)], "\uFFFD")
}

// seriesAttributes are the attributes of METRICS that come from the key.
func seriesAttributes(k stats.Key) []attribute.KeyValue {
	direction := semconv.NetworkIODirectionTransmit
	if k.Direction == stats.Receive {
		direction = semconv.NetworkIODirectionReceive
	}

	attrs := []attribute.KeyValue{
		semconv.RPCSystemNameGRPC, semconv.RPCMethod(valid(k.Method)), direction, keyType.String(k.Type),
	}
	if k.Variant != "" {
		attrs = append(attrs, keyVariant.String(k.Variant))
	}

	if k.Retry {
		attrs = append(attrs, keyRetry.Bool(true))
	}

	return attrs
}
