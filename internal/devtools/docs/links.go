package docs

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	inline    = regexp.MustCompile(`\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+["'(][^)]*)?\)`)
	reference = regexp.MustCompile(`^ {0,3}\[[^\]^]+\]:\s+<?([^\s>]+)>?`)
	attribute = regexp.MustCompile(`\s(?:href|src|srcset)="([^"]+)"`)
	lineRange = regexp.MustCompile(`^L(\d+)(?:-L(\d+))?$`)
)

func (t *tree) checkLinks(p *page) {
	for i, line := range p.prose {
		for _, re := range []*regexp.Regexp{inline, reference, attribute} {
			for _, m := range re.FindAllStringSubmatch(line, -1) {
				t.checkLink(p, i+1, m[1])
			}
		}
	}
}

// checkLink checks one link's target, if it lies in this repository.
func (t *tree) checkLink(p *page, line int, link string) {
	u, err := url.Parse(link)
	if err != nil {
		t.problemf(p.path, line, "link %s: %v", link, err)
		return
	}
	if u.Scheme != "" || u.Host != "" {
		return
	}
	t.report.Links++
	target := p.path
	switch {
	case strings.HasPrefix(u.Path, "/"):
		target = path.Clean(u.Path[1:])
	case u.Path != "":
		target = path.Join(path.Dir(p.path), u.Path)
	}
	if target == ".." || strings.HasPrefix(target, "../") {
		t.problemf(p.path, line, "link %s leads out of the repository", link)
		return
	}
	if !t.exists(target) {
		t.problemf(p.path, line, "link %s: no such file", link)
		return
	}
	if u.Fragment == "" {
		return
	}
	if other := t.pages[target]; other != nil {
		if !other.anchors[u.Fragment] {
			t.problemf(p.path, line, "link %s: no such heading", link)
		}
	} else if !t.hasLines(target, u.Fragment) {
		t.problemf(p.path, line, "link %s: no such lines", link)
	}
}

// exists compares names as they are, since not every file system tells cases apart.
func (t *tree) exists(target string) bool {
	dir := t.root
	if target == "." {
		return true
	}
	for name := range strings.SplitSeq(target, "/") {
		entries, err := os.ReadDir(dir)
		if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name }) {
			return false
		}
		dir = filepath.Join(dir, name)
	}
	return true
}

// hasLines reports whether fragment (L3 or L3-L9) names lines that the file has.
func (t *tree) hasLines(file, fragment string) bool {
	m := lineRange.FindStringSubmatch(fragment)
	text, err := os.ReadFile(filepath.Join(t.root, file))
	if m == nil || err != nil {
		return false
	}
	first, _ := strconv.Atoi(m[1]) // digits, by the pattern
	last := first
	if m[2] != "" {
		last, _ = strconv.Atoi(m[2])
	}
	return 1 <= first && first <= last && last <= strings.Count(string(text), "\n")
}
