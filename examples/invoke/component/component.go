// Package component serves what workers are made of: its versions, and what each of them can do.
package component

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
)

const interfaceBytes = 4 << 10

// A Service has version 1 when it is made. Its methods may be called from any goroutine.
type Service struct {
	invokepb.UnimplementedComponentsServer

	later atomic.Uint64 // versions after the first
}

// Publish adds a version and returns its number.
func (s *Service) Publish() uint64 { return s.later.Add(1) + 1 }

// Latest is the number of the newest version.
func (s *Service) Latest() uint64 { return s.later.Load() + 1 }

// LatestVersion implements invokepb.ComponentsServer.
func (s *Service) LatestVersion(context.Context, *invokepb.LatestVersionRequest) (*invokepb.LatestVersionResponse, error) {
	return &invokepb.LatestVersionResponse{Version: s.Latest()}, nil
}

// Metadata implements invokepb.ComponentsServer.
func (s *Service) Metadata(_ context.Context, request *invokepb.MetadataRequest) (*invokepb.MetadataResponse, error) {
	version := request.GetVersion()
	if version < 1 || version > s.Latest() {
		return nil, status.Errorf(codes.NotFound, "component: there is no version %d", version)
	}
	exports := []string{"add", "write"}
	if version > 1 {
		exports = append(exports, "read") // as programs grow
	}
	return &invokepb.MetadataResponse{Version: version, Exports: exports, Interface: make([]byte, interfaceBytes)}, nil
}
