package main

import (
	"context"
	"sync"
	"testing"

	"github.com/cskr/pubsub/v2"
	dustin "github.com/dustin/go-broadcast"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/otelproto/otelproto-go/broadcast"
)

// event is handed to every peer as a pointer, which none of them has to allocate for.
type event [100]byte

func (*event) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (e *event) DeepCopyObject() runtime.Object { c := *e; return &c }

// A fan is one way to hand events to every subscriber.
type fan interface {
	subscribe(ctx context.Context) receiver
	publish(e *event)
	close() // after the receivers have returned
}

// receive waits for n events and reports false if its context ended or an event was lost before. The loop belongs to each
// peer, so that no call through an interface is added to each event.
type receiver interface{ receive(n int) bool }

// A way makes a fan whose subscribers may lag by window events. What happens beyond depends on full.
type way struct {
	name  string
	start func(window int, full policy) fan
	drops bool // it can drop what a subscriber has no room for; the others with a limited room can only wait
	keeps bool // a subscriber without room is nothing that a publish sees
}

type policy bool

const (
	wait policy = false // a publisher waits for the slowest subscriber
	drop policy = true  // what a subscriber has no room for is lost, and nobody is told
)

// ways is every peer, ours first: it is what the others are compared with.
func ways() []way {
	return []way{
		{name: "ours", start: newTopic(next), keeps: true},
		{name: "ours-batch", start: newTopic(batch), keeps: true},
		{name: "ours-all", start: newTopic(all), keeps: true},
		{name: "channels", start: newChannels, drops: true},
		{name: "cond", start: newCondRing, keeps: true},
		{name: "linked", start: newLinked, keeps: true},
		{name: "cskr", start: newCskr, drops: true},
		{name: "dustin", start: newDustin},
		{name: "k8s-watch", start: newWatch, drops: true},
	}
}

// eachWay runs f for each way under its name, the three of ours as one unless reading is what is compared.
func eachWay(b *testing.B, f func(b *testing.B, w way)) {
	b.Helper()
	for _, w := range ways() {
		if w.name != "ours-batch" && w.name != "ours-all" {
			b.Run("by="+w.name, func(b *testing.B) { f(b, w) })
		}
	}
}

type reading int

const (
	next reading = iota
	batch
	all
)

// topic is ours.
type topic struct {
	*broadcast.Topic[*event]

	reading reading
}

func newTopic(r reading) func(int, policy) fan {
	return func(window int, _ policy) fan {
		t, err := broadcast.New(broadcast.Options[*event]{Window: window})
		if err != nil {
			panic(err)
		}
		return topic{t, r}
	}
}

func (t topic) subscribe(ctx context.Context) receiver {
	return subscription{t.Subscribe(ctx), t.reading}
}
func (t topic) publish(e *event) { _, _ = t.Publish(e) }
func (t topic) close()           { t.Close(nil) }

type subscription struct {
	*broadcast.Subscription[*event]

	reading reading
}

func (s subscription) receive(n int) bool {
	switch s.reading {
	case batch:
		dst := make([]broadcast.Event[*event], 256)
		for n > 0 {
			got, err := s.NextBatch(dst[:min(len(dst), n)])
			if err != nil {
				return false
			}
			n -= got
		}
	case all:
		for _, err := range s.All() {
			if err != nil {
				return false
			}
			if n--; n == 0 {
				break
			}
		}
	default:
		for range n {
			if _, err := s.Next(); err != nil {
				return false
			}
		}
	}
	return true
}

// channels is the usual way: one buffered channel for each subscriber, who selects on its context.
type channels struct {
	window int
	full   policy
	all    []chan *event
}

func newChannels(window int, full policy) fan { return &channels{window: window, full: full} }

func (f *channels) subscribe(ctx context.Context) receiver {
	c := make(chan *event, f.window)
	f.all = append(f.all, c)
	return chanReceiver[*event]{ctx, c}
}

func (f *channels) publish(e *event) {
	if f.full == wait {
		for _, c := range f.all {
			c <- e
		}
		return
	}
	for _, c := range f.all {
		select {
		case c <- e:
		default:
		}
	}
}

func (*channels) close() {}

type chanReceiver[T any] struct {
	ctx context.Context
	c   <-chan T
}

func (r chanReceiver[T]) receive(n int) bool {
	for range n {
		select {
		case <-r.c:
		case <-r.ctx.Done():
			return false
		}
	}
	return true
}

// condRing is what is written by hand to lose nothing silently: a ring of the last events behind a mutex, and a sync.Cond.
type condRing struct {
	mu   sync.Mutex // guards ring and next
	ring []*event
	next uint64
	cond sync.Cond
}

func newCondRing(window int, _ policy) fan {
	f := &condRing{ring: make([]*event, window)}
	f.cond.L = &f.mu
	return f
}

func (f *condRing) subscribe(ctx context.Context) receiver {
	context.AfterFunc(ctx, func() { // a Cond knows no context: all are woken so that one can leave
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cond.Broadcast()
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	return &ringReceiver{f, ctx, f.next}
}

func (f *condRing) publish(e *event) {
	f.mu.Lock()
	f.ring[f.next%uint64(len(f.ring))] = e
	f.next++
	f.mu.Unlock()
	f.cond.Broadcast()
}

func (*condRing) close() {}

type ringReceiver struct {
	f      *condRing
	ctx    context.Context
	cursor uint64
}

func (r *ringReceiver) receive(n int) bool {
	for range n {
		if r.one() == nil {
			return false
		}
	}
	return true
}

func (r *ringReceiver) one() *event {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	for r.cursor == r.f.next {
		if r.ctx.Err() != nil {
			return nil
		}
		r.f.cond.Wait()
	}
	if r.f.next-r.cursor > uint64(len(r.f.ring)) {
		return nil
	}
	e := r.f.ring[r.cursor%uint64(len(r.f.ring))]
	r.cursor++
	return e
}

// linked is the list whose every element has a channel that is closed when it is filled. It keeps what the slowest
// subscriber hasn't read.
type linked struct {
	mu   sync.Mutex // guards tail
	tail *link
}

type link struct {
	e     *event
	next  *link
	ready chan struct{} // closed when e and next are set
}

func newLink() *link { return &link{ready: make(chan struct{})} }

func newLinked(int, policy) fan { return &linked{tail: newLink()} }

func (f *linked) subscribe(ctx context.Context) receiver {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &linkReceiver{ctx, f.tail}
}

func (f *linked) publish(e *event) {
	n := newLink()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tail.e, f.tail.next = e, n
	close(f.tail.ready)
	f.tail = n
}

func (*linked) close() {}

type linkReceiver struct {
	ctx context.Context
	at  *link
}

func (r *linkReceiver) receive(n int) bool {
	for range n {
		select {
		case <-r.at.ready: // without this, each event that is there already would cost a select of two
		default:
			select {
			case <-r.at.ready:
			case <-r.ctx.Done():
				return false
			}
		}
		r.at = r.at.next
	}
	return true
}

// cskr is github.com/cskr/pubsub: one goroutine that all publishers hand their events to, a channel for each subscriber.
type cskr struct {
	*pubsub.PubSub[int, *event]

	full policy
}

func newCskr(window int, full policy) fan { return cskr{pubsub.New[int, *event](window), full} }

func (f cskr) subscribe(ctx context.Context) receiver { return chanReceiver[*event]{ctx, f.Sub(0)} }

func (f cskr) publish(e *event) {
	if f.full == wait {
		f.Pub(e, 0)
	} else {
		f.TryPub(e, 0)
	}
}

func (f cskr) close() { f.Shutdown() }

// dustinFan is github.com/dustin/go-broadcast, which always waits: one goroutine, a channel for each subscriber.
type dustinFan struct {
	dustin.Broadcaster

	window int
}

func newDustin(window int, _ policy) fan { return dustinFan{dustin.NewBroadcaster(window), window} }

func (f dustinFan) subscribe(ctx context.Context) receiver {
	c := make(chan any, f.window)
	f.Register(c)
	return chanReceiver[any]{ctx, c}
}

func (f dustinFan) publish(e *event) { f.Submit(e) }

func (f dustinFan) close() { _ = f.Close() }

// watchFan is k8s.io/apimachinery/pkg/watch: one goroutine, a channel for each subscriber.
type watchFan struct{ *watch.Broadcaster }

func newWatch(window int, full policy) fan {
	behaviour := watch.WaitIfChannelFull
	if full == drop {
		behaviour = watch.DropIfChannelFull
	}
	return watchFan{watch.NewBroadcaster(window, behaviour)}
}

func (f watchFan) subscribe(ctx context.Context) receiver {
	w, err := f.Watch()
	if err != nil {
		panic(err)
	}
	return chanReceiver[watch.Event]{ctx, w.ResultChan()}
}

func (f watchFan) publish(e *event) { _ = f.Action(watch.Added, e) }

func (f watchFan) close() { f.Shutdown() }
