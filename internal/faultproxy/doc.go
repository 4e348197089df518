// Package faultproxy has proxies for tests that fail in controlled ways.
//
// TCP forwards bytes and can go down, come back on the same port, reset its
// connections, accept without ever speaking, or stop forwarding on
// connections that stand (a half-open connection as HTTP/2 sees it). HTTP
// forwards HTTP/2 requests, gRPC included, and can answer them with an HTTP
// status of its own instead, for ever on the connections that were opened
// while it was sick.
//
// Both count the connections that they accepted. Their methods are safe for
// concurrent use, and take effect before they return, except that bytes that
// the kernel has already stay on their way.
package faultproxy
