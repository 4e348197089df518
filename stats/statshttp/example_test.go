package statshttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/otelproto/otelproto-go/stats"
	"github.com/otelproto/otelproto-go/stats/statshttp"
)

func ExampleHandler() {
	reg := stats.NewRegistry() // given to the handlers of package otelproto

	mux := http.NewServeMux()
	mux.Handle("/debug/messages", statshttp.Handler(reg, statshttp.WithTitle("controller")))

	// WriteTimeout ends answers to readers that hang. The page has no login: keep it on an address that only operators reach.
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second}
	defer server.Close()

	conn := reg.Open(stats.ConnInfo{})
	conn.Series(stats.Key{Method: "kv.KV/Put", Type: "kv.PutRequest"}).Record(context.Background(), 105, 100)

	answer := httptest.NewRecorder()
	server.Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/debug/messages?window=all", nil))
	fmt.Println(answer.Code, answer.Header().Get("Content-Type"))
	// Output: 200 text/plain; charset=utf-8
}

// Cache is some other package's type. It doesn't import statshttp.
type Cache struct{}

func (Cache) DebugSection() (string, []string, [][]any) {
	return "Channels", []string{"Target", "Outstanding"}, [][]any{{"store:443", 3}}
}

func ExampleWithSection() {
	h := statshttp.Handler(stats.NewRegistry(), statshttp.WithSection(Cache{}))

	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/?format=json", nil))
	fmt.Println(answer.Code)
	// Output: 200
}
