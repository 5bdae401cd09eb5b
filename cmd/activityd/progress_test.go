package main

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressInLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out, progressAuto, 1000, "tasks")
		for range 25 {
			<-time.After(time.Second)
			p.Add(10)
		}
		p.SetTotal(260)
		<-time.After(10 * time.Second)
		p.Add(20) // more than were to be
		p.Done()
		want := "100 of 1000 tasks, 10 a second, 1m30s left\n200 of 1000 tasks, 10 a second, 1m20s left\n270 tasks, 8 a second\n"
		if out.String() != want {
			t.Errorf("said %q, want %q", out.String(), want)
		}
	})
}

func TestProgressSaysNothingWhereItShallNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var quick, never strings.Builder
		for out, mode := range map[*strings.Builder]string{&quick: progressAuto, &never: progressNever} {
			p := newProgress(out, mode, -1, "tasks")
			if mode == progressNever {
				<-time.After(time.Minute)
			}
			p.Add(5)
			p.Done()
		}
		if quick.String() != "" || never.String() != "" {
			t.Errorf("said %q and %q", quick.String(), never.String())
		}
	})
}

func TestProgressBar(t *testing.T) {
	t.Parallel()
	for total, want := range map[int64]string{-1: "(120/-", 100: "120/120", 1000: "120/1000"} {
		var out strings.Builder
		p := newProgress(&out, progressAlways, total, "tasks")
		p.Add(60)
		if total == 100 {
			p.SetTotal(120) // a better estimate
		}
		<-time.After(150 * time.Millisecond) // it is not drawn more often than every tenth of a second
		p.Add(60)
		p.Done()
		if said := out.String(); !strings.Contains(said, want) || !strings.HasSuffix(said, "\n") {
			t.Errorf("of %d: %q", total, said)
		}
	}
}

func TestOnlyTerminalsGetABar(t *testing.T) {
	t.Parallel()
	for _, path := range []string{os.DevNull, t.TempDir() + "/file"} {
		f, err := os.Create(path)
		must(t, err)
		if p := newProgress(f, progressAuto, 10, "tasks"); p.bar != nil {
			t.Errorf("a bar for %s", path)
		}
		must(t, f.Close())
	}
}
