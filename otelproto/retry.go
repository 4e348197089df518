package otelproto

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
)

// DialOptions gives what a ClientConn needs: the handler of [NewClientHandler], and interceptors that count the attempts
// of each call, without which nothing tells a handler that an attempt is a retry by the service config's policy.
// The interceptors add to those that are already there, and cost one allocation a call.
func DialOptions(opts ...Option) []grpc.DialOption {
	h := newHandler(true, opts)

	return []grpc.DialOption{
		grpc.WithStatsHandler(h),
		grpc.WithChainUnaryInterceptor(h.interceptUnary),
		grpc.WithChainStreamInterceptor(h.interceptStream),
	}
}

// call counts the attempts of one call, and is its context.
type call struct {
	context.Context //nolint:containedctx // it is the context

	h        *handler
	attempts atomic.Int32
}

// Value gives the state itself, so that it costs no second allocation.
func (c *call) Value(key any) any {
	if k, ok := key.(callKey); ok && k.h == c.h {
		return c
	}

	return c.Context.Value(key)
}

func (h *handler) interceptUnary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return invoker(&call{Context: ctx, h: h}, method, req, reply, cc, opts...)
}

func (h *handler) interceptStream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return streamer(&call{Context: ctx, h: h}, desc, cc, method, opts...)
}
