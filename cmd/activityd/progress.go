package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/activityd/activityd/internal/inspect"
)

func progressFlag(f *pflag.FlagSet, interval *time.Duration) {
	f.DurationVar(interval, "progress", 10*time.Second, "interval of the lines on stderr with the progress, where that is no terminal; 0: none")
}

// progress says on stderr how far a command is: in lines, or by a bar on a terminal.
type progress struct {
	interval time.Duration // 0: no lines, and no bar
	what     string        // is counted, in the plural

	mu             sync.Mutex
	w              io.Writer
	bar            *progressbar.ProgressBar // nil: w is no terminal, or nothing is done yet
	first          int64                    // done at the start
	start, printed time.Time                // zero: nothing is done yet
}

func newProgress(w io.Writer, interval time.Duration, what string) *progress {
	return &progress{w: w, interval: interval, what: what}
}

// moved says that so many of a total are done, with a note: when it is time for a line. A negative total is not known.
func (p *progress) moved(done, total int64, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.start.IsZero() {
		p.first, p.start, p.printed = done, now, now
		escaped, _ := p.w.(escaper)
		if f, ok := escaped.w.(*os.File); ok && total >= 0 && p.interval > 0 && term.IsTerminal(int(f.Fd())) {
			p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(f), progressbar.OptionSetElapsedTime(false),
				progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
		}
	}
	line := p.line(done, total, now.Sub(p.start)) + note
	switch {
	case p.bar != nil:
		p.bar.Describe(inspect.OneLine(line))
		_ = p.bar.Set64(min(done, total)) // an error of a terminal is not missed
	case p.interval > 0 && now.Sub(p.printed) >= p.interval:
		p.printed = now
		fmt.Fprintln(p.w, line)
	}
}

// line returns a text like "12000 of 40000 tasks, 1500 a second, 19s left".
func (p *progress) line(done, total int64, elapsed time.Duration) string {
	rate := float64(done-p.first) / max(elapsed.Seconds(), 0.001)
	switch {
	case total <= done:
		return fmt.Sprintf("%d %s, %.0f a second", done, p.what, rate)
	case rate == 0:
		return fmt.Sprintf("%d of %d %s", done, total, p.what)
	}
	left := time.Duration(float64(total-done) / rate * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%d of %d %s, %.0f a second, %v left", done, total, p.what, rate, left)
}

// say writes a line.
func (p *progress) say(format string, args ...any) {
	fmt.Fprintf(p, "activityd: "+format+"\n", args...)
}

// Write writes lines, apart from the bar.
func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	return p.w.Write(text)
}
