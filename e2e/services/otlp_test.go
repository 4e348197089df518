package services_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configmiddleware"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/extension/extensionmiddleware"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"

	"github.com/otelproto/otelproto-go/stats"
)

const (
	exportRequest  = "opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest"
	exportResponse = "opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceResponse"
)

// The collector reads OTLP with structs of its own, which say nothing of protobuf.
var otlpNames = oneOf(
	of[*collectorpb.ExportMetricsServiceRequest](exportRequest, nil),
	of[*collectorpb.ExportMetricsServiceResponse](exportResponse, nil),
	func(payload any) (string, string, int) {
		switch fmt.Sprintf("%T", payload) {
		case "*internal.ExportMetricsServiceRequest", "*internal.ExportMetricsServiceResponse":
			return "_OPAQUE", "", -1
		default:
			return "", "", -1
		}
	},
)

// middleware is an extension of the collector that adds options to its servers.
type middleware struct {
	component.StartFunc
	component.ShutdownFunc
	extensionmiddleware.GetGRPCServerOptionsFunc
}

// host is a collector with one extension.
type host struct {
	component.Host

	extensions map[component.ID]component.Component
}

func (h host) GetExtensions() map[component.ID]component.Component { return h.extensions }

// sink adds up what arrives, by the size that the collector's own marshaller computes.
type sink struct {
	mu       sync.Mutex
	requests uint64
	bytes    uint64
}

func (s *sink) consume(_ context.Context, m pmetric.Metrics) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.requests++
	s.bytes += uint64((&pmetric.ProtoMarshaler{}).MetricsSize(m))

	return nil
}

func TestTheCollectorsReceiverFedByTheSDKsExporter(t *testing.T) {
	for name, opts := range map[string][]otlpmetricgrpc.Option{"plain": nil, "gzip": {otlpmetricgrpc.WithCompressor("gzip")}} {
		t.Run(name, func(t *testing.T) {
			s := newSides("OTLP receiver, "+name, otlpNames, opts != nil)
			received := &sink{}
			addr := startReceiver(t, s, received)

			exporter, err := otlpmetricgrpc.New(t.Context(), append(opts, otlpmetricgrpc.WithInsecure(),
				otlpmetricgrpc.WithEndpoint(addr), otlpmetricgrpc.WithDialOption(s.dial...))...)
			if err != nil {
				t.Fatal(err)
			}

			provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))

			t.Cleanup(func() { provider.Shutdown(context.WithoutCancel(t.Context())) })

			for i := range 5 {
				counter, err := provider.Meter("meter").Int64Histogram(fmt.Sprint("histogram", i))
				if err != nil {
					t.Fatal(err)
				}

				for n := range 100 {
					counter.Record(t.Context(), int64(n))
				}

				if err := provider.ForceFlush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			s.check(t, func(k stats.Key) stats.Key {
				k.Type = exportRequest
				if k.Direction == stats.Receive {
					k.Type = exportResponse
				}

				return k
			})
			s.tabulate(t)

			sent := s.client.rows()[stats.Key{
				Method: "opentelemetry.proto.collector.metrics.v1.MetricsService/Export", Direction: stats.Transmit, Type: exportRequest,
			}]
			if sent.Messages != received.requests || sent.Size != received.bytes || sent.Messages != 5 {
				t.Errorf("sent %+v, the collector's consumer has %d requests of %d bytes", sent, received.requests, received.bytes)
			}

			if compressed := opts != nil; compressed && sent.Wire >= sent.Size {
				t.Errorf("compressed: %+v", sent)
			}
		})
	}
}

// startReceiver starts the collector's OTLP receiver with our server handler and gives its address.
func startReceiver(t *testing.T, s *sides, to *sink) string {
	t.Helper()

	factory := otlpreceiver.NewFactory()

	cfg, ok := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	if !ok {
		t.Fatal("otlpreceiver has another config")
	}

	id := component.MustNewID("handlers")
	addr := freeAddr(t)
	grpcCfg := cfg.Protocols.GRPC.GetOrInsertDefault()
	grpcCfg.NetAddr.Endpoint = addr
	grpcCfg.Middlewares = []configmiddleware.Config{{ID: id}}

	next, err := consumer.NewMetrics(to.consume)
	if err != nil {
		t.Fatal(err)
	}

	receiver, err := factory.CreateMetrics(t.Context(), receivertest.NewNopSettings(factory.Type()), cfg, next)
	if err != nil {
		t.Fatal(err)
	}

	extension := middleware{GetGRPCServerOptionsFunc: func(context.Context) ([]grpc.ServerOption, error) { return s.serve, nil }}

	collector := host{componenttest.NewNopHost(), map[component.ID]component.Component{id: extension}}

	if err := receiver.Start(t.Context(), collector); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := receiver.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})

	return addr
}
