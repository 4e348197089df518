package statshttp

import (
	"strings"
	"testing"
	"time"
)

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for got, want := range map[string]string{
		bytesText(0):                    "0 B",
		bytesText(999):                  "999 B",
		bytesText(1000):                 "1000 B",
		bytesText(1024):                 "1.00 KiB",
		bytesText(1.5 * 1024):           "1.50 KiB",
		bytesText(1023.6 * 1024):        "1.00 MiB",
		bytesText(12.34):                "12.3 B",
		bytesText(-2048):                "-2.00 KiB",
		bytesText(1 << 50):              "1.00 PiB",
		rateText(0):                     "·",
		rateText(3 << 20):               "3.00 MiB/s",
		perSecond(0.001):                "<0.01/s",
		perSecond(1234):                 "1.23 k/s",
		number3(999.9):                  "1.00 k",
		countText(0):                    "0",
		countText(999):                  "999",
		countText(1000):                 "1,000",
		countText(uint64(12345678)):     "12,345,678",
		percent(0):                      "0 %",
		percent(0.0004):                 "<0.1 %",
		percent(0.123):                  "12.3 %",
		percent(0.9999):                 ">99.9 %",
		percent(1):                      "100 %",
		times(0):                        "·",
		times(4):                        "×4.00",
		shortDuration(time.Minute):      "1m",
		shortDuration(time.Hour):        "1h",
		shortDuration(90 * time.Second): "1m30s",
		shortDuration(10 * time.Second): "10s",
		age(1500 * time.Microsecond):    "1 ms",
		age(20 * time.Microsecond):      "20 µs",
		age(1234 * time.Millisecond):    "1.2 s",
		age(59*time.Second + 999*time.Millisecond): "59 s",
		age(61 * time.Second):                      "1 min 1 s",
		age(3*time.Hour + 4*time.Minute):           "3 h 4 min",
		age(50 * time.Hour):                        "2 d 2 h",
		typesText(1):                               "One type",
		typesText(3):                               "Three types",
		typesText(11):                              "11 types",
		shorten("abcdefghij", 10):                  "abcdefghij",
		shorten("abcdefghijk", 7):                  "ab…hijk",
	} {
		if got := strings.ReplaceAll(got, thin, " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNamesAreCleaned(t *testing.T) {
	for given, want := range map[string]string{
		"kv.Put/Größe":                        "kv.Put/Größe",
		"\x00\x1b[31m\x7f":                    `\x00\x1b[31m\x7f`,
		"a\u202eb\u2066":                      `a\u202eb\u2066`,
		"\u200b\ufeff\u3164":                  `\u200b\ufeff\u3164`,
		"e\u0301":                             `e\u0301`,
		"\U000e0041":                          `\U000e0041`,
		"\xff\ufffd":                          `\xff` + "\ufffd",
		strings.Repeat("x", maxName):          strings.Repeat("x", maxName),
		strings.Repeat("x", maxName+1):        strings.Repeat("x", maxName) + "…",
		strings.Repeat("x", maxName-1) + "€€": strings.Repeat("x", maxName-1) + "…",
	} {
		if got := clean(given); got != want {
			t.Errorf("%.40q is %.60q, want %.60q", given, got, want)
		}
	}
}

func TestCuttingEndsWithinInvalidText(t *testing.T) {
	if got := cut(strings.Repeat("\x80", 100), 50); len(got) < 46 || len(got) > 53 {
		t.Errorf("%d bytes", len(got))
	}
}
