package channel

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// call is one RPC over all its attempts. It travels to the interceptors as a
// call option, which grpc ignores and interceptors pass on.
type call struct {
	grpc.EmptyCallOption

	method       string
	waitForReady bool
	once         bool // not to be tried again

	// g is the generation of the current attempt, with its probe if it has
	// one.
	g     *generation
	probe *probe

	// seen counts the attempts that reached grpc with our options. Without
	// any, an interceptor answered by itself, or dropped the options, and
	// nothing may be concluded. More than one: an interceptor tries again
	// itself.
	seen atomic.Int32

	// What the last attempt of a unary RPC saw; of a stream, what a failed
	// NewStream saw.
	peer            peer.Peer
	header, trailer metadata.MD
	withHeader      bool

	opts  []grpc.CallOption
	array [6]grpc.CallOption // room for opts, so that most calls allocate once
}

func (cl *call) init(method string, opts []grpc.CallOption, retry bool) {
	cl.method = method
	cl.once = !retry
	cl.opts = append(cl.array[:0], opts...)
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.FailFastCallOption:
			cl.waitForReady = !o.FailFast
		case grpc.OnFinishCallOption:
			cl.once = true // promised to run once per RPC
		}
	}
	cl.opts = append(cl.opts, cl)
}

// ask adds the options that read what the attempt saw. The header costs
// three allocations, the trailer one, so the header is asked for only when
// something is suspected already, or always if the configuration needs it.
func (cl *call) ask(g *generation) []grpc.CallOption {
	cl.g = g
	cl.peer = peer.Peer{}
	cl.header, cl.trailer = nil, nil
	cl.seen.Store(0)
	opts := append(cl.opts, grpc.Peer(&cl.peer), grpc.Trailer(&cl.trailer)) //nolint:gocritic // cl.opts stays as it is
	cl.withHeader = g.suspects.Load() > 0 || g.core.cfg.alwaysHeader()
	if cl.withHeader {
		opts = append(opts, grpc.Header(&cl.header))
	}
	return opts
}

// verdict is what is concluded from a failed attempt.
type verdict struct {
	class     Class
	neverSent bool // a fact, whatever the classifier says
}

// judge classifies a failure of an attempt on g and lets it have its effect.
func (co *core) judge(ctx context.Context, g *generation, f Failure, proven bool) verdict {
	code := status.Code(f.Err)
	answered := isGRPC(f.Header) || isGRPC(f.Trailer)
	if ended(ctx) && (code == codes.Canceled || code == codes.DeadlineExceeded) && !answered {
		return verdict{class: Caller}
	}
	f.State = co.observe(g)
	fact := Classify(f)
	v := verdict{
		class: fact,
		// Closed with a peer may have been sent before it was closed.
		neverSent: fact == NeverSent || fact == Closed && f.Peer == nil,
	}
	if co.cfg.classifier != nil {
		v.class = co.cfg.classifier(f)
	}
	switch v.class {
	case Application:
		if answered { // and not merely without a sign of the connection
			co.succeeded(g)
		}
	case Suspect:
		co.suspected(g, f.Err, proven)
	case Closed:
		co.drop(g, reasonClosed)
	case NeverSent, TransportLost, Caller:
	}
	return v
}

// ended reports whether the context has ended, or is about to: a server that
// was told the deadline may be quicker than our timer.
func ended(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// interceptUnary is the innermost interceptor.
func interceptUnary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	cl := find(opts)
	if cl == nil {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	cl.seen.Add(1)
	if p := cl.probe; p != nil && p.timer == nil {
		if gate := newGate(p, req, opts); gate != nil {
			ctx = p.start(ctx)
			opts = append(slices.Clip(opts), grpc.ForceCodecV2(gate))
		} else {
			p.streamed() // can't be told when; taken for granted
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// interceptStream is the innermost interceptor. Each attempt holds the
// generation itself, since interceptors may make several and outlive
// NewStream, until grpc finishes it: by the final RecvMsg, an error of
// SendMsg, the end of the context, or a failed start.
func interceptStream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, start grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	cl := find(opts)
	if cl == nil {
		return start(ctx, desc, cc, method, opts...)
	}
	a := &streamAttempt{ctx: ctx, g: cl.g, method: method}
	a.g.hold(cl.seen.Add(1) == 1)
	p := cl.probe
	if p != nil && p.timer == nil {
		a.probe = p
		ctx = p.start(ctx)
	}
	opts = append(slices.Clip(opts),
		grpc.Peer(&a.peer), grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.OnFinish(a.finish))
	cs, err := start(ctx, desc, cc, method, opts...)
	if err != nil {
		if a.peer.Addr != nil {
			cl.peer = a.peer
		}
		return nil, err
	}
	if a.probe != nil && !a.probe.streamed() {
		return nil, errMoved // its context has ended, so grpc finishes it
	}
	return cs, nil
}

// find looks for our option, which stands near the end.
func find(opts []grpc.CallOption) *call {
	for _, opt := range slices.Backward(opts) {
		if cl, ok := opt.(*call); ok {
			return cl
		}
	}
	return nil
}

// streamAttempt is one grpc stream.
type streamAttempt struct {
	ctx             context.Context
	g               *generation
	probe           *probe
	method          string
	ended           atomic.Bool
	peer            peer.Peer
	header, trailer metadata.MD
}

// finish is run by grpc when the stream has really ended, after it has
// filled in peer, header and trailer. xDS interceptors may make it run twice.
func (a *streamAttempt) finish(err error) {
	if a.ended.Swap(true) {
		return
	}
	co := a.g.core
	moved := a.probe != nil && a.probe.end()
	switch {
	case moved:
	case err == nil:
		co.succeeded(a.g)
	default:
		co.judge(a.ctx, a.g, Failure{
			Method: a.method, Err: err, Peer: a.peer.Addr, Header: a.header, Trailer: a.trailer,
		}, true)
	}
	a.g.release()
	if a.probe != nil {
		a.probe.leave()
	}
}
