package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/activityd/activityd/internal/inspect"
)

// progressEvery is the interval of the lines where stderr is no terminal. The first comes after a second.
const progressEvery = 10 * time.Second

// progress says on stderr how many members of a total are done: in lines, or by a bar on a terminal.
type progress struct {
	mu             sync.Mutex
	w              io.Writer
	bar            *progressbar.ProgressBar // nil: w is no terminal, or nothing is done yet
	first          int64                    // done at the start
	start, printed time.Time                // zero: nothing is done yet
}

// moved says that so many members are done, with a note: when it is time for a line.
func (p *progress) moved(done, total int64, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.start.IsZero() {
		p.first, p.start, p.printed = done, now, now.Add(time.Second-progressEvery)
		escaped, _ := p.w.(escaper)
		if f, ok := escaped.w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(f), progressbar.OptionSetElapsedTime(false),
				progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
		}
	}
	text := progressText(done, total, float64(done-p.first)/max(now.Sub(p.start).Seconds(), 0.001)) + note
	switch {
	case p.bar != nil:
		p.bar.Describe(inspect.OneLine(text))
		_ = p.bar.Set64(min(done, total)) // an error of a terminal is not missed
	case now.Sub(p.printed) >= progressEvery:
		p.printed = now
		sayf(p.w, "%s", text)
	}
}

// progressText returns a text like "12000 of 40000 members, 1500 a second, 19s left".
func progressText(done, total int64, rate float64) string {
	text := fmt.Sprintf("%d of %d members", done, total)
	if rate > 0 {
		left := time.Duration(float64(max(total-done, 0)) / rate * float64(time.Second)).Round(time.Second)
		text += fmt.Sprintf(", %.0f a second, %v left", rate, left)
	}
	return text
}

// say writes a line.
func (p *progress) say(format string, args ...any) { sayf(p, "activityd: "+format, args...) }

// Write writes lines, apart from the bar.
func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	return p.w.Write(text)
}
