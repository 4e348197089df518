package broadcast_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/otelproto/otelproto-go/broadcast"
)

func Example() {
	topic, err := broadcast.New(broadcast.Options[string]{})
	if err != nil {
		panic(err)
	}
	sub := topic.Subscribe(context.Background())
	defer sub.Close()

	for _, v := range []string{"created", "running", "finished"} {
		if _, err := topic.Publish(v); err != nil {
			panic(err)
		}
	}
	topic.Close(nil)

	for e, err := range sub.All() {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(e.Seq, e.Value)
	}
	// Output:
	// 1 created
	// 2 running
	// 3 finished
	// broadcast: closed
}

// A subscriber that lags past the window is told what it missed, and goes on.
func ExampleResyncError() {
	topic, err := broadcast.New(broadcast.Options[string]{Window: 2})
	if err != nil {
		panic(err)
	}
	sub := topic.Subscribe(context.Background())
	for _, v := range []string{"a", "b", "c", "d", "e"} {
		if _, err := topic.Publish(v); err != nil {
			panic(err)
		}
	}
	topic.Close(nil)

	for e, err := range sub.All() {
		var gap *broadcast.ResyncError
		switch {
		case errors.As(err, &gap):
			fmt.Printf("missed %d events: reload what depends on them\n", gap.To-gap.From)
		case err != nil:
			return
		default:
			fmt.Println(e.Seq, e.Value)
		}
	}
	// Output:
	// missed 3 events: reload what depends on them
	// 4 d
	// 5 e
}

// results is a state in which outcomes are recorded before they are announced.
type results struct {
	mu sync.Mutex
	m  map[string]string
}

func (r *results) record(key, v string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.m[key] = v
}

func (r *results) look(key string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.m[key]
	return v, ok
}

// Waiters hand the outcome to those who wait for its key. It doesn't matter whether the invocation finishes before, during
// or after the look at the results.
func ExampleWaiters() {
	state := &results{m: map[string]string{}}
	var waiters broadcast.Waiters[string, string]

	go func() { // the worker
		state.record("invocation 7", "ok") // first the record,
		waiters.Complete("invocation 7", "ok")
	}()

	v, err := waiters.Await(context.Background(), "invocation 7", func(context.Context) (string, bool, error) {
		v, ok := state.look("invocation 7")
		return v, ok, nil
	})
	fmt.Println(v, err)
	// Output: ok <nil>
}

// Await does the same over a topic that others read too, here with a window of one event.
func ExampleAwait() {
	type finished struct{ key, result string }
	state := &results{m: map[string]string{}}
	topic, err := broadcast.New(broadcast.Options[finished]{Window: 1})
	if err != nil {
		panic(err)
	}
	defer topic.Close(nil)

	go func() {
		for i := range 100 {
			key := fmt.Sprint("invocation ", i)
			state.record(key, "ok")
			_, _ = topic.Publish(finished{key, "ok"})
		}
	}()

	v, err := broadcast.Await(context.Background(), topic,
		func(context.Context) (string, bool, error) {
			v, ok := state.look("invocation 7")
			return v, ok, nil
		},
		func(e finished) (string, bool) { return e.result, e.key == "invocation 7" })
	fmt.Println(v, err)
	// Output: ok <nil>
}

// A log is a Source: here a slice, in earnest a journal or a table.
type log []string

func (l log) Read(_ context.Context, from uint64) iter.Seq2[broadcast.Event[string], error] {
	return func(yield func(broadcast.Event[string], error) bool) {
		for seq := from; seq <= uint64(len(l)); seq++ {
			if !yield(broadcast.Event[string]{Seq: seq, Value: l[seq-1]}, nil) {
				return
			}
		}
	}
}

// With a Source, a subscriber that lags past the window gets every event all the same.
func ExampleSource() {
	journal := log{"a", "b", "c", "d", "e"}
	topic, err := broadcast.New(broadcast.Options[string]{Window: 1, Source: journal})
	if err != nil {
		panic(err)
	}
	sub := topic.Subscribe(context.Background())
	for _, v := range journal {
		if _, err := topic.Publish(v); err != nil {
			panic(err)
		}
	}
	for range journal {
		e, err := sub.Next()
		fmt.Println(e.Seq, e.Value, err)
	}
	// Output:
	// 1 a <nil>
	// 2 b <nil>
	// 3 c <nil>
	// 4 d <nil>
	// 5 e <nil>
}
