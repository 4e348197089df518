// Package traffic is a small application for the tests and the demo: a server, a client behind a channel, and a topic, all in this
// process. Sizes and sockets are counted by a registry, channel and topic record with instruments.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/otelproto/otelproto-go/broadcast"
	"github.com/otelproto/otelproto-go/channel"
	"github.com/otelproto/otelproto-go/internal/testproto"
	"github.com/otelproto/otelproto-go/otelproto"
	"github.com/otelproto/otelproto-go/stats"
)

// Options says where things are counted.
type Options struct {
	// Registry counts messages and sockets.
	Registry *stats.Registry
	// MeterProvider is that of channel and topic.
	MeterProvider metric.MeterProvider
	// Server and Dial come before the handlers that count.
	Server []grpc.ServerOption
	Dial   []grpc.DialOption
}

// App is the application. Its methods are for one goroutine at a time.
type App struct {
	o      Options
	echo   *echo
	addr   string
	server *grpc.Server
	served chan error
	cache  *channel.Cache
	topic  *broadcast.Topic[string]
	slow   *broadcast.Subscription[string]
	wg     sync.WaitGroup
}

// window is how many events the topic keeps for a subscriber that lags.
const window = 32

// Start starts the application, until Close.
func Start(ctx context.Context, o Options) (*App, error) {
	a := &App{o: o, echo: &echo{held: make(chan struct{})}}

	if err := a.serve("127.0.0.1:0"); err != nil {
		return nil, err
	}

	dial := append(append([]grpc.DialOption{}, o.Dial...), otelproto.DialOptions(otelproto.WithRegistry(o.Registry))...)

	var err error
	if a.cache, err = channel.NewCache(
		channel.WithDialOptions(append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(o.Registry.DialContext))...),
		channel.WithRetry(channel.RetryPolicy{Idempotent: []string{testproto.Test_Unary_FullMethodName}}),
		channel.WithMeterProvider(o.MeterProvider),
	); err != nil {
		return nil, err
	}

	topic := broadcast.Options[string]{Name: "finished", Window: window, MeterProvider: o.MeterProvider}
	if a.topic, err = broadcast.New(topic); err != nil {
		return nil, err
	}

	a.slow = a.topic.Subscribe(ctx)
	quick := a.topic.Subscribe(ctx)

	a.wg.Go(func() {
		for _, err := range quick.All() {
			if resync := (*broadcast.ResyncError)(nil); err != nil && !errors.As(err, &resync) {
				return
			}
		}
	})

	return a, nil
}

// Step makes calls with messages of several kinds and sizes, publishes events, and lets the slow subscriber read some.
func (a *App) Step(ctx context.Context, n int) error {
	client := testproto.NewTestClient(a.cache.Conn(a.addr))
	put := func(size int) *testproto.Command {
		return &testproto.Command{Kind: &testproto.Command_Put{Put: &testproto.Put{Value: []byte(strings.Repeat("value", size/5))}}}
	}

	for i, c := range []*testproto.Command{
		{Kind: &testproto.Command_Get{Get: &testproto.Get{Key: fmt.Sprint("key-", n)}}},
		{Kind: &testproto.Command_Note{Note: "done"}},
		put(100), put(n % 50 * 1000), put(100_000),
	} {
		var opts []grpc.CallOption
		if i == 4 {
			opts = append(opts, grpc.UseCompressor(gzip.Name))
		}

		if _, err := client.Unary(ctx, c, opts...); err != nil {
			return err
		}
	}

	for range 1 + n%5*4 {
		if _, err := a.topic.Publish(fmt.Sprint("event of step ", n)); err != nil {
			return err
		}
	}

	if n%7 != 0 {
		return nil
	}

	for a.slow.Lag() > 0 {
		if _, err := a.slow.Next(); err != nil {
			if resync := (*broadcast.ResyncError)(nil); !errors.As(err, &resync) {
				return err
			}
		}
	}

	return nil
}

// Restart ends the server while it works on a call, starts another one at the same address, which gets the call once more, and
// forgets the target.
func (a *App) Restart(ctx context.Context) error {
	client := testproto.NewTestClient(a.cache.Conn(a.addr))
	answered := make(chan error, 1)

	a.echo.hold.Store(true)

	go func() {
		_, err := client.Unary(ctx, &testproto.Command{Kind: &testproto.Command_Batch{Batch: &testproto.Batch{}}})
		answered <- err
	}()

	select {
	case <-a.echo.held:
	case err := <-answered:
		return err
	}

	a.echo.hold.Store(false)
	a.server.Stop()

	if err := errors.Join(<-a.served, a.serve(a.addr), <-answered); err != nil {
		return err
	}

	a.cache.Forget(a.addr)

	return nil
}

// Close ends everything and waits for it.
func (a *App) Close() error {
	a.topic.Close(nil)
	a.slow.Close()
	a.wg.Wait()

	err := a.cache.Close()
	a.server.Stop()

	return errors.Join(err, <-a.served)
}

// serve starts a server.
func (a *App) serve(addr string) error {
	lis, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}

	a.addr = lis.Addr().String()
	handler := grpc.StatsHandler(otelproto.NewServerHandler(otelproto.WithRegistry(a.o.Registry)))
	a.server = grpc.NewServer(append(append([]grpc.ServerOption{}, a.o.Server...), handler)...)
	testproto.RegisterTestServer(a.server, a.echo)

	a.served = make(chan error, 1)
	go func() { a.served <- a.server.Serve(a.o.Registry.Listener(lis)) }()

	return nil
}

// echo answers a put with its value, a get with the key.
type echo struct {
	testproto.UnimplementedTestServer

	// hold says that a batch is kept until its context ends; held then gets a value.
	hold atomic.Bool
	held chan struct{}
}

func (e *echo) Unary(ctx context.Context, c *testproto.Command) (*testproto.Reply, error) {
	if c.GetBatch() != nil && e.hold.Load() {
		e.held <- struct{}{}
		<-ctx.Done()

		return nil, status.FromContextError(ctx.Err()).Err()
	}

	value := c.GetPut().GetValue()
	if c.GetGet() != nil {
		value = []byte(c.GetGet().GetKey())
	}

	return &testproto.Reply{Result: &testproto.Reply_Value{Value: &testproto.Value{Value: value}}}, nil
}
