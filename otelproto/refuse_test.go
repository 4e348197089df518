package otelproto_test

import (
	"encoding/binary"
	"io"
	"net"
)

// The frames of HTTP/2 that refuse needs (RFC 9113, section 6).
const (
	frameData      = 0
	frameRSTStream = 3
	frameSettings  = 4
	frameGoAway    = 7

	preface       = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	flagAck       = 1
	refusedStream = 7
)

// refuse speaks just enough HTTP/2 to refuse the first stream once its first data has come, and to say goodbye then.
func refuse(c net.Conn) {
	defer c.Close()

	write := func(kind, flags byte, stream uint32, payload []byte) {
		frame := make([]byte, 0, 9+len(payload))
		frame = append(frame, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
		frame = binary.BigEndian.AppendUint32(frame, stream)
		_, _ = c.Write(append(frame, payload...))
	}

	if _, err := io.ReadFull(c, make([]byte, len(preface))); err != nil {
		return
	}

	write(frameSettings, 0, 0, nil)

	for {
		header := make([]byte, 9)
		if _, err := io.ReadFull(c, header); err != nil {
			return
		}

		length := int(header[0])<<16 | int(header[1])<<8 | int(header[2])
		if _, err := io.ReadFull(c, make([]byte, length)); err != nil {
			return
		}

		switch header[3] {
		case frameSettings:
			if header[4]&flagAck == 0 {
				write(frameSettings, flagAck, 0, nil)
			}
		case frameData:
			write(frameGoAway, 0, 0, make([]byte, 8)) // no stream was handled, no error
			write(frameRSTStream, 0, binary.BigEndian.Uint32(header[5:]), binary.BigEndian.AppendUint32(nil, refusedStream))
		}
	}
}
