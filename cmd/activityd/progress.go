package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/outage"
)

func progressFlag(f *pflag.FlagSet, interval *time.Duration) {
	f.DurationVar(interval, "progress", 10*time.Second, "interval of the lines on stderr with the progress; 0: none")
}

// progress writes lines that say how far a command is. It is not safe for concurrent
// use.
type progress struct {
	w              io.Writer
	interval       time.Duration // 0: no lines
	total          int64         // negative: unknown
	what           string        // is counted, in the plural
	count          int64
	pace           string // how fast it may go, and why; "": that is not known
	start, printed time.Time
}

func newProgress(w io.Writer, interval time.Duration, total int64, what string) *progress {
	now := time.Now()
	return &progress{w: w, interval: interval, total: total, what: what, start: now, printed: now}
}

func (p *progress) add(n int) {
	p.count += int64(n)
	if now := time.Now(); p.interval > 0 && now.Sub(p.printed) >= p.interval {
		p.printed = now
		line := p.line(now.Sub(p.start))
		if p.pace != "" {
			line += "; " + p.pace
		}
		fmt.Fprintln(p.w, line)
	}
}

// line returns a text such as "12000 of 40000 tasks, 1500 a second, 19s left".
func (p *progress) line(elapsed time.Duration) string {
	rate := float64(p.count) / max(elapsed.Seconds(), 0.001)
	if p.total <= p.count {
		return fmt.Sprintf("%d %s, %.0f a second", p.count, p.what, rate)
	}
	left := time.Duration(float64(p.total-p.count) / max(rate, 0.001) * float64(time.Second))
	return fmt.Sprintf("%d of %d %s, %.0f a second, %s left", p.count, p.total, p.what, rate, left.Round(time.Second))
}

// reporter is a [bulk.Reporter] that writes to stderr: the progress, and once, not for
// every batch, what delays the work.
type reporter struct {
	interval     time.Duration // of --progress
	held, slowed *outage.Log   // write by way of Write
	givenUp      memberList

	mu       sync.Mutex
	w        io.Writer
	progress *progress // from Begin on
}

func newReporter(w io.Writer, interval time.Duration) *reporter {
	r := &reporter{w: w, interval: interval}
	log := slog.New(slog.NewTextHandler(r, nil))
	r.held, r.slowed = outage.Of(log, "held up, trying again", "going on"), outage.Of(log, "slowed down", "all servers answer as usual")
	return r
}

// Begin implements [bulk.Reporter].
func (r *reporter) Begin(total int64, after member.ID, written time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = newProgress(r.w, r.interval, total, "members")
	if after > 0 {
		r.printf("going on after member %s (saved %s)", after, written.Format(time.DateTime+" MST"))
	}
}

// Moved implements [bulk.Reporter].
func (r *reporter) Moved(n int) {
	r.held.Report(context.Background(), time.Now(), nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.add(n)
}

// Trouble implements [bulk.Reporter].
func (r *reporter) Trouble(err error) { r.held.Report(context.Background(), time.Now(), err) }

// Paced implements [bulk.Reporter].
func (r *reporter) Paced(p bulk.Pace) {
	r.mu.Lock()
	if r.progress != nil {
		r.progress.pace = p.String()
	}
	r.mu.Unlock()
	if p.Mode == bulk.Stopped {
		r.Trouble(p.Problem())
		return
	}
	r.slowed.Report(context.Background(), time.Now(), p.Problem())
}

// Lost implements [bulk.Reporter].
func (r *reporter) Lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.printf("going on: %v", err)
}

// GaveUp implements [bulk.Reporter].
func (r *reporter) GaveUp(id member.ID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.printf("gave up member %s: %v", id, err)
	r.givenUp.add(id)
}

// printf writes a line. The caller holds the lock.
func (r *reporter) printf(format string, args ...any) {
	fmt.Fprintf(r.w, "activityd: "+format+"\n", args...)
}

// Write writes lines of a log.
func (r *reporter) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w.Write(text)
}
