package channel

import (
	"net"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Class says what a failed RPC tells about the connection that it ran on.
type Class uint8

const (
	// NeverSent says: no HTTP/2 stream was created for the RPC, so no server can
	// have seen it. The connection was missing, and grpc-go is looking for
	// another. Any method may be tried again.
	NeverSent Class = iota + 1
	// Application says: something that speaks gRPC answered, or nothing points at
	// the connection. The connection is as good as any other.
	Application
	// Suspect says: an HTTP proxy answered in the server's place over a live
	// connection. Another connection may be routed elsewhere, so
	// WithUnavailableThreshold of these in a row replace the connection.
	Suspect
	// TransportLost says: the connection or the stream broke after the RPC went
	// out. grpc-go reconnects by itself; only a method that is declared
	// idempotent may be tried again.
	TransportLost
	// Closed says: the grpc.ClientConn was closed under the RPC. The channel dials
	// another.
	Closed
	// Caller says: the RPC's own context or deadline ended it, or it could not be
	// sent as it was. Nothing is concluded.
	Caller
)

// String gives the name that the documentation uses.
func (c Class) String() string {
	switch c {
	case NeverSent:
		return "NeverSent"
	case Application:
		return "Application"
	case Suspect:
		return "Suspect"
	case TransportLost:
		return "TransportLost"
	case Closed:
		return "Closed"
	case Caller:
		return "Caller"
	default:
		return "Class(?)"
	}
}

// Failure is what one failed RPC saw. A classifier must not keep or change
// the metadata.
type Failure struct {
	Method  string             // "/package.Service/Method"
	Err     error              // status.FromError works on it
	Peer    net.Addr           // nil: no stream was created, the RPC was never sent
	Header  metadata.MD        // response header, as far as one came
	Trailer metadata.MD        // trailer; of a trailers-only response it has the content-type
	State   connectivity.State // of the grpc.ClientConn, after the failure
}

// The texts of grpc-go v1.85.0 by which failures are told apart that have
// neither a header nor a trailer: the status is then made by grpc-go itself,
// not by the peer. TestFailuresOnRealSocketsMatchTheTable provokes each.
const (
	textConnClosing = "grpc: the client connection is closing"               // clientconn.go, ErrClientConnClosing
	textHTTPStatus  = "unexpected HTTP status code received from server: "   // internal/transport/http2_client.go, operateHeaders
	textReset       = "stream terminated by RST_STREAM with error code: "    // the same, handleRSTStream
	textConnError   = "connection error: desc = "                            // internal/transport/transport.go, ConnectionError
	textReadError   = "error reading from server: "                          // http2_client.go, reader
	textClosing     = "transport is closing"                                 // transport.go, ErrConnClosing
	textCloseReason = "closing transport due to: "                           // http2_client.go, Close after a GOAWAY
	textPing        = "keepalive ping failed to receive ACK within timeout"  // http2_client.go, keepalive
	textDraining    = "the connection is draining"                           // transport.go, errStreamDrain
	textRejected    = "the stream is rejected because server is draining"    // transport.go, statusGoAway
	textStuckWriter = "closing connection since the server is not reading: " // http2_client.go, reader
)

// rule is one row of the table in docs/channel.md. The first row that matches
// decides.
type rule struct {
	name  string
	class Class
	match func(f *Failure, code codes.Code, text string) bool
}

// rules is the failure-class table. It is a function and not a variable so
// that nothing can change it.
func rules() [10]rule {
	return [10]rule{
		{"answered in gRPC", Application, func(f *Failure, _ codes.Code, _ string) bool {
			return isGRPC(f.Header) || isGRPC(f.Trailer)
		}},
		{"client connection closed", Closed, func(_ *Failure, code codes.Code, text string) bool {
			return code == codes.Canceled && text == textConnClosing
		}},
		{"reset by the peer", TransportLost, func(f *Failure, _ codes.Code, text string) bool {
			return f.Peer != nil && strings.HasPrefix(text, textReset)
		}},
		{"cancelled or out of time", Caller, func(_ *Failure, code codes.Code, _ string) bool {
			return code == codes.Canceled || code == codes.DeadlineExceeded
		}},
		{"no connection", NeverSent, func(f *Failure, code codes.Code, _ string) bool {
			return f.Peer == nil && code == codes.Unavailable
		}},
		{"refused before sending", Caller, func(f *Failure, _ codes.Code, _ string) bool {
			return f.Peer == nil
		}},
		{"HTTP 429, 502, 503 or 504, connection ready", Suspect, func(f *Failure, _ codes.Code, text string) bool {
			return isProxyStatus(text) && f.State == connectivity.Ready
		}},
		{"HTTP 429, 502, 503 or 504, connection gone", TransportLost, func(_ *Failure, _ codes.Code, text string) bool {
			return isProxyStatus(text)
		}},
		{"connection lost", TransportLost, func(_ *Failure, code codes.Code, text string) bool {
			return code == codes.Unavailable && isTransportText(text)
		}},
		{"anything else", Application, func(*Failure, codes.Code, string) bool { return true }},
	}
}

// Classify is the default classifier: the table in docs/channel.md. A
// classifier of one's own (WithClassifier) falls back on it.
func Classify(f Failure) Class {
	_, class := classify(&f)
	return class
}

func classify(f *Failure) (name string, class Class) {
	s := status.Convert(f.Err)
	code, text := s.Code(), s.Message()
	table := rules()
	for i := range table {
		if table[i].match(f, code, text) {
			return table[i].name, table[i].class
		}
	}
	panic("bug: the last rule matches everything")
}

// AnyUnavailable is a preset for WithClassifier: every UNAVAILABLE is
// suspect, whoever answered it. It is for targets behind a proxy that speaks
// gRPC itself ("no healthy upstream"), which looks like the application. The
// price: an application that answers UNAVAILABLE for a good reason has its
// connections replaced, at the pace of the backoff and no faster.
func AnyUnavailable(f Failure) Class {
	if status.Code(f.Err) == codes.Unavailable {
		return Suspect
	}
	return Classify(f)
}

// isGRPC reports whether a header or a trailers-only trailer was written by
// something that speaks gRPC. grpc-go keeps the content-type in the metadata
// only if it begins with application/grpc.
func isGRPC(md metadata.MD) bool {
	for _, v := range md["content-type"] {
		if strings.HasPrefix(v, "application/grpc") {
			return true
		}
	}
	return false
}

// isProxyStatus matches the status that grpc-go makes of an HTTP response
// without a gRPC content-type. The code that follows it isn't looked at: all
// four map to UNAVAILABLE.
func isProxyStatus(text string) bool {
	rest, ok := strings.CutPrefix(text, textHTTPStatus)
	if !ok || len(rest) < 3 {
		return false
	}
	switch rest[:3] {
	case "429", "502", "503", "504":
		return true
	default:
		return false
	}
}

func isTransportText(text string) bool {
	for _, prefix := range [...]string{
		textConnError, textReadError, textClosing, textCloseReason, textPing, textDraining, textRejected, textStuckWriter,
	} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}
