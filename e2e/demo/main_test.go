package main

import (
	"net"
	"strings"
	"testing"
)

func TestATakenPortIsToldBeforeAnythingStarts(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()

	const free = "127.0.0.1:0"

	taken := lis.Addr().String()

	for flag, a := range map[string]addresses{
		"-backend": {taken, free, free}, "-otlp-grpc": {free, taken, free}, "-otlp-http": {free, free, taken},
	} {
		var out strings.Builder

		err := run(t.Context(), a, &out)

		want := "demo: " + taken + " is taken: end what listens there, or choose another address: " +
			"make demo ARGS='" + flag + " 127.0.0.1:PORT'"
		if err == nil || err.Error() != want || out.String() != "" {
			t.Errorf("%s: %v, expected %q; printed %q", flag, err, want, out.String())
		}
	}
}
