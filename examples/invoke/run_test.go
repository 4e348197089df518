package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var summary = regexp.MustCompile(
	`completed (\d+)  retried (\d+)  timed out (\d+)  resyncs (\d+)  lost (\d+)\n.*; (\d+) moves of .*; (\d+) versions`)

func TestNothingIsLostHoweverCallersAreToldAndWhateverMoves(t *testing.T) {
	for _, test := range []struct{ name, args string }{
		{"by key", "-completion keyed"},
		{"by key while shards move", "-completion keyed -chaos"},
		{"by a topic with a window of one", "-completion topic -window 1"},
		{"by a topic with a window of one while shards move", "-completion topic -window 1 -chaos"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			args := strings.Fields("-calls 1500 -workers 50 -concurrency 64 -shards 4 -executors 3 " + test.args)
			if err := run(t.Context(), args, &out); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			match := summary.FindStringSubmatch(out.String())
			if match == nil {
				t.Fatalf("no summary in\n%s", &out)
			}
			numbers := make([]int, len(match))
			for i := 1; i < len(match); i++ {
				numbers[i], _ = strconv.Atoi(match[i])
			}
			completed, retried, timedOut, resyncs, lost, moves, versions :=
				numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7]
			if completed != 1500 || timedOut != 0 || lost != 0 || versions != 5 {
				t.Errorf("not as it should be:\n%s", &out)
			}
			chaos := strings.Contains(test.args, "-chaos")
			if (moves > 0) != chaos || !chaos && retried > 0 {
				t.Errorf("%d moves and %d retries", moves, retried)
			}
			if resyncs > 0 && !strings.Contains(test.args, "topic") {
				t.Errorf("%d resyncs without a topic", resyncs)
			}
			for _, want := range []string{"Invocation", "add", "write", "read", "Outcome", "total", "LatestVersionResponse"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("there is no %q in\n%s", want, &out)
				}
			}
		})
	}
}

func TestACallerThatWaitsTooLongIsLostAndThatIsAnError(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), strings.Fields("-calls 10 -timeout 1ns"), &out)
	if err == nil || !strings.HasPrefix(err.Error(), "invoke: 0 of 10 calls completed, 10 lost\n") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(out.String(), "completed 0  retried 0  timed out 10  resyncs 0  lost 10\n") {
		t.Errorf("output:\n%s", &out)
	}
}

func TestAnInterruptionEndsItAndIsAnError(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := run(ctx, []string{"-chaos"}, io.Discard); err == nil || err.Error() != "invoke: interrupted" {
		t.Errorf("got %v", err)
	}
}

func TestMistakesInTheCommandLineAreNamed(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"-workers 0", "invoke: -workers is 0, want 1 to 10000000"},
		{"-calls -1", "invoke: -calls is -1, want 1 to 10000000"},
		{"-concurrency 0", "invoke: -concurrency is 0, want 1 to 10000000"},
		{"-executors 65", "invoke: -executors is 65, want 1 to 64"},
		{"-shards 0", "invoke: -shards is 0, want 1 to 10000000"},
		{"-window 0", "invoke: -window is 0, want 1 to 10000000"},
		{"-completion pigeon", `invoke: -completion is "pigeon", want keyed or topic`},
		{"-timeout 0s", "invoke: -timeout is 0s, want more than 0"},
		{"-timeout 3", `invoke: invalid value "3" for flag -timeout: parse error`},
		{"now", `invoke: unexpected arguments ["now"]`},
	} {
		err := run(t.Context(), strings.Fields(test.args), io.Discard)
		if _, ok := errors.AsType[*usageError](err); !ok || err.Error() != test.want {
			t.Errorf("%s\n got %v\nwant %s", test.args, err, test.want)
		}
	}
	var help bytes.Buffer
	err := run(t.Context(), []string{"-h"}, &help)
	if !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-completion") {
		t.Errorf("-h gives %v and prints %q", err, &help)
	}
}
