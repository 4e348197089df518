package stats_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/otelproto/otelproto-go/stats"
)

// A frame of the example's protocol: four bytes of length, one of command, the payload.
const frameHeader = 5

var commands = map[byte]string{'P': "Put", 'G': "Get", 'V': "Value"}

// framed is one end of a connection that counts its frames.
type framed struct {
	net.Conn

	in   *bufio.Reader
	conn *stats.Conn
	// One series for each direction and command, since looking one up takes a lock and recording doesn't.
	series map[stats.Key]*stats.Series
}

func newFramed(reg *stats.Registry, c net.Conn, client bool) *framed {
	// The addresses are those of the counted socket, so this joins it: same connection, same number.
	conn := reg.Open(stats.ConnInfo{Client: client, Local: c.LocalAddr(), Remote: c.RemoteAddr(), Authority: "kv.example"})

	return &framed{Conn: c, in: bufio.NewReader(c), conn: conn, series: make(map[stats.Key]*stats.Series)}
}

func (f *framed) count(ctx context.Context, direction stats.Direction, command byte, size int) {
	k := stats.Key{Method: "kv", Direction: direction, Type: "kv." + commands[command]}

	s := f.series[k]
	if s == nil {
		s = f.conn.Series(k)
		f.series[k] = s
	}

	s.Record(ctx, frameHeader+size, size)
}

func (f *framed) send(ctx context.Context, command byte, payload []byte) error {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
	frame = append(append(frame, command), payload...)
	f.count(ctx, stats.Transmit, command, len(payload))
	_, err := f.Write(frame)

	return err
}

func (f *framed) receive(ctx context.Context) (command byte, payload []byte, err error) {
	var header [frameHeader]byte
	if _, err = io.ReadFull(f.in, header[:]); err != nil {
		return 0, nil, err
	}

	payload = make([]byte, binary.BigEndian.Uint32(header[:4]))
	_, err = io.ReadFull(f.in, payload)
	f.count(ctx, stats.Receive, header[4], len(payload))

	return header[4], payload, err
}

func (f *framed) Close() error {
	defer f.conn.Close()

	return f.Conn.Close()
}

// A protocol of our own on TCP, in the same registry as gRPC: frames by command, and the socket's bytes beside them.
func Example_lengthPrefixed() {
	ctx := context.Background()
	reg := stats.NewRegistry()

	var lc net.ListenConfig

	lis, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)

		return
	}

	lis = reg.Listener(lis)

	var server sync.WaitGroup

	server.Go(func() {
		c, err := lis.Accept()
		if err != nil {
			return
		}

		f := newFramed(reg, c, false)
		defer f.Close()

		_, _ = io.ReadFull(f.in, make([]byte, 4)) // the greeting, which is no frame

		for {
			command, payload, err := f.receive(ctx)
			if err != nil {
				return
			}

			if command == 'G' {
				_ = f.send(ctx, 'V', payload)
			}
		}
	})

	c, err := reg.DialContext(ctx, lis.Addr().String())
	if err != nil {
		fmt.Println(err)

		return
	}

	client := newFramed(reg, c, true)
	_, _ = client.Write([]byte("KV1\n"))

	for range 3 {
		_ = client.send(ctx, 'P', make([]byte, 995))
	}

	_ = client.send(ctx, 'G', make([]byte, 45))

	if _, _, err := client.receive(ctx); err != nil {
		fmt.Println(err)
	}

	_ = client.Close()
	server.Wait()

	s := reg.Snapshot()
	for _, row := range s.Total {
		if row.Client {
			fmt.Printf("%s %s: %d messages, %d bytes\n", row.Key.Direction, row.Key.Type, row.Messages, row.Wire.Sum)
		}
	}

	read, written := s.Sockets.Overhead()
	fmt.Printf("both ends wrote %d bytes, %d of them no messages; read %d, %d\n", s.Sockets.Written, written, s.Sockets.Read, read)
	// Output:
	// transmit kv.Put: 3 messages, 3000 bytes
	// transmit kv.Get: 1 messages, 50 bytes
	// receive kv.Value: 1 messages, 50 bytes
	// both ends wrote 3104 bytes, 4 of them no messages; read 3104, 4
}

// A window between two snapshots: what changed, at which rate, and who has which share.
func ExampleSnapshot_Sub() {
	reg := stats.NewRegistry()
	conn := reg.Open(stats.ConnInfo{})
	puts := conn.Series(stats.Key{Method: "kv/Put", Direction: stats.Receive, Type: "kv.PutRequest"})
	pings := conn.Series(stats.Key{Method: "kv/Ping", Direction: stats.Receive, Type: "kv.Ping"})
	puts.Record(context.Background(), 1_000, 995)

	before := reg.Snapshot()

	for range 9 {
		puts.Record(context.Background(), 100, 95)
	}

	pings.Record(context.Background(), 100, 300)

	window := reg.Snapshot().Sub(before)
	for _, row := range window.Total {
		fmt.Printf("%s: %d messages, %.0f %% of the bytes, mean %.0f, ratio %.2f\n",
			row.Key.Type, row.Messages, 100*window.Share(row), row.Wire.Mean(), row.Ratio())
	}
	// Output:
	// kv.PutRequest: 9 messages, 90 % of the bytes, mean 100, ratio 0.95
	// kv.Ping: 1 messages, 10 % of the bytes, mean 100, ratio 3.00
}
