package channel

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrClosed is what every use of a Conn or a Cache reports after Close, and
// what the RPCs that Close ended report. The error that wraps it names the
// target and carries the gRPC code Canceled, as a closed grpc.ClientConn does.
var ErrClosed = errors.New("channel: closed")

// errGone says that a core was given up (idle, evicted, forgotten, closed)
// and that the handle has to look for its successor. It never leaves the
// package.
var errGone = errors.New("channel: target given up")

// closedError is ErrClosed with the target that it happened to.
type closedError struct{ target string }

func (e *closedError) Error() string { return fmt.Sprintf("channel: %s: closed", e.target) }
func (e *closedError) Unwrap() error { return ErrClosed }

// GRPCStatus makes status.FromError and status.Code work on the error.
func (e *closedError) GRPCStatus() *status.Status {
	return status.New(codes.Canceled, e.Error())
}

// targetError is an error about a target that is also a gRPC status.
type targetError struct {
	target string
	code   codes.Code
	text   string
	cause  error
}

func (e *targetError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("channel: %s: %s", e.target, e.text)
	}
	return fmt.Sprintf("channel: %s: %s: %v", e.target, e.text, e.cause)
}
func (e *targetError) Unwrap() error { return e.cause }

// GRPCStatus makes status.FromError and status.Code work on the error.
func (e *targetError) GRPCStatus() *status.Status { return status.New(e.code, e.Error()) }
