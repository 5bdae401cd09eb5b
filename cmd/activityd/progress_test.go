package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A command that joins reports the rate since it joined, and a note, every ten seconds.
func TestProgressLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &progress{w: &out}
		for i := range int64(20) {
			p.moved(500+10*i, 1000, "; paused")
			<-time.After(time.Second)
		}
		want := "510 of 1000 members, 10 a second, 49s left; paused\n610 of 1000 members, 10 a second, 39s left; paused\n"
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}
