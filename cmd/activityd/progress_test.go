package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		total int64
		want  string
	}{
		{1000, "100 of 1000 tasks, 10 a second, 1m30s left\n200 of 1000 tasks, 10 a second, 1m20s left\n"},
		{150, "100 of 150 tasks, 10 a second, 5s left\n200 tasks, 10 a second\n"},
		{-1, "100 tasks, 10 a second\n200 tasks, 10 a second\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			p := newProgress(&out, 10*time.Second, test.total, "tasks")
			for range 25 {
				<-time.After(time.Second)
				p.add(10)
			}
			if out.String() != test.want {
				t.Errorf("of %d: %q, want %q", test.total, out.String(), test.want)
			}
		})
	}
}

func TestProgressWithoutLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out, 0, -1, "tasks")
		<-time.After(time.Minute)
		p.add(5)
		if out.String() != "" {
			t.Errorf("printed %q", out.String())
		}
	})
}

// A command that joins reports the rate since it joined, and a note.
func TestTheReporterOfAJoinedCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		r := newReporter(&out, 10*time.Second)
		for i := range int64(21) {
			r.moved(500+10*i, 1000, "paused")
			<-time.After(time.Second)
		}
		want := "600 of 1000 members, 10 a second, 40s left; paused\n700 of 1000 members, 10 a second, 30s left; paused\n"
		if out.String() != want {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
	})
}
