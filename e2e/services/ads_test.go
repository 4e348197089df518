package services_test

import (
	"fmt"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/otelproto/otelproto-go/otelproto"
)

var adsNames = oneOf(
	of("envoy.service.discovery.v3.DiscoveryRequest", (*discovery.DiscoveryRequest).GetTypeUrl),
	of("envoy.service.discovery.v3.DiscoveryResponse", (*discovery.DiscoveryResponse).GetTypeUrl),
)

func snapshot(t *testing.T, version string, n int) cache.ResourceSnapshot {
	t.Helper()

	var clusters, routes []types.Resource
	for i := range n {
		clusters = append(clusters, &clusterpb.Cluster{Name: fmt.Sprint("cluster-", i), AltStatName: version})
		routes = append(routes, &routepb.RouteConfiguration{Name: fmt.Sprint("route-", i)})
	}

	s, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.ClusterType: clusters, resource.RouteType: routes})
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func TestADSByTypeURL(t *testing.T) {
	s := newSides("go-control-plane, ADS", adsNames, false,
		otelproto.WithVariantField("envoy.service.discovery.v3.DiscoveryRequest", "type_url"),
		otelproto.WithVariantField("envoy.service.discovery.v3.DiscoveryResponse", "type_url"))
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)

	if err := snapshots.SetSnapshot(t.Context(), "node", snapshot(t, "1", 3)); err != nil {
		t.Fatal(err)
	}

	xds := server.NewServer(t.Context(), snapshots, nil)
	addr := s.start(t, func(r *grpc.Server) { discovery.RegisterAggregatedDiscoveryServiceServer(r, xds) })

	stream, err := discovery.NewAggregatedDiscoveryServiceClient(s.connect(t, addr)).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	node := &corepb.Node{Id: "node"}
	request := func(typeURL, version, nonce string) {
		t.Helper()

		if err := stream.Send(&discovery.DiscoveryRequest{
			Node: node, TypeUrl: typeURL, VersionInfo: version, ResponseNonce: nonce,
		}); err != nil {
			t.Fatal(err)
		}
	}
	// acknowledge receives two answers, one of each type.
	acknowledge := func(version string, resources int) {
		t.Helper()

		for range 2 {
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}

			if r.GetVersionInfo() != version || len(r.GetResources()) != resources {
				t.Fatalf("version %s with %d resources", r.GetVersionInfo(), len(r.GetResources()))
			}

			request(r.GetTypeUrl(), version, r.GetNonce())
		}
	}

	request(resource.ClusterType, "", "")
	request(resource.RouteType, "", "")
	acknowledge("1", 3)

	if err := snapshots.SetSnapshot(t.Context(), "node", snapshot(t, "2", 50)); err != nil {
		t.Fatal(err)
	}

	acknowledge("2", 50)

	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}

	if r, err := stream.Recv(); err == nil {
		t.Fatalf("%v after the end", r)
	}

	s.check(t, same)
	s.tabulate(t)
}
