package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
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
		fmt.Fprintln(p.w, p.line(now.Sub(p.start)))
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
	interval time.Duration // of --progress
	givenUp  memberList

	mu       sync.Mutex
	w        io.Writer
	progress *progress // from Begin on
	held     condition
	slowed   condition
}

// condition is something that is reported when it begins and when it ends.
type condition struct {
	reported bool
	ended    time.Time // of the last one that was reported
	unsaid   string    // the last line of one that began within repeatAfter of that; "": none
}

// repeatAfter is how long a condition that ended is not reported again.
const repeatAfter = 10 * time.Second

// begin reports a condition that began or still holds: at once, or after repeatAfter if it
// has not ended by then. The caller holds the lock.
func (r *reporter) begin(c *condition, line string) {
	wait := repeatAfter - time.Since(c.ended)
	switch {
	case c.reported:
	case wait <= 0:
		c.reported, c.unsaid = true, ""
		r.printf("%s", line)
	case c.unsaid == "":
		time.AfterFunc(wait, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if c.unsaid != "" {
				r.begin(c, c.unsaid)
			}
		})
		fallthrough
	default:
		c.unsaid = line
	}
}

// end returns whether the end of a condition is to be reported: whether its beginning was.
func (c *condition) end() bool {
	was := c.reported
	if c.reported, c.unsaid = false, ""; was {
		c.ended = time.Now()
	}
	return was
}

// stop ends the reports of conditions, when the job has ended.
func (r *reporter) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held.unsaid, r.slowed.unsaid = "", ""
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
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held.end() {
		r.printf("going on")
	}
	r.progress.add(n)
}

// Trouble implements [bulk.Reporter].
func (r *reporter) Trouble(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(&r.held, fmt.Sprintf("held up, trying again: %v", err))
}

// Paced implements [bulk.Reporter].
func (r *reporter) Paced(p bulk.Pace) {
	if p.Mode == bulk.Stopped {
		r.Trouble(fmt.Errorf("%s cannot be used: %w", p.Server, p.Err))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Mode == bulk.Slowed {
		r.begin(&r.slowed, p.String())
	} else if r.slowed.end() {
		r.printf("%s", p)
	}
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
