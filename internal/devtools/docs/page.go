package docs

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// page is one Markdown file: its fenced blocks, and its lines with everything that is code blanked out.
type page struct {
	path   string
	lines  []string
	prose  []string // lines, without fenced blocks and code spans
	blocks []block
	// anchors are the names that a link's fragment may have.
	anchors map[string]bool
}

// block is a fenced block.
type block struct {
	line  int    // of its opening fence, from 1
	lang  string // first word after the fence
	from  string // path in the marker before it, "" without one
	lines []string
}

var (
	fence    = regexp.MustCompile("^ {0,3}(`{3,}|~{3,})\\s*([^\\s`]*)")
	marker   = regexp.MustCompile(`^\s*<!--\s*from\s+(\S+)\s*-->\s*$`)
	codeSpan = regexp.MustCompile("(`+)[^`](?:.*?[^`])??(`+)")
	heading  = regexp.MustCompile(`^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$`)
	named    = regexp.MustCompile(`<[a-zA-Z][^>]*\s(?:id|name)="([^"]+)"`)
)

func parse(path, text string) *page {
	p := &page{path: path, lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n"), anchors: make(map[string]bool)}
	open := "" // the fence that the current block began with
	from := ""
	for i, line := range p.lines {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == "" && m != nil:
			open = m[1]
			p.blocks = append(p.blocks, block{line: i + 1, lang: m[2], from: from})
			p.prose = append(p.prose, "")
		case open != "" && m != nil && m[2] == "" && strings.HasPrefix(m[1], open):
			open, from = "", ""
			p.prose = append(p.prose, "")
		case open != "":
			b := &p.blocks[len(p.blocks)-1]
			b.lines = append(b.lines, line)
			p.prose = append(p.prose, "")
		default:
			if m := marker.FindStringSubmatch(line); m != nil {
				from = m[1]
			} else if strings.TrimSpace(line) != "" {
				from = ""
			}
			p.addAnchors(line)
			p.prose = append(p.prose, codeSpan.ReplaceAllString(line, ""))
		}
	}
	return p
}

// addAnchors adds what line can be linked to by: a heading's slug as GitHub makes it, numbered if it occurs again, and explicit
// ids.
func (p *page) addAnchors(line string) {
	for _, m := range named.FindAllStringSubmatch(line, -1) {
		p.anchors[m[1]] = true
	}
	m := heading.FindStringSubmatch(line)
	if m == nil {
		return
	}
	base := slug(m[1])
	name := base
	for n := 1; p.anchors[name]; n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	p.anchors[name] = true
}

var linkText = regexp.MustCompile(`!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])`)

// slug returns the anchor of a heading: lower case, spaces as hyphens, of the rest only letters, digits, hyphens and underscores.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, linkText.ReplaceAllString(heading, "$1"))
}
