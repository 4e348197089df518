// Package dashboard is the source of the dashboards in docs/dashboards: panels in the order in which their questions are asked, and
// the two formats that are made of them. The names are those of docs/metrics.md after translation to Prometheus.
package dashboard

// Row is a question and the panels that answer it.
type Row struct {
	Title  string
	Panels []Panel
	// Side says that the metrics come from client and server handlers, under names of their own: $side stands for client or server.
	Side bool
}

// Panel is one or more queries that are drawn together.
type Panel struct {
	Title, Description string
	Unit               Unit
	Queries            []Query
}

// Query is PromQL with $side where its row has it and $window for the range of a rate; Legend has the labels in braces.
type Query struct {
	Expr, Legend string
}

// Unit is what a panel's values are, as vmui writes it behind a number.
type Unit string

// The units of the panels.
const (
	bytesPerSecond Unit = "B/s"
	bytes          Unit = "B"
	perSecond      Unit = "/s"
	seconds        Unit = "s"
	percent        Unit = "%"
	number         Unit = ""
)

// grafana is the unit's name in Grafana.
func (u Unit) grafana() string {
	switch u {
	case bytesPerSecond:
		return "binBps"
	case bytes:
		return "bytes"
	case perSecond:
		return "cps"
	case seconds:
		return "s"
	case percent:
		return "percent"
	default:
		return "short"
	}
}

// Labels of the metrics, as queries group by them.
const (
	byKind       = "otelproto_message_type, otelproto_message_variant, network_io_direction"
	kindLegend   = "{{network_io_direction}} {{otelproto_message_type}} {{otelproto_message_variant}}"
	byConnection = "server_address, server_port, network_peer_address, network_peer_port"
	connLegend   = "{{server_address}} {{server_port}} {{network_peer_address}} {{network_peer_port}}"
	wireSum      = "otelproto_$side_message_wire_size_bytes_sum"
	sizeSum      = "otelproto_$side_message_size_bytes_sum"
	sizeCount    = "otelproto_$side_message_size_bytes_count"
	sizeBucket   = "otelproto_$side_message_size_bytes_bucket"
)

// rate is the sum of a counter's rates by labels.
func rate(metric, by string) string { return "sum by (" + by + ") (rate(" + metric + "[$window]))" }

// top keeps the ten largest, since a page shows some twenty lines at most, and nobody reads more.
func top(expr string) string { return "topk(10, " + expr + ")" }

// one is a panel with one query.
func one(title, description string, unit Unit, expr, legend string) Panel {
	return Panel{title, description, unit, []Query{{expr, legend}}}
}

// Rows gives the whole dashboard.
func Rows() []Row { return append(sizes(), connections(), channels(), broadcasts()) }

// Asked is a query as a backend gets it.
type Asked struct{ Panel, Expr string }

// All gives every query of every panel, for clients and for servers.
func All() []Asked {
	var all []Asked

	for _, r := range Rows() {
		for _, side := range []string{"client", "server"} {
			if !r.Side && side == "server" {
				continue
			}

			for _, p := range r.Panels {
				for _, q := range p.Queries {
					all = append(all, Asked{r.Title + " " + p.Title, resolve(q.Expr, side, window)})
				}
			}
		}
	}

	return all
}

func sizes() []Row {
	// One query rather than three, which vmui draws on axes of their own.
	quantile := func(q, name string) string {
		return "label_replace(round(histogram_quantile(" + q + ", " + rate(sizeBucket, "le, network_io_direction") +
			`)), "quantile", "` + name + `", "", "")`
	}

	return []Row{
		{Side: true, Title: "Which messages take the bandwidth?", Panels: []Panel{
			one("Bandwidth by type and variant", "Bytes on the wire, gRPC's prefix included, of the ten kinds that take most.",
				bytesPerSecond, top(rate(wireSum, byKind)), kindLegend),
			one("Share of each type and variant", "Of all bytes on the wire of the same direction, the ten largest shares.", percent,
				top("100 * "+rate(wireSum, byKind)+" / on (network_io_direction) group_left () "+rate(wireSum, "network_io_direction")),
				kindLegend),
			one("Bandwidth by connection", "Both directions, of the ten that take most, by the other end. A server has it with "+
				"WithConnAttributes, or from a registry's producer.", bytesPerSecond, top(rate(wireSum, byConnection)), connLegend),
			one("Bandwidth by method", "Bytes on the wire of each method.", bytesPerSecond,
				rate(wireSum, "rpc_method, network_io_direction"), "{{network_io_direction}} {{rpc_method}}"),
		}},
		{Side: true, Title: "How did it change?", Panels: []Panel{
			// Not the rate over a quarter of an hour: of a series that ended, VictoriaMetrics takes the rate that it had while it lasted.
			one("Bandwidth now, relative to the last quarter of an hour", "2 is twice as much as usual.", number,
				rate(wireSum, byKind)+" / avg_over_time(("+rate(wireSum, byKind)+")[15m:5s])", kindLegend),
			one("Repeated attempts", "Bytes on the wire of repeated attempts, by share. Zero is healthy.", percent,
				"100 * (sum(rate("+wireSum+`{otelproto_rpc_retry="true"}[$window])) or vector(0)) / sum(rate(`+wireSum+"[$window]))",
				"retries"),
		}},
		{Side: true, Title: "How large are the messages?", Panels: []Panel{
			one("Uncompressed size, quantiles", "Estimated within a bucket.", bytes,
				quantile("0.5", "p50")+" or "+quantile("0.9", "p90")+" or "+quantile("0.99", "p99"),
				"{{quantile}} {{network_io_direction}}"),
			one("99th percentile by type and variant", "Which ten kinds make the tail.", bytes,
				top("round(histogram_quantile(0.99, "+rate(sizeBucket, "le, "+byKind)+"))"), kindLegend),
			one("Mean size by type and variant", "Uncompressed, the ten largest.", bytes,
				top("round("+rate(sizeSum, byKind)+" / "+rate(sizeCount, byKind)+")"), kindLegend),
			one("Messages above 64 KiB", "Share of each kind.", percent,
				"100 - 100 * "+rate(sizeBucket+`{le=~"65536(.0)?"}`, byKind)+" / "+rate(sizeCount, byKind), kindLegend),
		}},
		{Side: true, Title: "Does compression pay?", Panels: []Panel{
			one("Compression ratio by type and variant", "Uncompressed by wire bytes. Just below 1: not compressed, and a prefix.",
				number, rate(sizeSum, byKind)+" / "+rate(wireSum, byKind), kindLegend),
		}},
		{Side: true, Title: "How many messages?", Panels: []Panel{
			one("Messages by type and variant", "Each attempt's, of the ten kinds that are sent most.", perSecond,
				top(rate(sizeCount, byKind)), kindLegend),
		}},
	}
}

func connections() Row {
	return Row{Title: "What else do connections carry?", Panels: []Panel{
		one("Bytes of the sockets", "With the registry's listener or dialer.", bytesPerSecond,
			rate("otelproto_connection_io_bytes_total", "network_io_direction"), "{{network_io_direction}}"),
		one("Overhead", "Headers, frames and TLS: the share of the socket's bytes that no message has.", percent,
			"100 * "+rate("otelproto_connection_overhead_bytes_total", "network_io_direction")+" / "+
				rate("otelproto_connection_io_bytes_total", "network_io_direction"), "{{network_io_direction}}"),
		one("Live connections", "Of all processes.", number, "sum(otelproto_connections)", "connections"),
	}}
}

func channels() Row {
	return Row{Title: "Are the channels healthy?", Panels: []Panel{
		one("Connections by state", "Active ones, and those that end what still runs on them.", number,
			"sum by (server_address, otelproto_channel_state) (otelproto_channel_generations)",
			"{{server_address}} {{otelproto_channel_state}}"),
		one("Replaced connections", "By the reason.", perSecond,
			rate("otelproto_channel_invalidations_total", "server_address, otelproto_channel_reason"),
			"{{server_address}} {{otelproto_channel_reason}}"),
		one("Time to connect", "95th percentile.", seconds,
			"histogram_quantile(0.95, "+rate("otelproto_channel_connect_duration_seconds_bucket", "le, server_address, error_type")+")",
			"{{server_address}} {{error_type}}"),
		one("Retries", "By the reason.", perSecond, rate("otelproto_channel_retries_total", "server_address, otelproto_channel_reason"),
			"{{server_address}} {{otelproto_channel_reason}}"),
		one("Outstanding RPCs", "Unary calls and streams that haven't ended.", number,
			"sum by (server_address) (otelproto_channel_outstanding)", "{{server_address}}"),
	}}
}

func broadcasts() Row {
	return Row{Title: "Do broadcasts keep up?", Panels: []Panel{
		one("Lag of the slowest subscriber", "Events behind the newest.", number,
			"max by (otelproto_broadcast_topic) (otelproto_broadcast_lag)", "{{otelproto_broadcast_topic}}"),
		one("Recovered lags", "Each was too far behind and read again, was replayed to, or was told.", perSecond,
			rate("otelproto_broadcast_resyncs_total", "otelproto_broadcast_topic"), "{{otelproto_broadcast_topic}}"),
		one("Published events", "By topic.", perSecond, rate("otelproto_broadcast_published_total", "otelproto_broadcast_topic"),
			"{{otelproto_broadcast_topic}}"),
		one("Subscribers", "By topic.", number, "sum by (otelproto_broadcast_topic) (otelproto_broadcast_subscribers)",
			"{{otelproto_broadcast_topic}}"),
	}}
}
