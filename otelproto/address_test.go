package otelproto_test

import (
	"net"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelproto/otelproto-go/otelproto"
)

func tcpAddr(ip string, port int) *net.TCPAddr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func TestPeerOfEveryKindOfAddress(t *testing.T) {
	for name, c := range map[string]struct {
		addr net.Addr
		host string
		port int
	}{
		"IPv4":                {tcpAddr("10.0.0.2", 443), "10.0.0.2", 443},
		"IPv4 in IPv6":        {tcpAddr("::ffff:10.0.0.2", 443), "10.0.0.2", 443},
		"IPv6":                {tcpAddr("2001:db8::1", 443), "2001:db8::1", 443},
		"IPv6 with zone":      {&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 443}, "fe80::1%eth0", 443},
		"unix path":           {&net.UnixAddr{Name: "/run/s"}, "/run/s", 0},
		"unix abstract":       {&net.UnixAddr{Name: "@name"}, "@name", 0},
		"unix unnamed":        {&net.UnixAddr{}, "", 0},
		"text":                {textAddr("10.0.0.2:443"), "10.0.0.2", 443},
		"text IPv6":           {textAddr("[fe80::1%eth0]:443"), "fe80::1%eth0", 443},
		"text name":           {textAddr("bufconn"), "bufconn", 0},
		"empty text":          {textAddr(""), "", 0},
		"text without a port": {textAddr("host:service"), "host:service", 0},
		"invalid UTF-8":       {textAddr("a\xffb"), "a\uFFFDb", 0},
		"none":                {nil, "", 0},
		"nil TCP":             {(*net.TCPAddr)(nil), "", 0},
		"nil unix":            {(*net.UnixAddr)(nil), "", 0},
		"empty TCP":           {&net.TCPAddr{}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			info := otelproto.ConnInfo{Remote: c.addr}
			got := append(otelproto.PeerAddress(info), otelproto.PeerPort(info)...)

			var want []attribute.KeyValue
			if c.host != "" {
				want = append(want, attribute.String("network.peer.address", c.host))
			}

			if c.port != 0 {
				want = append(want, attribute.Int("network.peer.port", c.port))
			}

			diff(t, "attributes", got, want)
		})
	}
}

func TestServerOfEveryKindOfAuthority(t *testing.T) {
	for authority, want := range map[string][]attribute.KeyValue{
		"example.com:8443":  {attribute.String("server.address", "example.com"), attribute.Int("server.port", 8443)},
		"example.com":       {attribute.String("server.address", "example.com")},
		"localhost":         {attribute.String("server.address", "localhost")}, // as grpc-go has it for unix sockets
		"[::1]:443":         {attribute.String("server.address", "::1"), attribute.Int("server.port", 443)},
		"[::1]":             {attribute.String("server.address", "::1")},
		"greeter%2Fcanary":  {attribute.String("server.address", "greeter/canary")}, // xds:///greeter/canary
		"bufnet":            {attribute.String("server.address", "bufnet")},
		"example.com:https": {attribute.String("server.address", "example.com:https")},
	} {
		t.Run(authority, func(t *testing.T) {
			reader, mp := newReader()
			send(t.Context(), otelproto.NewClientHandler(otelproto.WithMeterProvider(mp)), "/s/m", authority)

			set := points(t, reader)[0].Attributes

			var got []attribute.KeyValue

			for _, k := range []attribute.Key{"server.address", "server.port"} {
				if v, ok := set.Value(k); ok {
					got = append(got, attribute.KeyValue{Key: k, Value: v})
				}
			}

			diff(t, "attributes", got, want)
		})
	}
}
