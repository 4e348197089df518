package services_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	adminpb "cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	pb "cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"cloud.google.com/go/bigtable/bttest"
)

var bigtableNames = oneOf(
	of[*adminpb.CreateTableRequest]("google.bigtable.admin.v2.CreateTableRequest", nil),
	of[*adminpb.Table]("google.bigtable.admin.v2.Table", nil),
	of[*pb.MutateRowsRequest]("google.bigtable.v2.MutateRowsRequest", nil),
	of[*pb.MutateRowsResponse]("google.bigtable.v2.MutateRowsResponse", nil),
	of[*pb.ReadRowsRequest]("google.bigtable.v2.ReadRowsRequest", nil),
	of[*pb.ReadRowsResponse]("google.bigtable.v2.ReadRowsResponse", nil),
)

func TestBigtableReadsRows(t *testing.T) {
	s := newSides("bigtable", bigtableNames, false)

	server, err := bttest.NewServer("127.0.0.1:0", s.serve...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(server.Close)

	conn := s.connect(t, server.Addr)
	ctx := t.Context()
	table, err := adminpb.NewBigtableTableAdminClient(conn).CreateTable(ctx, &adminpb.CreateTableRequest{
		Parent: "projects/p/instances/i", TableId: "t",
		Table: &adminpb.Table{ColumnFamilies: map[string]*adminpb.ColumnFamily{"f": {}}},
	})
	if err != nil {
		t.Fatal(err)
	}

	client := pb.NewBigtableClient(conn)
	write := &pb.MutateRowsRequest{TableName: table.GetName()}

	for i := range 300 {
		write.Entries = append(write.Entries, &pb.MutateRowsRequest_Entry{
			RowKey: fmt.Appendf(nil, "row-%03d", i),
			Mutations: []*pb.Mutation{{Mutation: &pb.Mutation_SetCell_{SetCell: &pb.Mutation_SetCell{
				FamilyName: "f", ColumnQualifier: []byte("q"), TimestampMicros: 1000, Value: make([]byte, i*10),
			}}}},
		})
	}

	written, err := client.MutateRows(ctx, write)
	if err != nil {
		t.Fatal(err)
	}

	drain(t, written.Recv)

	for _, limit := range []int64{1, 10, 0} {
		rows, err := client.ReadRows(ctx, &pb.ReadRowsRequest{TableName: table.GetName(), RowsLimit: limit})
		if err != nil {
			t.Fatal(err)
		}

		if n := drain(t, rows.Recv); n == 0 {
			t.Error("no answer")
		}
	}

	s.check(t, same)
	s.tabulate(t)
}

// drain receives until the end of a stream and gives the number of messages.
func drain[M any](t *testing.T, recv func() (M, error)) int {
	t.Helper()

	for n := 0; ; n++ {
		if _, err := recv(); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
