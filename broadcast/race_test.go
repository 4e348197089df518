//go:build race

package broadcast_test

// raced is whether the race detector runs, under which the same work takes ten times as long.
const raced = true
