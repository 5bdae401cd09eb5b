package demo

import (
	"fmt"
	"strconv"
	"time"
)

// duration says how long ago something was, in one unit.
func duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 2*time.Second:
		return "just now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	default:
		return fmt.Sprintf("%d days ago", d/day)
	}
}

// milliseconds writes a duration with about two significant digits.
func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}

// factor says how many times as long as a the duration b is, and whether it is
// shorter instead.
func factor(a, b time.Duration) (text string, slower bool) {
	if a <= 0 || b <= 0 {
		return "", false
	}
	slower = b < a
	times := float64(max(a, b)) / float64(min(a, b))
	if times < 10 {
		return fmt.Sprintf("%.1f", times), slower
	}
	return thousands(int(times)), slower
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
