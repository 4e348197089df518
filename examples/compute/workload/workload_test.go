package workload

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/otelproto/otelproto-go/examples/compute/controller"
	"github.com/otelproto/otelproto-go/examples/compute/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlansFollowFromTheSeed(t *testing.T) {
	plans := func(seed uint64) []byte {
		random := rand.New(rand.NewPCG(seed, 0))
		var all []byte
		orders := tables(random)[orders]
		for range 10 {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(view(random, orders, index()))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		return all
	}
	first, again, other := plans(1), plans(1), plans(2)
	if !bytes.Equal(first, again) {
		t.Error("the same seed gives different plans")
	}
	if bytes.Equal(first, other) {
		t.Error("different seeds give the same plans")
	}
}

func TestAnInstanceStandsTheWorkloadWhileItsReplicaRestarts(t *testing.T) {
	instance := controller.New(controller.Options{
		Tick: 5 * time.Millisecond,
		DialOptions: func(string, int) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		},
	})
	defer instance.Close()
	start := func() *replica.Replica {
		t.Helper()
		r, err := replica.Start("r1", 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := instance.AddReplica("r1", r.Addresses()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	running := start()
	w := New(instance, 500, rand.Uint64())
	if err := w.SetUp(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for restarts := 0; restarts < 4; {
		before := instance.Stats().Counts
		for enough := false; !enough; {
			select {
			case <-tick.C:
				c := instance.Stats().Counts
				enough = c.PeekRows > before.PeekRows+20 && c.CopyToResponses > before.CopyToResponses &&
					c.SubscribeBatches > before.SubscribeBatches
			case err := <-ended:
				t.Fatalf("the workload ended by itself: %v", err)
			case <-deadline:
				t.Fatalf("nothing comes after %d restarts: %+v", restarts, instance.Stats())
			}
		}
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
		running = start()
		restarts++
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if s := instance.Stats(); s.Dataflows != 4 || s.Collections != 5 || s.Peeks != 0 {
		t.Errorf("the workload left something behind, or too little: %+v", s)
	}
	instance.Close()
	if err := running.Stop(); err != nil {
		t.Error(err)
	}
}
