// Package statshttp serves a page about a [stats.Registry]: who talks to whom, which message types take which share of the bytes,
// and how fast, now.
//
// # Usage
//
// Mount [Handler] where the people on call get to it and nobody else:
//
//	mux := http.NewServeMux()
//	mux.Handle("/debug/messages", statshttp.Handler(reg))
//	server := &http.Server{Addr: "127.0.0.1:8080", Handler: mux, WriteTimeout: 10 * time.Second}
//
// It answers at any path, also behind a prefix, and registers itself nowhere. A browser gets HTML that refreshes itself; ?format=json
// and "Accept: application/json" get the same as JSON, whose fields docs/debug-page.md describes; everybody else, curl
// for one, gets aligned plain text. Parameters choose the window, filters, orders and pages; one that is unknown or out of range is
// answered with status 400 and what was expected. ?conn=N shows what one connection carries.
//
// # Who may see it
//
// The page has no login. It shows the names of methods, types, peers and addresses, and no payloads. It changes nothing and
// loads nothing from elsewhere. Whoever reaches it can make the process read its counters, no more often than is said below.
//
// # Concurrency
//
// A handler serves any number of requests at once. One of them at a time reads the registry; the others wait for it or leave when
// their request ends. Recording never waits for any of them. No lock is held while a page is made or written.
//
// # Guarantees
//
// Everything that a peer can choose is cut to 1,024 bytes, spelled out where it isn't a visible character, and escaped. The
// page's Content-Security-Policy forbids all but its own style and script, by their hashes.
//
// A request holds the finished answer and nothing else while it is written, so a reader that hangs costs that much memory,
// until the server's WriteTimeout ends it. A page has at most 1,000 rows a table.
//
// Rates over a window need an earlier reading. The handler takes one when somebody looks and no goroutine besides: it keeps at most 32,
// close together where they are young and far apart where they are old, of at most about 16 MiB, and drops all 75 minutes after the
// last look. The rates are over the time between the two readings exactly, and the page says how long that is.
//
// # Not guaranteed
//
// Windows of one connection start at the first look at that connection, for at most 8 connections at a time. Before there is an earlier
// reading, numbers are since counting began, or since the connection was opened, and a note says so.
//
// # Cost
//
// A reading is a [stats.Registry.Snapshot]. Requests share one for four times as long as it took, so readers that ask without
// pause take a fifth of one core for readings. Nothing is read while nobody looks.
package statshttp
