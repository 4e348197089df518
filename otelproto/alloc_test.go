//go:build !race

package otelproto_test

import (
	"context"
	"net"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	grpcstats "google.golang.org/grpc/stats"

	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/internal/testproto/opaquepb"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

func allocSinks() map[string]otelproto.Option {
	return map[string]otelproto.Option{
		"registry":    otelproto.WithRegistry(stats.NewRegistry()),
		"instruments": otelproto.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))),
	}
}

func TestAMessageAllocatesNothing(t *testing.T) {
	catchReports(t) // gogo.Bundle isn't linked in

	put := &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{}}}
	get := &testproto.Command{Kind: &testproto.Command_Get{Get: &testproto.Get{}}}

	for sink, option := range allocSinks() {
		for what, payloads := range map[string][]any{
			"plain":       {&testproto.Plain{}},
			"envelope":    {put},
			"alternating": {put, get, &testproto.Plain{}, &testproto.Command{}},
			"opaque API":  {opaquepb.Command_builder{Put: &opaquepb.Put{}}.Build()},
			"bytes":       {any([]byte{1})},
			"declared":    {&testproto.Tagged{Name: "a"}, &testproto.Tagged{Name: "b"}},
			"repeated":    {bundle(put, get, put, nil, &testproto.Command{}), bundle(), bundle(get)},
			"repeated, of a nested message": {&testproto.Batch{Commands: []*testproto.Command{
				{Kind: &testproto.Command_Batch{Batch: &testproto.Batch{Inner: &testproto.Batch_Get{}}}}, {},
			}}},
			"repeated, below a message": {
				&testproto.Header{Command: &testproto.Command{Kind: &testproto.Command_Batch{Batch: &testproto.Batch{
					Commands: []*testproto.Command{{Id: "a"}, {Id: "b"}},
				}}}},
			},
			"repeated, opaque API": {opaquepb.Bundle_builder{Commands: []*opaquepb.Command{
				opaquepb.Command_builder{Put: &opaquepb.Put{}}.Build(), opaquepb.Command_builder{Get: &opaquepb.Get{}}.Build(),
			}}.Build()},
			"repeated, gogo": {&gogoBundle{Values: []gogoPart{{Kind: &gogoGet{}, size: 1}, {Kind: &gogoPut{}, size: 2}}}},
		} {
			h := otelproto.NewServerHandler(option, otelproto.WithVariantField("otelproto.test.Tagged", "name"),
				otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind"),
				otelproto.WithVariantField("otelproto.test.Batch", "commands.batch.inner"),
				otelproto.WithVariantField("otelproto.test.Header", "command.batch.commands.id"),
				otelproto.WithVariantField("otelproto.test.opaque.Bundle", "commands.kind"),
				otelproto.WithVariantField("gogo.Bundle", "values.kind"))
			ctx := begin(h)

			var events []*grpcstats.InPayload

			for _, p := range payloads {
				events = append(events,
					&grpcstats.InPayload{Payload: p, Length: 100, WireLength: 105},
					&grpcstats.InPayload{Payload: p, Length: 100, WireLength: 50})
			}

			n := testing.AllocsPerRun(1_000, func() {
				for _, e := range events { // all of them, since the average is rounded down
					h.HandleRPC(ctx, e)
				}
			})
			if n != 0 {
				t.Errorf("%s, %s: %v allocations in %d messages", sink, what, n, len(events))
			}
		}
	}
}

func TestAnRPCAllocatesItsStateOnly(t *testing.T) {
	for sink, option := range allocSinks() {
		server := otelproto.NewServerHandler(option)
		client := otelproto.NewClientHandler(option)
		local, remote := &net.TCPAddr{Port: 1}, &net.TCPAddr{Port: 2}
		serverConn := server.TagConn(context.Background(), &grpcstats.ConnTagInfo{LocalAddr: local, RemoteAddr: remote})
		client.TagConn(context.Background(), &grpcstats.ConnTagInfo{LocalAddr: remote, RemoteAddr: local})

		tag := &grpcstats.RPCTagInfo{FullMethodName: testproto.Test_Unary_FullMethodName}
		command := &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{}}}
		events := []grpcstats.RPCStats{
			&grpcstats.InHeader{LocalAddr: local, RemoteAddr: remote}, &grpcstats.Begin{},
			&grpcstats.OutHeader{Client: true, LocalAddr: remote, RemoteAddr: local, Authority: "a"},
			&grpcstats.InPayload{Payload: command, Length: 10, WireLength: 15},
			&grpcstats.OutPayload{Payload: command, Length: 10, WireLength: 15},
			&grpcstats.End{},
		}

		for side, rpc := range map[string]func(){
			"server": func() {
				ctx := server.TagRPC(serverConn, tag)
				for _, e := range events {
					server.HandleRPC(ctx, e)
				}
			},
			"client": func() {
				ctx := client.TagRPC(context.Background(), tag)
				for _, e := range events {
					client.HandleRPC(ctx, e)
				}
			},
		} {
			if n := testing.AllocsPerRun(1_000, rpc); n != 1 {
				t.Errorf("%s, %s: %v allocations an RPC, expected 1", sink, side, n)
			}
		}
	}
}
