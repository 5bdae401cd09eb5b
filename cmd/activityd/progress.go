package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/activityd/activityd/internal/outage"
)

func progressFlag(f *pflag.FlagSet, interval *time.Duration) {
	f.DurationVar(interval, "progress", 10*time.Second, "interval of the lines on stderr with the progress, where that is no terminal; 0: none")
}

// progress writes lines that say how far a command is. It is not safe for concurrent use.
type progress struct {
	w              io.Writer
	interval       time.Duration // 0: no lines
	total          int64         // negative: unknown
	what           string        // is counted, in the plural
	count, before  int64         // before: done when this began
	start, printed time.Time
}

func newProgress(w io.Writer, interval time.Duration, total int64, what string) *progress {
	now := time.Now()
	return &progress{w: w, interval: interval, total: total, what: what, start: now, printed: now}
}

func (p *progress) add(n int) { p.moved(p.count+int64(n), "") }

// moved says how many are done, and writes a line when it is time, with a note behind it.
func (p *progress) moved(count int64, note string) {
	p.count = count
	if now := time.Now(); p.interval > 0 && now.Sub(p.printed) >= p.interval {
		p.printed = now
		fmt.Fprintln(p.w, p.line(now.Sub(p.start))+note)
	}
}

// line returns a text like "12000 of 40000 tasks, 1500 a second, 19s left".
func (p *progress) line(elapsed time.Duration) string {
	rate := float64(p.count-p.before) / max(elapsed.Seconds(), 0.001)
	if p.total <= p.count {
		return fmt.Sprintf("%d %s, %.0f a second", p.count, p.what, rate)
	}
	left := "no end in sight"
	if rate > 0 {
		left = time.Duration(float64(p.total-p.count)/rate*float64(time.Second)).Round(time.Second).String() + " left"
	}
	return fmt.Sprintf("%d of %d %s, %.0f a second, %s", p.count, p.total, p.what, rate, left)
}

// reporter writes to stderr how far a command over many members is, and, once, the reason when it is held up. On a
// terminal it draws a bar.
type reporter struct {
	interval time.Duration // of --progress
	held     *outage.Log   // writes by way of Write

	mu       sync.Mutex
	w        io.Writer
	progress *progress                // from the first moved on
	bar      *progressbar.ProgressBar // nil: w is no terminal
}

func newReporter(w io.Writer, interval time.Duration) *reporter {
	r := &reporter{w: w, interval: interval}
	r.held = outage.Of(slog.New(slog.NewTextHandler(r, nil)), "held up, trying again", "going on")
	return r
}

// moved shows that so many members of a total are done, with a note.
func (r *reporter) moved(done, total int64, note string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress == nil {
		r.progress = newProgress(r.w, r.interval, total, "members")
		r.progress.before = done
		if f, ok := r.w.(*os.File); ok && r.interval > 0 && term.IsTerminal(int(f.Fd())) {
			r.progress.interval = 0
			r.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(r.w), progressbar.OptionSetElapsedTime(false),
				progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
		}
	}
	if note != "" {
		note = "; " + note
	}
	r.progress.moved(done, note)
	if r.bar != nil {
		r.bar.Describe(r.progress.line(time.Since(r.progress.start)) + note)
		_ = r.bar.Set64(min(done, total)) // an error of a terminal is not missed
	}
}

// say writes a line.
func (r *reporter) say(format string, args ...any) {
	fmt.Fprintf(r, "activityd: "+format+"\n", args...)
}

// Write writes lines, apart from the bar.
func (r *reporter) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bar != nil {
		_ = r.bar.Clear()
	}
	return r.w.Write(text)
}
