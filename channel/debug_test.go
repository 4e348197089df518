package channel_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/otelproto/otelproto-go/channel"
	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

// The page takes a cache, and a connection, as a section, though neither package knows the other.
func TestTheDebugPageShowsTheTargets(t *testing.T) {
	cache, err := channel.NewCache(channel.WithDialOptions(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	conn := cache.Conn("passthrough:///127.0.0.1:1")
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err == nil {
		t.Fatal("something listens on port 1")
	}
	page := statshttp.Handler(stats.NewRegistry(), statshttp.WithSection(cache), statshttp.WithSection(conn))
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	text := answer.Body.String()
	for _, want := range []string{
		"Channels (1 of 1)", "Channel (1 of 1)", "passthrough:///127.0.0.1:1", "LAST FAILURE", "connection refused",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page doesn't show %q:\n%s", want, text)
		}
	}
}
