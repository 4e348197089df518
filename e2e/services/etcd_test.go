package services_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

var etcdNames = oneOf(
	of("etcdserverpb.WatchRequest", func(m *pb.WatchRequest) string {
		switch m.GetRequestUnion().(type) {
		case *pb.WatchRequest_CreateRequest:
			return "create_request"
		case *pb.WatchRequest_CancelRequest:
			return "cancel_request"
		case *pb.WatchRequest_ProgressRequest:
			return "progress_request"
		default:
			return ""
		}
	}),
	of[*pb.WatchResponse]("etcdserverpb.WatchResponse", nil),
	of[*pb.PutRequest]("etcdserverpb.PutRequest", nil),
	of[*pb.PutResponse]("etcdserverpb.PutResponse", nil),
	of[*pb.RangeRequest]("etcdserverpb.RangeRequest", nil),
	of[*pb.RangeResponse]("etcdserverpb.RangeResponse", nil),
	of[*pb.DeleteRangeRequest]("etcdserverpb.DeleteRangeRequest", nil),
	of[*pb.DeleteRangeResponse]("etcdserverpb.DeleteRangeResponse", nil),
	of[*pb.TxnRequest]("etcdserverpb.TxnRequest", nil),
	of[*pb.TxnResponse]("etcdserverpb.TxnResponse", nil),
	of[*pb.LeaseGrantRequest]("etcdserverpb.LeaseGrantRequest", nil),
	of[*pb.LeaseGrantResponse]("etcdserverpb.LeaseGrantResponse", nil),
	of[*pb.LeaseRevokeRequest]("etcdserverpb.LeaseRevokeRequest", nil),
	of[*pb.LeaseRevokeResponse]("etcdserverpb.LeaseRevokeResponse", nil),
	of[*pb.LeaseKeepAliveRequest]("etcdserverpb.LeaseKeepAliveRequest", nil),
	of[*pb.LeaseKeepAliveResponse]("etcdserverpb.LeaseKeepAliveResponse", nil),
	of[*pb.StatusRequest]("etcdserverpb.StatusRequest", nil),
	of[*pb.StatusResponse]("etcdserverpb.StatusResponse", nil),
)

func TestEtcdWatchesTransactionsAndLeases(t *testing.T) {
	s := newSides("etcd", etcdNames, false)
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.LogLevel = "fatal"
	cfg.UnsafeNoFsync = true
	cfg.GRPCAdditionalServerOptions = s.serve
	any4 := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{any4}, []url.URL{any4}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{any4}, []url.URL{any4}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(server.Close)

	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		t.Fatal(err)
	case <-time.After(30 * time.Second):
		t.Fatal("etcd isn't ready after 30 s")
	}

	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server.Clients[0].Addr().String()}, DialOptions: s.dial, DialTimeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { client.Close() })
	etcdWorkload(t, client)
	s.check(t, same)
	s.tabulate(t)
}

func etcdWorkload(t *testing.T, client *clientv3.Client) {
	t.Helper()

	ctx := t.Context()
	watched := client.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithCreatedNotify())

	if r := <-watched; !r.Created {
		t.Fatalf("%+v", r)
	}

	lease, err := client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}

	for i := range 20 {
		if _, err := client.Put(ctx, fmt.Sprint("k", i), fmt.Sprintf("%0*d", i*50, i), clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}

	for seen := 0; seen < 20; {
		r := <-watched
		if r.Err() != nil {
			t.Fatal(r.Err())
		}

		seen += len(r.Events)
	}

	if r, err := client.Get(ctx, "k", clientv3.WithPrefix()); err != nil || len(r.Kvs) != 20 {
		t.Fatal(r, err)
	}

	r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Version("k1"), ">", 0)).
		Then(clientv3.OpPut("x", "1"), clientv3.OpGet("k2"), clientv3.OpDelete("k3")).Else(clientv3.OpGet("k4")).Commit()
	if err != nil || !r.Succeeded {
		t.Fatal(r, err)
	}

	for range 3 {
		if _, err := client.KeepAliveOnce(ctx, lease.ID); err != nil {
			t.Fatal(err)
		}
	}

	if err := client.RequestProgress(ctx); err != nil {
		t.Fatal(err)
	}

	for r := range watched { // the answer, after the event of the transaction
		if r.IsProgressNotify() {
			break
		}
	}

	if _, err := client.Revoke(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
}
