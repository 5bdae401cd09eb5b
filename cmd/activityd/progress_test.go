package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A command that joins reports the rate since it joined, and a note.
func TestProgressLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		first, total int64
		want         string
	}{
		{500, 1000, "600 of 1000 tasks, 10 a second, 40s left; paused\n700 of 1000 tasks, 10 a second, 30s left; paused\n"},
		{0, 150, "100 of 150 tasks, 10 a second, 5s left; paused\n200 tasks, 10 a second; paused\n"},
		{0, -1, "100 tasks, 10 a second; paused\n200 tasks, 10 a second; paused\n"},
	} {
		for interval, want := range map[time.Duration]string{10 * time.Second: test.want, 0: ""} {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				p := newProgress(&out, interval, "tasks")
				for i := range int64(21) {
					p.moved(test.first+10*i, test.total, "; paused")
					<-time.After(time.Second)
				}
				if out.String() != want {
					t.Errorf("of %d: %q, want %q", test.total, out.String(), want)
				}
			})
		}
	}
}
