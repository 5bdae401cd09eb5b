package main

import (
	"errors"
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

// An outage that begins soon after another one ended is reported when it still holds some
// time after that, though it is not told again.
func TestAnOutageAfterAnotherIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lasts time.Duration // of the second outage
		want  string
	}{
		"it is over soon": {time.Second, "held up, trying again: no\ngoing on\n"},
		"it lasts":        {time.Minute, "held up, trying again: no\ngoing on\nheld up, trying again: Redis cannot be used: no\ngoing on\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				r := &reporter{w: &out}
				defer func() { // nothing is written after the end of the job
					size := out.Len()
					r.Trouble(errors.New("late"))
					r.stop()
					<-time.After(time.Minute)
					if out.Len() > size {
						t.Errorf("printed after the end: %q", out.String()[size:])
					}
				}()
				r.Begin(-1, 0, time.Time{})
				no := errors.New("no")
				r.Trouble(no)
				r.Moved(1)
				<-time.After(time.Second)
				r.Paced(bulk.Pace{Mode: bulk.Stopped, Server: "Redis", Err: no})
				<-time.After(test.lasts)
				r.Moved(1)
				if got := strings.ReplaceAll(out.String(), "activityd: ", ""); got != test.want {
					t.Errorf("printed %q, want %q", got, test.want)
				}
			})
		})
	}
}
