package main

import (
	"strings"
	"testing"
)

func TestVersionAsAFlag(t *testing.T) {
	t.Parallel()
	if got := succeed(t, "--version"); got != version()+"\n" || succeed(t, "-v") != got {
		t.Errorf("it prints %q", got)
	}
}

// The order of a map would change from run to run.
func TestTheDefaultOfWorkersIsToldInOneOrder(t *testing.T) {
	t.Parallel()
	const want = "(default default=2,fan_out=2,fan_out_again=1,refill=2,backfill=3,check=1,push=32,push_deliver=32,push_urgent=8)"
	for range 10 {
		if help := succeed(t, "serve", "--help"); !strings.Contains(help, want) || strings.Contains(help, "stringToInt") {
			t.Fatalf("no %q in %s", want, help)
		}
	}
}
