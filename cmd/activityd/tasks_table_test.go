package main

import (
	"strings"
	"testing"
	"time"
)

func TestTables(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	table := newTextTable(&out, "ID", "NAME", "ERROR")
	table.add("1", "größer", strings.Repeat("x", 100))
	must(t, table.flush())
	table.add("2", "b", "")
	table.add("3", "much longer", "y")
	must(t, table.flush())
	want := "ID  NAME    ERROR\n1   größer  " + strings.Repeat("x", mostLast-1) + "…\n" +
		"2   b\n3   much longer  y\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]int{40: 40, 100: 100, 10: 4 + leastLast} {
		var out strings.Builder
		table := newTextTable(&out, "ID", "ERROR")
		table.width = width
		table.add("1", strings.Repeat("ü", 200))
		must(t, table.flush())
		_, row, _ := strings.Cut(out.String(), "\n")
		if got := len([]rune(strings.TrimSuffix(row, "\n"))); got != want {
			t.Errorf("on %d columns a row has %d", width, got)
		}
	}
}

func TestShortDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m00s", 3*time.Minute + 7*time.Second: "3m07s",
		time.Hour: "1h00m", 26 * time.Hour: "1d02h", 1000 * 24 * time.Hour: "1000d00h",
	} {
		if got := shortDuration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
