package statshttp

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A non-breaking narrow space between number and unit.
const thin = "\u202f"

// bytesText writes bytes with three digits, four below the next unit: 1.21 MiB, 1000 KiB.
func bytesText(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

	i := 0
	for math.Abs(n) >= 1023.5 && i < len(units)-1 {
		n /= 1024
		i++
	}

	if i == 0 && n == math.Trunc(n) {
		return strconv.FormatFloat(n, 'f', 0, 64) + thin + units[i]
	}

	return digits(n) + thin + units[i]
}

// rateText writes bytes a second; nothing stays blank, so that what moves stands out.
func rateText(n float64) string {
	if n == 0 {
		return "·"
	}

	return bytesText(n) + "/s"
}

// perSecond writes how many a second.
func perSecond(n float64) string {
	if n == 0 {
		return "·"
	}

	return number3(n) + "/s"
}

// number3 writes a number with three digits: 12.3 k.
func number3(n float64) string {
	units := []string{"", thin + "k", thin + "M", thin + "G", thin + "T"}

	i := 0
	for math.Abs(n) >= 999.5 && i < len(units)-1 {
		n /= 1000
		i++
	}

	return digits(n) + units[i]
}

// digits writes three significant digits of what is below 1,024.
func digits(n float64) string {
	switch a := math.Abs(n); {
	case a == 0:
		return "0"
	case a >= 99.95:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(n, 'f', 1, 64)
	case a < 0.005:
		return "<0.01"
	default:
		return strconv.FormatFloat(n, 'f', 2, 64)
	}
}

// countText writes a whole number with separators.
func countText[T int | uint64](n T) string {
	s := fmt.Sprint(n)

	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}

	return s
}

// percent writes a share: what is nearly nothing or nearly all isn't rounded to it.
func percent(share float64) string {
	p := share * 100

	switch {
	case p == 0 || p == 100:
		return strconv.FormatFloat(p, 'f', 0, 64) + thin + "%"
	case p > 99.9 && p < 100:
		return ">99.9" + thin + "%"
	case p > 0 && p < 0.1:
		return "<0.1" + thin + "%"
	default:
		return strconv.FormatFloat(p, 'f', 1, 64) + thin + "%"
	}
}

// times writes a compression ratio; 0 is no bytes.
func times(ratio float64) string {
	if ratio == 0 {
		return "·"
	}

	return "×" + digits(ratio)
}

// shortDuration writes a window as it was asked for: 1m instead of 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}

	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}

	return s
}

// age writes a duration with two units at most: 3 d 4 h.
func age(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d%sµs", d.Microseconds(), thin)
	case d < time.Second:
		return fmt.Sprintf("%d%sms", d.Milliseconds(), thin)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f%ss", d.Seconds(), thin)
	case d < time.Minute:
		return fmt.Sprintf("%.0f%ss", math.Floor(d.Seconds()), thin)
	case d < time.Hour:
		return fmt.Sprintf("%d%smin%s%d%ss", d/time.Minute, thin, thin, d%time.Minute/time.Second, thin)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d%sh%s%d%smin", d/time.Hour, thin, thin, d%time.Hour/time.Minute, thin)
	default:
		return fmt.Sprintf("%d%sd%s%d%sh", d/(24*time.Hour), thin, thin, d%(24*time.Hour)/time.Hour, thin)
	}
}

// seconds makes a duration of a view's seconds.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
