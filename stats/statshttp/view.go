package statshttp

import "time"

// schemaVersion changes when a field of view is renamed, removed or means something else.
const schemaVersion = 1

// view is all that the page shows, and what ?format=json gives; docs/debug-page.md describes each field. Numbers are of the
// window unless a field says otherwise. Strings that a peer chose are cleaned.
type view struct {
	Schema      int             `json:"schema"`
	Title       string          `json:"title"`
	Start       time.Time       `json:"start"`
	Time        time.Time       `json:"time"`
	Window      windowView      `json:"window"`
	Bounds      []float64       `json:"bounds"`
	Connection  *connectionRow  `json:"connection"`
	Summary     summaryView     `json:"summary"`
	Messages    messageTable    `json:"messages"`
	Peers       peerTable       `json:"peers"`
	Connections connectionTable `json:"connections"`
	Sockets     socketsView     `json:"sockets"`
	Closed      closedView      `json:"closed"`
	Sections    []sectionView   `json:"sections"`
}

// windowView is the window that was asked for and the one that is shown.
type windowView struct {
	Asked   string    `json:"asked"`
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
	Note    string    `json:"note"`
}

// flow is what was counted in one direction.
type flow struct {
	Messages           uint64  `json:"messages"`
	WireBytes          uint64  `json:"wire_bytes"`
	SizeBytes          uint64  `json:"size_bytes"`
	MessagesPerSecond  float64 `json:"messages_per_second"`
	WireBytesPerSecond float64 `json:"wire_bytes_per_second"`
}

type summaryView struct {
	Sentence         string      `json:"sentence"`
	Types            []typeShare `json:"types"`
	Sent             flow        `json:"sent"`
	Received         flow        `json:"received"`
	CompressionRatio float64     `json:"compression_ratio"`
	LiveConnections  int         `json:"live_connections"`
	LiveClient       int         `json:"live_client_connections"`
	LiveServer       int         `json:"live_server_connections"`
}

// typeShare is one of the types that take most.
type typeShare struct {
	Type      string  `json:"type"`
	WireBytes uint64  `json:"wire_bytes"`
	Share     float64 `json:"share"`
}

// tableView says which part of a table's rows is shown.
type tableView struct {
	Rows    int    `json:"row_count"`
	Matched int    `json:"matched_count"`
	Page    int    `json:"page"`
	Pages   int    `json:"page_count"`
	Sort    string `json:"sort"`
}

type messageTable struct {
	tableView

	Group string       `json:"group"`
	List  []messageRow `json:"rows"`
}

// messageRow is one kind of message; what kind means follows from the grouping.
type messageRow struct {
	flow

	Side             string        `json:"side"`
	Direction        string        `json:"direction"`
	Type             string        `json:"type"`
	Variant          string        `json:"variant"`
	Method           string        `json:"method"`
	Series           int           `json:"series"`
	RetriedMessages  uint64        `json:"retried_messages"`
	Share            float64       `json:"share"`
	CumulativeShare  float64       `json:"cumulative_share"`
	CompressionRatio float64       `json:"compression_ratio"`
	Wire             sizeView      `json:"wire"`
	Size             sizeView      `json:"size"`
	Exemplar         *exemplarView `json:"exemplar"`
}

// sizeView is the distribution of sizes in bytes. Counts belong to the view's bounds.
type sizeView struct {
	Mean   float64  `json:"mean"`
	P50    float64  `json:"p50"`
	P90    float64  `json:"p90"`
	P99    float64  `json:"p99"`
	Counts []uint64 `json:"counts"`
}

type peerTable struct {
	tableView

	List []peerRow `json:"rows"`
}

// peerRow is the live connections with one peer.
type peerRow struct {
	Side        string    `json:"side"`
	Peer        string    `json:"peer"`
	Connections int       `json:"connections"`
	Oldest      time.Time `json:"oldest"`
	Sent        flowShort `json:"sent"`
	Received    flowShort `json:"received"`
	Share       float64   `json:"share"`
}

// flowShort is a flow of a connection, which keeps no uncompressed sizes.
type flowShort struct {
	Messages           uint64  `json:"messages"`
	WireBytes          uint64  `json:"wire_bytes"`
	MessagesPerSecond  float64 `json:"messages_per_second"`
	WireBytesPerSecond float64 `json:"wire_bytes_per_second"`
}

type connectionTable struct {
	tableView

	List []connectionRow `json:"rows"`
}

type connectionRow struct {
	ID         uint64       `json:"id"`
	Side       string       `json:"side"`
	Peer       string       `json:"peer"`
	Local      string       `json:"local"`
	Remote     string       `json:"remote"`
	Authority  string       `json:"authority"`
	Opened     time.Time    `json:"opened"`
	AgeSeconds float64      `json:"age_seconds"`
	Sent       flowShort    `json:"sent"`
	Received   flowShort    `json:"received"`
	Share      float64      `json:"share"`
	Lifetime   lifetimeView `json:"lifetime"`
}

// lifetimeView is what a connection carried since it was opened.
type lifetimeView struct {
	SentWireBytes     uint64      `json:"sent_wire_bytes"`
	ReceivedWireBytes uint64      `json:"received_wire_bytes"`
	Socket            *socketView `json:"socket"`
}

// socketView is one or more sockets: their bytes are the messages' wire bytes plus the overhead.
type socketView struct {
	Written         uint64  `json:"written_bytes"`
	Read            uint64  `json:"read_bytes"`
	SentWire        uint64  `json:"sent_wire_bytes"`
	ReceivedWire    uint64  `json:"received_wire_bytes"`
	WrittenOverhead uint64  `json:"written_overhead_bytes"`
	ReadOverhead    uint64  `json:"read_overhead_bytes"`
	OverheadShare   float64 `json:"overhead_share"`
}

// socketsView is all sockets that are counted, of live connections and of those that closed.
type socketsView struct {
	socketView

	Connections      int     `json:"live_connections"`
	WrittenPerSecond float64 `json:"written_bytes_per_second"`
	ReadPerSecond    float64 `json:"read_bytes_per_second"`
}

// exemplarView is the largest message of a sampled span.
type exemplarView struct {
	Time      time.Time `json:"time"`
	WireBytes uint64    `json:"wire_bytes"`
	SizeBytes uint64    `json:"size_bytes"`
	TraceID   string    `json:"trace_id"`
	SpanID    string    `json:"span_id"`
	URL       string    `json:"url"`
}

// closedView is what closed connections have carried, since counting began.
type closedView struct {
	Messages  uint64       `json:"messages"`
	WireBytes uint64       `json:"wire_bytes"`
	SizeBytes uint64       `json:"size_bytes"`
	Socket    *socketView  `json:"socket"`
	Rows      int          `json:"row_count"`
	List      []messageRow `json:"rows"`
}

// sectionView is a table from elsewhere.
type sectionView struct {
	Title   string   `json:"title"`
	Columns []string `json:"columns"`
	Rows    int      `json:"row_count"`
	List    [][]any  `json:"rows"`
}
