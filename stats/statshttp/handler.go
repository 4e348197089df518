package statshttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/otelproto/otelproto-go/stats"
)

// Handler serves a page about what reg counts: as HTML, as JSON (?format=json) or as plain text, the default for curl.
// It answers GET and HEAD at any path, so it can be mounted anywhere. Its memory is bounded (see the package's text).
//
// Nothing here asks who the reader is: mount it where only those who may see the names of methods and peers get to it.
func Handler(reg *stats.Registry, opts ...Option) http.Handler {
	if reg == nil {
		panic("statshttp: Handler: the registry is nil")
	}

	return &handler{config: newConfig(opts), history: newHistory(reg), page: newHTMLPage()}
}

type handler struct {
	config  config
	history *history
	page    *htmlPage
}

// ServeHTTP makes the whole answer in memory and lets go of all else before it writes, so a reader that hangs holds no more than it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Vary", "Accept")

	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		refuse(w, r, http.StatusMethodNotAllowed, fmt.Sprintf("the method is %s, expected GET or HEAD", quoted(r.Method)))

		return
	}

	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		refuse(w, r, http.StatusBadRequest, err.Error())

		return
	}

	if q.format == "" {
		q.format = formatFor(r.Header.Get("Accept"))
	}

	body, status, err := h.render(r, q)

	switch {
	case r.Context().Err() != nil: // nobody is there to read it
	case err != nil:
		refuse(w, r, status, err.Error())
	default:
		if q.format == formatHTML {
			header.Set("Content-Security-Policy", h.page.policy)
			header.Set("Cross-Origin-Opener-Policy", "same-origin")
		}

		send(w, r, status, contentType(q.format), body)
	}
}

// render gives the answer to q.
func (h *handler) render(r *http.Request, q query) ([]byte, int, error) {
	read, base, err := h.history.read(r.Context(), q.window, q.conn)
	if err != nil {
		return nil, http.StatusServiceUnavailable, err
	}

	v, ok := newBuilder(h.config, q, read, base).view(h.config.title)
	if !ok {
		return nil, http.StatusNotFound,
			fmt.Errorf("connection %d isn't live; what closed connections have counted stands in the totals", q.conn)
	}

	v.Sections = make([]sectionView, 0, len(h.config.sections))
	for _, s := range h.config.sections {
		v.Sections = append(v.Sections, newSection(s, q.limit))
	}

	var b bytes.Buffer

	switch q.format {
	case formatHTML:
		err = h.page.write(&b, newHTMLView(q, v, read.cost))
	case formatJSON:
		encoder := json.NewEncoder(&b)
		encoder.SetIndent("", " ")
		err = encoder.Encode(v)
	default:
		writeText(&b, v)
	}

	if err != nil {
		return nil, http.StatusInternalServerError, fmt.Errorf("the page can't be made: %w", err)
	}

	return b.Bytes(), http.StatusOK, nil
}

// refuse answers with an error in plain text, which every reader can read.
func refuse(w http.ResponseWriter, r *http.Request, status int, text string) {
	send(w, r, status, contentType(formatText), []byte("statshttp: "+text+"\n"))
}

func send(w http.ResponseWriter, r *http.Request, status int, media string, body []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)

	if r.Method != http.MethodHead {
		// An error means that the reader is gone, and nobody else wants it.
		_, _ = w.Write(body) //nolint:gosec // HTML is written by html/template; all else is sent as plain text or JSON, with nosniff
	}
}
