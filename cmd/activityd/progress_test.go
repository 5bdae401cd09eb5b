package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/bulk"
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

// A line says how fast it may go, and why.
func TestProgressTellsThePace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		r := newReporter(&out, 10*time.Second)
		r.Begin(1000, 0, time.Time{})
		for _, p := range []bulk.Pace{
			{Batches: 4},
			{Mode: bulk.Slowed, Batches: 1, Pause: 2 * time.Second, Server: "MySQL", Latency: 80 * time.Millisecond, Usual: time.Millisecond},
		} {
			<-time.After(10 * time.Second)
			r.Paced(p)
			r.Moved(100)
		}
		want := "100 of 1000 members, 10 a second, 1m30s left; all servers answer as usual; batches at once: 4\n" +
			"200 of 1000 members, 10 a second, 1m20s left; slowed down: MySQL answers in 80 ms, usually 1 ms; a batch every 2s at most\n"
		if lines := regexp.MustCompile(`(?m)^time=.*\n`).ReplaceAllString(out.String(), ""); lines != want {
			t.Errorf("printed %q, want %q", lines, want)
		}
	})
}

// An outage that begins soon after another one ended is reported when it still holds some
// time after that, though it is not told again.
func TestAnOutageAfterAnotherIsReported(t *testing.T) {
	t.Parallel()
	const one = "held up, trying again,going on"
	for name, test := range map[string]struct {
		lasts time.Duration // of the second outage
		want  string
	}{
		"it is over soon": {time.Second, one}, "it lasts": {2 * time.Minute, one + "," + one},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				r := newReporter(&out, 0)
				r.Begin(-1, 0, time.Time{})
				no := errors.New("no")
				r.Trouble(no)
				<-time.After(time.Millisecond)
				r.Moved(1)
				for began := time.Now(); time.Since(began) < test.lasts; <-time.After(time.Second) {
					r.Paced(bulk.Pace{Mode: bulk.Stopped, Server: "Redis", Err: no})
				}
				r.Moved(1)
				var got []string
				for _, line := range regexp.MustCompile(`msg="(.*?)"`).FindAllStringSubmatch(out.String(), -1) {
					got = append(got, line[1])
				}
				if strings.Join(got, ",") != test.want {
					t.Errorf("printed %q, want %q", got, test.want)
				}
			})
		})
	}
}
