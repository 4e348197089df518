package statshttp

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is how much of a name is shown, in bytes before escaping; a registry keeps no more of a key either.
const maxName = 1024

// clean makes a name that a peer chose fit to be seen in a page, a terminal or JSON: what would move, hide or reorder the text around
// it (control characters, bidirectional and zero-width ones, invalid UTF-8) is spelled out as Go would, and the end of a
// long name is cut off. What HTML and JSON need beyond that, their encoders do.
func clean(s string) string {
	s = cut(s, maxName)

	if strings.IndexFunc(s, unseemly) < 0 && utf8.ValidString(s) {
		return s
	}

	var b strings.Builder

	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !unseemly(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}

	return b.String()
}

// unseemly is true for what isn't a visible character or an ASCII space. Combining marks are visible, but a pile of them isn't
// confined to its line, so they are spelled out too; names of methods and types need none.
func unseemly(r rune) bool {
	switch r {
	case '\u115f', '\u1160', '\u3164', '\uffa0': // Hangul fillers: letters by category, and blank
		return true
	default:
		return !unicode.IsPrint(r) || unicode.Is(unicode.M, r)
	}
}

// cut shortens s to about n bytes, without breaking a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}

	end := n
	for end > n-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}

	return s[:end] + "…"
}

// quoted shows a part of a request in an error.
func quoted(s string) string { return fmt.Sprintf("%q", cut(s, 64)) }
