// Package services runs gRPC services that others wrote, with both handlers, and compares what these recorded with counts that are
// made in other ways. It has tests only.
package services
