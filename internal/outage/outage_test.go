package outage_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/outage"
)

// linesOf runs do with a Log of a server at a time whose seconds are counted, and returns the lines of the log: at which second, and
// the messages in a word.
func linesOf(t *testing.T, do func(o *outage.Log)) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		start := time.Now()
		words := map[string]string{"server cannot be used": "gone", "server can be used again": "back", "call failed while the server answers others": "apart"}
		do(outage.New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey:
				return slog.Duration("at", a.Value.Time().Sub(start).Round(time.Second))
			case slog.MessageKey:
				return slog.String("msg", words[a.Value.String()])
			}
			return a
		}})), "MySQL"))
		for line := range strings.Lines(out.String()) {
			fields := strings.Fields(line)
			lines = append(lines, strings.TrimPrefix(fields[0], "at=")+" "+strings.TrimPrefix(fields[2], "msg="))
			if fields[3] != "server=MySQL" {
				t.Errorf("line %q", line)
			}
		}
	})
	return lines
}

var errRefused = errors.New("connection refused")

// However many workers try, and however often, an outage of 150 seconds is four lines.
func TestAnOutageIsALineAMinute(t *testing.T) {
	t.Parallel()
	got := linesOf(t, func(o *outage.Log) {
		ctx := context.Background()
		var workers sync.WaitGroup
		for range 100 {
			workers.Go(func() {
				for range 600 {
					o.Report(ctx, time.Now(), errRefused)
					lapse(250 * time.Millisecond)
				}
				o.Report(ctx, time.Now(), nil)
			})
		}
		workers.Wait()
	})
	if want := []string{"0s gone", "1m0s gone", "2m0s gone", "2m30s back"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

// A server that answers every second call is no reason for a line at each of them; a server
// that was there for a while and goes again is.
func TestAServerThatComesAndGoes(t *testing.T) {
	t.Parallel()
	got := linesOf(t, func(o *outage.Log) {
		ctx := context.Background()
		for range 30 {
			o.Report(ctx, time.Now(), errRefused)
			lapse(time.Second)
			o.Report(ctx, time.Now(), nil)
			lapse(time.Second)
		}
		lapse(10 * time.Second)
		o.Report(ctx, time.Now(), errRefused)
	})
	if want := []string{"0s gone", "1s back", "1m10s gone"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

// A call that took long speaks of the time when it began.
func TestCallsThatBeganBeforeSayNothing(t *testing.T) {
	t.Parallel()
	got := linesOf(t, func(o *outage.Log) {
		ctx := context.Background()
		early := time.Now()
		lapse(20 * time.Second)
		o.Report(ctx, time.Now(), nil)
		lapse(time.Second)
		o.Report(ctx, early, errRefused) // it answers since
		lapse(time.Second)
		o.Report(ctx, time.Now(), errRefused)
		lapse(time.Second)
		o.Report(ctx, early, nil) // it is gone since
		lapse(time.Second)
		o.Report(ctx, time.Now(), nil)
	})
	if want := []string{"22s gone", "24s back"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

// A call that fails again and again while the server answers is a line a minute,
// however long it takes. A call that an outage ended has no line of its own.
func TestCallsThatFailWhileOthersSucceed(t *testing.T) {
	t.Parallel()
	got := linesOf(t, func(o *outage.Log) {
		ctx := context.Background()
		for range 7 { // 140 seconds
			early := time.Now()
			for range 40 {
				lapse(500 * time.Millisecond)
				o.Report(ctx, time.Now(), nil)
			}
			o.Report(ctx, early, errRefused)
		}
		lapse(time.Second)
		o.Report(ctx, time.Now(), nil)

		lapse(2 * time.Minute)
		early := time.Now()
		lapse(time.Second)
		o.Report(ctx, time.Now(), nil)
		o.Report(ctx, early, errRefused) // the outage begins
		lapse(time.Second)
		o.Report(ctx, time.Now(), errRefused)
		early = time.Now()
		lapse(time.Second)
		o.Report(ctx, time.Now(), nil)
		o.Report(ctx, early, errRefused) // began in it
		lapse(time.Second)
		o.Report(ctx, time.Now(), nil)
	})
	if want := []string{"21s apart", "1m21s apart", "2m21s apart", "4m23s gone", "4m24s back"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

// Work that stands still has a line when that begins and when it goes on, at the level of the error.
func TestWorkThatStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		o := outage.Of(slog.New(slog.NewTextHandler(&out, nil)), "stands", "goes")
		o.Level = func(err error) slog.Level {
			if errors.Is(err, errRefused) {
				return slog.LevelWarn
			}
			return slog.LevelError
		}
		for _, err := range []error{errRefused, errors.New("a table is missing")} {
			for range 3600 {
				o.Report(t.Context(), time.Now(), err)
				lapse(time.Second)
			}
			o.Report(t.Context(), time.Now(), nil)
			lapse(time.Minute)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.Fields(line)[1:3]...)
		}
		if want := []string{"level=WARN", "msg=stands", "level=INFO", "msg=goes", "level=ERROR", "msg=stands", "level=INFO", "msg=goes"}; !slices.Equal(got, want) {
			t.Errorf("lines %q, want %q", got, want)
		}
	})
}

// Each message about each subject is written once a minute.
func TestLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		lines := outage.NewLines(slog.New(slog.NewTextHandler(&out, nil)))
		for range 150 {
			lines.Log(t.Context(), slog.LevelError, "", "claim failed", "error", errRefused)
			for _, platform := range []string{"apns", "fcm"} {
				lines.Log(t.Context(), slog.LevelWarn, platform, "sender failed", "platform", platform)
			}
			lapse(time.Second)
		}
		for words, want := range map[string]int{
			`level=ERROR msg="claim failed" error="connection refused"`: 3, `level=WARN msg="sender failed" platform=apns`: 3, "platform=fcm": 3,
		} {
			if n := strings.Count(out.String(), words); n != want {
				t.Errorf("%s: %d times, want %d", words, n, want)
			}
		}
	})
}

// lapse lets time go by in a bubble of package synctest, also from several goroutines.
func lapse(d time.Duration) { <-time.After(d) }
