// Package capture compares what the handlers record with what tshark sees on the wire. It has tests only.
package capture
