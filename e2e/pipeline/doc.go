// Package pipeline runs the real thing, from a process to a query: an OpenTelemetry Collector and a VictoriaMetrics, built from the
// module proxy once and kept under .bin at the root of the repository, and examples/compute. The tests and the demo use it.
//
// Everything listens on 127.0.0.1, and every process that is started is ended by whoever started it.
package pipeline
