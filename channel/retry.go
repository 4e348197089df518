package channel

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

const (
	defaultAttempts = 3
	defaultBudget   = 0.1
	defaultBurst    = 10

	// A whole token; the budget counts in thousandths so that a ratio of 0.1
	// fits an integer.
	oneToken = 1000
)

// RetryPolicy says when an RPC that failed is sent again. The zero value is
// the default:
//
//   - an RPC that was never sent (NeverSent, Closed before sending) is tried
//     again whatever its method, until a connection attempt that it waited for
//     fails;
//   - a unary RPC that was sent is tried again after Suspect, TransportLost and
//     Closed if its method declares an idempotency_level in a descriptor that
//     is linked in, or is listed in Idempotent;
//   - nothing else is: not an answer of the application (a service config can
//     do that), not a stream that was opened.
//
// A retry needs a token of the budget and ends before the RPC's deadline; a
// server's grpc-retry-pushback-ms is waited for, or ends it if negative.
type RetryPolicy struct {
	MaxAttempts int      // attempts in all; 0: 3; 1: never retry
	Backoff     Backoff  // between attempts; zero fields: 50 ms, 2, full jitter, 1 s
	Budget      float64  // tokens that a successful RPC earns its target; 0: 0.1
	Burst       int      // tokens at most, and at first; a retry takes one; 0: 10
	Idempotent  []string // methods, as "package.Service/Method", with or without a leading slash
}

type retryConfig struct {
	attempts   int
	backoff    Backoff
	earn, full int64 // thousandths of a token
	idempotent map[string]struct{}
}

func defaultRetryConfig() retryConfig {
	return retryConfig{
		attempts: defaultAttempts,
		backoff:  retryBackoff(),
		earn:     int64(defaultBudget * oneToken),
		full:     defaultBurst * oneToken,
	}
}

func newRetryConfig(p RetryPolicy) (retryConfig, error) {
	r := defaultRetryConfig()
	switch {
	case p.MaxAttempts < 0:
		return r, fmt.Errorf("max attempts is %d, want 0 (default) or more", p.MaxAttempts)
	case !(p.Budget >= 0 && p.Budget <= 1000):
		return r, fmt.Errorf("budget is %v, want 0 (default) to 1000", p.Budget)
	case p.Burst < 0 || p.Burst > 1<<30:
		return r, fmt.Errorf("burst is %d, want 0 (default) to %d", p.Burst, 1<<30)
	}
	if p.MaxAttempts > 0 {
		r.attempts = p.MaxAttempts
	}
	if p.Budget > 0 {
		r.earn = max(1, int64(p.Budget*oneToken))
	}
	if p.Burst > 0 {
		r.full = int64(p.Burst) * oneToken
	}
	var err error
	if r.backoff, err = p.Backoff.withDefaults(retryBackoff()); err != nil {
		return r, fmt.Errorf("backoff: %w", err)
	}
	r.idempotent = make(map[string]struct{}, len(p.Idempotent))
	for _, m := range p.Idempotent {
		name := strings.TrimPrefix(m, "/")
		if service, method, ok := strings.Cut(name, "/"); !ok || service == "" || method == "" || strings.Contains(method, "/") {
			return r, fmt.Errorf("idempotent: %q, want \"package.Service/Method\"", m)
		}
		r.idempotent[name] = struct{}{}
	}
	return r, nil
}

// isIdempotent looks the method up in the list and in the descriptors that
// are linked in. It runs after failures only, so nothing is cached that
// hostile or merely many method names could grow.
func (r *retryConfig) isIdempotent(method string) bool {
	name := strings.TrimPrefix(method, "/")
	if _, ok := r.idempotent[name]; ok {
		return true
	}
	full := protoreflect.FullName(strings.ReplaceAll(name, "/", "."))
	if !full.IsValid() {
		return false
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(full)
	if err != nil {
		return false
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return false
	}
	o, ok := m.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}

// budget is a token bucket that successes fill and retries empty, so that a
// target that fails everything isn't sent a multiple of its load.
type budget struct{ tokens atomic.Int64 }

// earn is called once per successful RPC. The bucket is full nearly always,
// and then nothing is written.
func (b *budget) earn(r *retryConfig) {
	for {
		t := b.tokens.Load()
		if t >= r.full || b.tokens.CompareAndSwap(t, min(r.full, t+r.earn)) {
			return
		}
	}
}

func (b *budget) spend() bool {
	for {
		t := b.tokens.Load()
		if t < oneToken {
			return false
		}
		if b.tokens.CompareAndSwap(t, t-oneToken) {
			return true
		}
	}
}

// pushback reads grpc-retry-pushback-ms (gRFC A6): how long to wait, and
// whether the server allows a retry at all.
func pushback(trailer metadata.MD) (wait time.Duration, given, allowed bool) {
	v := trailer["grpc-retry-pushback-ms"]
	if len(v) == 0 {
		return 0, false, true
	}
	if len(v) > 1 {
		return 0, true, false
	}
	ms, err := strconv.ParseInt(v[0], 10, 32)
	if err != nil || ms < 0 {
		return 0, true, false
	}
	return time.Duration(ms) * time.Millisecond, true, true
}

// sleep waits for d, unless the context ends first or would.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
