package stats

import (
	"fmt"
	"net"
	"strings"
	"unicode/utf8"
)

// Other stands for every method, type and variant beyond a limit.
const Other = "_OTHER"

// maxName is the longest string, in bytes, that a key keeps: a longer one is cut, so that
// names that a peer chooses can't fill the memory.
const maxName = 1024

// Direction is the way of a message as this process sees it.
type Direction uint8

const (
	// Transmit is a message that this process sent.
	Transmit Direction = iota
	// Receive is a message that this process received.
	Receive
)

// String gives the value of the attribute network.io.direction.
func (d Direction) String() string {
	switch d {
	case Transmit:
		return "transmit"
	case Receive:
		return "receive"
	default:
		return fmt.Sprintf("Direction(%d)", uint8(d))
	}
}

// MarshalText makes a direction readable in JSON.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what [Direction.MarshalText] wrote.
func (d *Direction) UnmarshalText(text []byte) error {
	switch string(text) {
	case "transmit":
		*d = Transmit
	case "receive":
		*d = Receive
	default:
		return fmt.Errorf("stats: direction %q, expected transmit or receive", text)
	}

	return nil
}

// ConnInfo tells which connection a series belongs to. Addresses may be nil where a transport has none.
type ConnInfo struct {
	// Client is true where this process is the client of the connection.
	Client bool
	// Local and Remote are the ends of the connection.
	Local, Remote net.Addr
	// Authority is what a client calls the server, host or host:port; empty on a server.
	Authority string
}

// Key names one series within a connection.
type Key struct {
	// Method is package.Service/Method, without a leading slash.
	Method string
	// Direction is the message's way.
	Direction Direction
	// Type is the full protobuf name of the message, or what another protocol calls it.
	Type string
	// Variant is the command inside an envelope; empty where there is none.
	Variant string
	// Retry is true for the messages of a repeated attempt.
	Retry bool
}

// beyond is the key that stands for k once the limit of keys is reached.
func (k Key) beyond() Key {
	return Key{Method: Other, Direction: k.Direction, Type: Other, Variant: "", Retry: k.Retry}
}

// clean cuts the key's strings to maxName and makes them valid UTF-8, without which exporters refuse them.
func (k Key) clean() Key {
	k.Method, k.Type, k.Variant = cleanName(k.Method), cleanName(k.Type), cleanName(k.Variant)

	return k
}

func cleanName(s string) string {
	if len(s) <= maxName && utf8.ValidString(s) {
		return strings.Clone(s) // the caller's string may be part of a payload, which must not be retained
	}

	s = strings.ToValidUTF8(s[:min(len(s), maxName)], "\uFFFD")
	for len(s) > maxName || !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}

	return s
}
