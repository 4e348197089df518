package capture_test

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/otelproto/otelproto-go/internal/grpctest"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/otelproto"
)

// cases are those of the two envelopes, as they stand in the .proto file.
var cases = map[string]bool{"put": true, "get": true, "peek": true, "batch": true, "note": true, "value": true, "error": true}

func TestTsharkSeesWhatTheHandlersRecord(t *testing.T) {
	for name, opts := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)}} {
		t.Run(name, func(t *testing.T) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}

			port := lis.Addr().(*net.TCPAddr).Port
			c := capture(t, port)

			var client, server recorder

			p := grpctest.New(t, grpctest.Options{
				Listener: lis,
				Server:   []grpc.ServerOption{grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithMeterProvider(&server)))},
				Dial:     otelproto.DialOptions(otelproto.WithMeterProvider(&client)),
			})
			workload(t, p.Client, opts...)
			p.Close()
			c.stop(t)

			want := c.decode(t, port, protos(t), cases)
			if len(want) < 300 {
				t.Fatalf("tshark shows %d messages", len(want))
			}

			compressed := 0

			for i := range want {
				if want[i].Compressed {
					compressed++
				}

				nameEmpty(&want[i])
			}

			if (compressed > 0) != (opts != nil) {
				t.Errorf("%d compressed messages", compressed)
			}

			for side, r := range map[string]*recorder{"client": &client, "server": &server} {
				got, faults := r.seen()
				if len(faults) > 0 {
					t.Error(side, faults)
				}

				if d := gocmp.Diff(sorted(want), sorted(got)); d != "" {
					t.Errorf("%s (-tshark +handler):\n%s", side, d)
				}
			}

			t.Logf("%d messages, %d of them compressed: lengths, type and variant on both sides as tshark has them", len(want), compressed)
		})
	}
}

// nameEmpty names a message without a field, in which tshark finds nothing to dissect: the method tells its type.
func nameEmpty(m *message) {
	switch {
	case m.Type != "" || m.Wire != 5:
	case m.Request:
		m.Type = "otelproto.test.Command"
	default:
		m.Type = "otelproto.test.Reply"
	}
}

func sorted(messages []message) []message {
	bit := func(b bool) int {
		if b {
			return 1
		}

		return 0
	}

	return slices.SortedFunc(slices.Values(messages), func(a, b message) int {
		return cmp.Or(cmp.Compare(a.Method, b.Method), cmp.Compare(bit(a.Request), bit(b.Request)), cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.Variant, b.Variant), cmp.Compare(a.Wire, b.Wire), cmp.Compare(a.Size, b.Size))
	})
}

// protos gives a folder with the test service's .proto file, without what tshark has no file for.
func protos(t *testing.T) string {
	t.Helper()

	text, err := os.ReadFile("../../internal/testproto/test.proto")
	if err != nil {
		t.Fatal(err)
	}

	text = bytes.ReplaceAll(text, []byte(`import "google/protobuf/any.proto";`), nil)
	text = bytes.ReplaceAll(text, []byte("google.protobuf.Any"), []byte("bytes"))
	dir := t.TempDir()

	if err := os.WriteFile(filepath.Join(dir, "test.proto"), text, 0o600); err != nil {
		t.Fatal(err)
	}

	return dir
}

// workload makes calls of every shape at once over one connection, with messages of 0 bytes to 1 MiB.
func workload(t *testing.T, client testproto.TestClient, opts ...grpc.CallOption) {
	t.Helper()

	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)

	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			all := commands(rand.New(rand.NewPCG(seed, uint64(worker))))
			if worker == 0 {
				all = append(all, put(make([]byte, 1<<20)))
			}

			if err := talk(t, client, all, opts...); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()
}

func put(value []byte) *testproto.Command {
	return &testproto.Command{Id: "...", Kind: &testproto.Command_Put{Put: &testproto.Put{Value: value}}}
}

func commands(random *rand.Rand) []*testproto.Command {
	text := func(n int) []byte {
		value := make([]byte, n)
		for i := range value {
			value[i] = "abcd"[random.IntN(4)] // so that gzip gains something, and not all the same
		}

		return value
	}
	all := []*testproto.Command{
		{},
		{Kind: &testproto.Command_Get{Get: &testproto.Get{Key: "key"}}},
		{Kind: &testproto.Command_Peek{Peek: &testproto.Get{Key: strings.Repeat("k", 300)}}},
		{Kind: &testproto.Command_Note{Note: "note"}},
		{Kind: &testproto.Command_Batch{Batch: &testproto.Batch{Commands: []*testproto.Command{put(text(10))}}}},
		put(nil),
	}

	for range 20 {
		all = append(all, put(text(random.IntN(1<<random.IntN(17)))))
	}

	return all
}

func talk(t *testing.T, client testproto.TestClient, commands []*testproto.Command, opts ...grpc.CallOption) error {
	t.Helper()

	for _, c := range commands {
		if _, err := client.Unary(t.Context(), c, opts...); err != nil {
			return err
		}
	}

	both, err := client.Bidi(t.Context(), opts...)
	if err != nil {
		return err
	}

	for _, c := range commands {
		if err := both.Send(c); err != nil {
			return err
		}

		if _, err := both.Recv(); err != nil {
			return err
		}
	}

	if err := both.CloseSend(); err != nil {
		return err
	}

	if _, err := both.Recv(); !errors.Is(err, io.EOF) {
		return err
	}

	return nil
}

func TestAMissingTsharkSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())

	if _, err := startCapture(t, 1); err == nil || !strings.Contains(err.Error(), "apt-get install tshark") {
		t.Error(err)
	}
}

func TestATsharkThatMayNotCaptureSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)

	script := "#!/bin/sh\necho 'You do not have permission to capture on device lo' >&2\nexit 2\n"
	if err := os.WriteFile(filepath.Join(dir, "tshark"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}

	_, err := startCapture(t, 1)
	if err == nil || !strings.Contains(err.Error(), "root") || !strings.Contains(err.Error(), "You do not have permission") {
		t.Error(err)
	}
}
