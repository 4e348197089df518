package stats_test

import (
	"context"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	"go.uber.org/goleak"

	"github.com/otelproto/otelproto-go/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testSeries is one series of a registry of its own.
type testSeries struct {
	*stats.Series

	t        testing.TB
	registry *stats.Registry
	conn     *stats.Conn
}

func newTestSeries(tb testing.TB, opts ...stats.Option) *testSeries {
	tb.Helper()

	s := &testSeries{t: tb, registry: stats.NewRegistry(opts...)}
	s.conn = s.registry.Open(stats.ConnInfo{})
	s.Series = s.conn.Series(stats.Key{Method: "s/M", Type: "T"})

	return s
}

// row reads the only row.
func (s *testSeries) row() stats.Row {
	s.t.Helper()

	total := s.registry.Snapshot().Total
	if len(total) != 1 {
		s.t.Fatalf("%d rows, expected one", len(total))
	}

	return total[0]
}

// errorsHandled collects what is reported to otel.Handle during a test.
type errorsHandled struct {
	mu    sync.Mutex
	texts []string
}

func (e *errorsHandled) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.texts = append(e.texts, err.Error())
}

func (e *errorsHandled) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()

	return append([]string{}, e.texts...)
}

func collectErrors(t *testing.T) *errorsHandled {
	t.Helper()

	before := otel.GetErrorHandler()
	e := &errorsHandled{}
	otel.SetErrorHandler(e)
	t.Cleanup(func() { otel.SetErrorHandler(before) })

	return e
}

// record records n messages of a size, uncompressed.
func record(ctx context.Context, s *stats.Series, n, size int) {
	for range n {
		s.Record(ctx, size+5, size)
	}
}
