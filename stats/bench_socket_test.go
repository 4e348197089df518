//go:build unix

package stats_test

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/stats"
)

// Saturated streams over loopback with and without the counting listener and dialer, in turns: 100-byte and 64-KiB messages. Both
// ends are in this process, so its CPU time is what a message takes, whatever else the machine does meanwhile.
func BenchmarkSocketThroughput(b *testing.B) {
	for _, size := range []int{100, 64 << 10} {
		b.Run(fmt.Sprintf("message=%d", size), func(b *testing.B) {
			r := stats.NewRegistry()
			counted := stream(b, r.Listener, grpc.WithContextDialer(r.DialContext))
			bare := stream(b, func(l net.Listener) net.Listener { return l }, grpc.EmptyDialOption{})
			m := &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: make([]byte, size)}}}
			n := max(500, 1<<20/size)

			measure := func(s grpc.BidiStreamingClient[testproto.Command, testproto.Reply]) float64 {
				start := cpuTime(b)

				for range n {
					if err := s.Send(m); err != nil {
						b.Fatal(err)
					}
				}

				// The answer to the last one tells that all have come.
				if err := s.Send(&testproto.Command{Id: "last"}); err != nil {
					b.Fatal(err)
				}

				if _, err := s.Recv(); err != nil {
					b.Fatal(err)
				}

				return float64((cpuTime(b) - start).Nanoseconds()) / float64(n)
			}

			var with, without []float64

			for i := 0; b.Loop(); i++ {
				if i%2 == 0 {
					with, without = append(with, measure(counted)), append(without, measure(bare))
				} else {
					without, with = append(without, measure(bare)), append(with, measure(counted))
				}
			}

			ratio(b, with, without, "counted", "bare")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()

	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sink answers only the last command.
type sink struct{ grpctest.Echo }

func (sink) Bidi(s grpc.BidiStreamingServer[testproto.Command, testproto.Reply]) error {
	for {
		c, err := s.Recv()
		if err == io.EOF { //nolint:errorlint // it is that very value
			return nil
		}

		if err != nil {
			return err
		}

		if c.GetId() == "last" {
			if err := s.Send(&testproto.Reply{}); err != nil {
				return err
			}
		}
	}
}

func stream(
	b *testing.B, wrap func(net.Listener) net.Listener, dial grpc.DialOption,
) grpc.BidiStreamingClient[testproto.Command, testproto.Reply] {
	b.Helper()

	p := grpctest.New(b, grpctest.Options{Listener: wrap(listen(b)), Service: sink{}, Dial: []grpc.DialOption{dial}})

	s, err := p.Client.Bidi(b.Context())
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() { _ = s.CloseSend(); p.Close() })

	return s
}
