package services_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	gnmipb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmi/testing/fake/gnmi"
	fakepb "github.com/openconfig/gnmi/testing/fake/proto"

	"github.com/otelproto/otelproto-go/stats"
)

var gnmiNames = oneOf(
	of("gnmi.SubscribeRequest", func(m *gnmipb.SubscribeRequest) string {
		switch m.GetRequest().(type) {
		case *gnmipb.SubscribeRequest_Subscribe:
			return "subscribe"
		case *gnmipb.SubscribeRequest_Poll:
			return "poll"
		default:
			return ""
		}
	}),
	of("gnmi.SubscribeResponse", func(m *gnmipb.SubscribeResponse) string {
		switch m.GetResponse().(type) {
		case *gnmipb.SubscribeResponse_Update:
			return "update"
		case *gnmipb.SubscribeResponse_SyncResponse:
			return "sync_response"
		case *gnmipb.SubscribeResponse_Error:
			return "error"
		default:
			return ""
		}
	}),
)

// startGNMI starts the fake agent with n updates, and subscribes to it.
func startGNMI(t *testing.T, s *sides, n int) gnmipb.GNMI_SubscribeClient {
	t.Helper()

	var updates []*gnmipb.SubscribeResponse
	for i := range n {
		updates = append(updates, &gnmipb.SubscribeResponse{Response: &gnmipb.SubscribeResponse_Update{Update: &gnmipb.Notification{
			Timestamp: int64(i),
			Update: []*gnmipb.Update{{
				Path: &gnmipb.Path{Elem: []*gnmipb.PathElem{{Name: "a"}, {Name: strings.Repeat("name", i%100)}}},
				Val:  &gnmipb.TypedValue{Value: &gnmipb.TypedValue_IntVal{IntVal: int64(i)}},
			}},
		}}})
	}

	updates = append(updates, &gnmipb.SubscribeResponse{Response: &gnmipb.SubscribeResponse_SyncResponse{SyncResponse: true}})
	agent, err := gnmi.New(&fakepb.Config{
		Target: "target", ClientType: fakepb.Config_GRPC_GNMI,
		Generator: &fakepb.Config_Fixed{Fixed: &fakepb.FixedGenerator{Responses: updates}},
	}, s.serve)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(agent.Close)

	stream, err := gnmipb.NewGNMIClient(s.connect(t, agent.Address())).Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if err := stream.Send(&gnmipb.SubscribeRequest{Request: &gnmipb.SubscribeRequest_Subscribe{Subscribe: &gnmipb.SubscriptionList{
		Mode:         gnmipb.SubscriptionList_STREAM,
		Subscription: []*gnmipb.Subscription{{Path: &gnmipb.Path{Elem: []*gnmipb.PathElem{{Name: "a"}}}}},
	}}}); err != nil {
		t.Fatal(err)
	}

	return stream
}

func TestGNMISubscriptions(t *testing.T) {
	s := newSides("gNMI", gnmiNames, false)
	stream := startGNMI(t, s, 40)

	synced := false

	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		synced = synced || r.GetSyncResponse()
	}

	if !synced {
		t.Error("no sync_response")
	}

	s.check(t, same)
	s.tabulate(t)
}

// A reader that leaves has received less than was sent: each end counts its own.
func TestGNMIClientThatLeaves(t *testing.T) {
	s := newSides("gNMI, the client leaves", gnmiNames, false)
	stream := startGNMI(t, s, 400)

	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}

	s.check(t, nil)
	s.tabulate(t)

	update := stats.Key{Method: "gnmi.gNMI/Subscribe", Type: "gnmi.SubscribeResponse", Variant: "update", Direction: stats.Receive}
	if received := s.client.rows()[update].Messages; received != 1 {
		t.Errorf("%d messages received, expected 1", received)
	}

	update.Direction = stats.Transmit
	eventually(t, "sent", func() string {
		if sent := s.server.rows()[update].Messages; sent <= 1 {
			return fmt.Sprint(sent, " messages")
		}

		return ""
	})
}
