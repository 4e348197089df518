package semattr_test

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelproto/otelproto-go/internal/semattr"
	"github.com/otelproto/otelproto-go/stats"
)

type address string

func (address) Network() string  { return "test" }
func (a address) String() string { return string(a) }

func texts(attrs ...attribute.KeyValue) []string {
	got := make([]string, 0, len(attrs))
	for _, a := range attrs {
		got = append(got, string(a.Key)+"="+a.Value.String())
	}

	return got
}

func TestAKeyGivesTheMessageAttributes(t *testing.T) {
	got := texts(semattr.Message(stats.Key{Method: "s/M", Direction: stats.Receive, Type: "t.T", Variant: "put", Retry: true})...)
	want := []string{
		"rpc.system.name=grpc", "rpc.method=s/M", "network.io.direction=receive", "otelproto.message.type=t.T",
		"otelproto.message.variant=put", "otelproto.rpc.retry=true",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	got = texts(semattr.Message(stats.Key{Method: "s/M\xff", Type: "t.T"})...)
	want = []string{"rpc.system.name=grpc", "rpc.method=s/M\uFFFD", "network.io.direction=transmit", "otelproto.message.type=t.T"}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnAuthorityGivesTheServerAttributes(t *testing.T) {
	for authority, want := range map[string][]string{
		"":                     {},
		"host":                 {"server.address=host"},
		"host:443":             {"server.address=host", "server.port=443"},
		"[::1]:443":            {"server.address=::1", "server.port=443"},
		"[::ffff:10.0.0.1]:80": {"server.address=10.0.0.1", "server.port=80"},
		"[::1]":                {"server.address=::1"},
		"host:http":            {"server.address=host:http"},
		"host:99999":           {"server.address=host:99999"},
		"a%2Fb":                {"server.address=a/b"},
		"xds.authority.com":    {"server.address=xds.authority.com"},
	} {
		if diff := cmp.Diff(want, texts(semattr.Server(authority)...)); diff != "" {
			t.Errorf("%q: %s", authority, diff)
		}
	}
}

func TestAnAddressGivesHostAndPort(t *testing.T) {
	long := strings.Repeat("x", 1000)

	for _, c := range []struct {
		addr net.Addr
		want []string
	}{
		{nil, []string{}},
		{(*net.TCPAddr)(nil), []string{}},
		{(*net.UnixAddr)(nil), []string{}},
		{&net.TCPAddr{}, []string{}},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7}, []string{
			"network.peer.address=10.0.0.1", "network.peer.port=7", "network.local.address=10.0.0.1", "network.local.port=7",
		}},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 7, Zone: "eth0"}, []string{
			"network.peer.address=fe80::1%eth0", "network.peer.port=7", "network.local.address=fe80::1%eth0", "network.local.port=7",
		}},
		{&net.UnixAddr{Name: "/run/s", Net: "unix"}, []string{"network.peer.address=/run/s", "network.local.address=/run/s"}},
		{&net.UnixAddr{Name: "@", Net: "unix"}, []string{"network.peer.address=@", "network.local.address=@"}},
		{address("bufconn"), []string{"network.peer.address=bufconn", "network.local.address=bufconn"}},
		{address("1.2.3.4:5"), []string{
			"network.peer.address=1.2.3.4", "network.peer.port=5", "network.local.address=1.2.3.4", "network.local.port=5",
		}},
		{address("\xff" + long), []string{
			"network.peer.address=\uFFFD" + long[:255], "network.local.address=\uFFFD" + long[:255],
		}},
	} {
		attrs := semattr.PeerAddress(c.addr)
		attrs = append(attrs, semattr.PeerPort(c.addr)...)
		attrs = append(attrs, semattr.LocalAddress(c.addr)...)
		attrs = append(attrs, semattr.LocalPort(c.addr)...)

		if diff := cmp.Diff(c.want, texts(attrs...)); diff != "" {
			t.Errorf("%v: %s", c.addr, diff)
		}
	}

	if diff := cmp.Diff([]string{"otelproto.connection.id=7"}, texts(semattr.ConnectionID(7))); diff != "" {
		t.Error(diff)
	}
}
