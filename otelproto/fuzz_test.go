package otelproto_test

import (
	"context"
	"net"
	"testing"

	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/internal/testproto/opaquepb"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// FuzzHandleRPC hands events to the handlers in any order, with any payload: nothing panics, every payload event of a tagged
// context is counted, and when all has ended no connection is live.
func FuzzHandleRPC(f *testing.F) {
	f.Add(true, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "/s/m", "text")
	f.Add(false, []byte{2, 0, 3, 5, 7, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 9, 1}, "no slash", "\xff")
	f.Add(false, []byte{0, 2, 1, 4, 5, 4, 9, 9}, "", "")
	f.Add(true, []byte{0, 2, 3, 134, 145, 144, 155, 134, 9}, "/s/m", "text")

	f.Fuzz(func(t *testing.T, client bool, order []byte, method, text string) {
		reg := stats.NewRegistry(stats.WithConnLimit(2), stats.WithSeriesLimit(3))
		opts := []otelproto.Option{
			otelproto.WithRegistry(reg), otelproto.WithSeriesLimit(2), otelproto.WithVariantField("otelproto.test.Tagged", "name"),
			otelproto.WithVariantField("otelproto.test.Bundle", "commands.note"),
			otelproto.WithVariantField("otelproto.test.Header", "command.batch.commands.kind"),
			otelproto.WithVariantFunc(func(p any) (string, bool) { s, ok := p.(string); return s, ok }),
		}

		h := otelproto.NewServerHandler(opts...)
		if client {
			h = otelproto.NewClientHandler(opts...)
		}

		addrs := []net.Addr{nil, tcpAddr("1.2.3.4", 5), badAddr(text), textAddr(text), (*net.TCPAddr)(nil), &net.UnixAddr{Name: text}}
		payloads := []any{
			nil, text, []byte(text), &testproto.Command{}, nilCommand(), &testproto.Command{Kind: &testproto.Command_Note{Note: text}},
			&testproto.Tagged{Name: text}, &dynamicpb.Message{}, dynamicpb.NewMessage((&testproto.Tagged{}).ProtoReflect().Descriptor()),
			opaquepb.Command_builder{Get: &opaquepb.Get{}}.Build(), &handMade{}, &oldMessage{Kind: (*oldGet)(nil)}, struct{}{},
			bundle(), bundle(nil, &testproto.Command{Kind: &testproto.Command_Note{Note: text}}, getOf("k")), dynamicHeader(),
		}
		// elements is how many commands a payload counts for.
		elements := func(p any) uint64 {
			if b, ok := p.(*testproto.Bundle); ok {
				return uint64(max(len(b.GetCommands()), 1))
			}

			return 1
		}

		var (
			conns, rpcs []context.Context
			counted     uint64
		)

		ctx := t.Context()

		for i, b := range order {
			addr := func(n int) net.Addr { return addrs[(i+n)%len(addrs)] }
			payload := payloads[int(b/10)%len(payloads)]
			rpc := ctx

			if len(rpcs) > 0 {
				rpc = rpcs[int(b)%len(rpcs)]
			}

			count := func() {
				if len(rpcs) > 0 {
					counted += elements(payload)
				}
			}

			switch b % 10 {
			case 0:
				conns = append(conns, h.TagConn(ctx, &grpcstats.ConnTagInfo{LocalAddr: addr(0), RemoteAddr: addr(1)}))
			case 1:
				if len(conns) > 0 {
					h.HandleConn(conns[int(b)%len(conns)], &grpcstats.ConnEnd{Client: client})
				}
			case 2:
				parent := ctx
				if len(conns) > 0 {
					parent = conns[int(b/10)%len(conns)]
				}

				rpcs = append(rpcs, h.TagRPC(parent, &grpcstats.RPCTagInfo{FullMethodName: method + text[:min(len(text), i)]}))
			case 3:
				h.HandleRPC(rpc, &grpcstats.Begin{
					Client: client, IsClientStream: b&16 == 0, IsServerStream: b&32 == 0, IsTransparentRetryAttempt: b&64 == 0,
				})
			case 4:
				h.HandleRPC(rpc, &grpcstats.InPayload{Client: client, Payload: payload, Length: int(b), WireLength: i - 1})
				count()
			case 5:
				h.HandleRPC(rpc, &grpcstats.OutPayload{Client: client, Payload: payload, Length: -1, WireLength: int(b)})
				count()
			case 6:
				h.HandleRPC(rpc, &grpcstats.InHeader{
					Client: client, LocalAddr: addr(0), RemoteAddr: addr(1),
					Header: map[string][]string{"grpc-previous-rpc-attempts": {text}},
				})
			case 7:
				h.HandleRPC(rpc, &grpcstats.OutHeader{Client: client, LocalAddr: addr(0), RemoteAddr: addr(1), Authority: text})
			case 8:
				h.HandleRPC(rpc, &grpcstats.InTrailer{Client: client})
			case 9:
				h.HandleRPC(rpc, &grpcstats.End{Client: client})
			}
		}

		for _, c := range conns {
			h.HandleConn(c, &grpcstats.ConnEnd{Client: client})
		}

		for _, rpc := range rpcs {
			h.HandleRPC(rpc, &grpcstats.End{Client: client})
		}

		s := reg.Snapshot()
		if len(s.Conns) > 0 {
			t.Errorf("live connections: %+v", s.Conns)
		}

		var messages uint64
		for _, r := range s.Total {
			messages += r.Messages
		}

		if messages != counted {
			t.Errorf("%d messages, expected %d", messages, counted)
		}
	})
}

// dynamicHeader is a message whose path to its elements ends early.
func dynamicHeader() any {
	return dynamicpb.NewMessage((&testproto.Header{}).ProtoReflect().Descriptor())
}

// FuzzRepeated hands over messages as a peer may encode them: the parts are those of the naive reading, generated and dynamic.
func FuzzRepeated(f *testing.F) {
	for _, b := range []*testproto.Bundle{
		{}, bundle(getOf("k"), putOf(1)), bundle(&testproto.Command{}, &testproto.Command{}), {Ids: []uint64{1}, Inner: bundle(getOf("k"))},
	} {
		data, err := proto.Marshal(b)
		if err != nil {
			f.Fatal(err)
		}

		f.Add(data, uint32(100), uint32(105))
	}

	f.Add([]byte("\x12\x02\x12\x00\x12\x04\x1a\x00\x12\x00\x12\x03\x98\x06\x01"), uint32(1), uint32(1<<32-1))

	f.Fuzz(func(t *testing.T, data []byte, wire, size uint32) {
		generated := &testproto.Bundle{}
		dynamic := dynamicpb.NewMessage(generated.ProtoReflect().Descriptor())

		if proto.Unmarshal(data, generated) != nil || proto.Unmarshal(data, dynamic) != nil {
			return
		}

		want := byVariant{}
		if err := naive(want, asMessages(generated.GetCommands()), kindOf, int(wire), int(size)); err != nil {
			t.Fatal(err)
		}

		for kind, payload := range map[string]any{"generated": generated, "dynamic": dynamic} {
			for sink, start := range recorders(t, otelproto.WithVariantField("otelproto.test.Bundle", "commands.kind")) {
				h, recorded := start()
				h.HandleRPC(begin(h), &grpcstats.InPayload{Payload: payload, Length: int(size), WireLength: int(wire)})
				diff(t, kind+", "+sink, recorded(), map[string]byVariant{"otelproto.test.Bundle": want})
			}
		}
	})
}
