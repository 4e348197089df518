package statshttp

import (
	"math"
	"strconv"
	"strings"
)

// The formats of the page, as the parameter format names them.
const (
	formatHTML = "html"
	formatJSON = "json"
	formatText = "text"
)

// contentType gives the media type of a format.
func contentType(format string) string {
	switch format {
	case formatHTML:
		return "text/html; charset=utf-8"
	case formatJSON:
		return "application/json; charset=utf-8"
	default:
		return "text/plain; charset=utf-8"
	}
}

// formatFor chooses the format by the header Accept: what it names with the highest weight, or plain text, which suits those who
// take anything, such as curl. Browsers name text/html.
func formatFor(accept string) string {
	best, weight := formatText, 0.0

	for part := range strings.SplitSeq(cut(accept, maxAccept), ",") {
		media, parameters, _ := strings.Cut(part, ";")

		var format string

		switch strings.ToLower(strings.TrimSpace(media)) {
		case "text/html", "application/xhtml+xml":
			format = formatHTML
		case "application/json":
			format = formatJSON
		case "text/plain":
			format = formatText
		default:
			continue
		}

		if w := weightOf(parameters); w > weight {
			best, weight = format, w
		}
	}

	return best
}

// maxAccept is how much of the header is looked at, in bytes; browsers send about 150.
const maxAccept = 1024

func weightOf(parameters string) float64 {
	for p := range strings.SplitSeq(parameters, ";") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(p), "q="); ok {
			w, err := strconv.ParseFloat(v, 64)
			if err != nil || math.IsNaN(w) || w < 0 || w > 1 {
				return 0
			}

			return w
		}
	}

	return 1
}
