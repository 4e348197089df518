// Package coexistence runs the handlers beside everything else that observes gRPC in one process, in every order, and compares their
// numbers. It has tests only.
package coexistence
