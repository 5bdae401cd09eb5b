package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
)

// The choices of --progress.
const (
	progressAuto   = "auto"
	progressAlways = "always"
	progressNever  = "never"
)

// progressFlag registers --progress.
func progressFlag(f *pflag.FlagSet, mode *string) {
	f.Var(newChoice(mode, progressAuto, progressAlways, progressNever), "progress", "a progress bar on stderr; auto: on a terminal, and elsewhere a line now and then")
}

// progress tells on w how far a long command is. It is for one goroutine.
type progress struct {
	w     io.Writer
	what  string // the things counted, in the plural
	total int64  // how many they will be; -1: unknown
	count int64

	bar         *progressbar.ProgressBar // nil: lines instead
	silent      bool
	start, last time.Time
	now         func() time.Time
}

// progressLines is how often at most a line says how far it is, where there is
// no bar.
const progressLines = 10 * time.Second

// newProgress returns one in a mode of --progress for total things, or -1 when
// it is not known how many they will be.
func newProgress(w io.Writer, mode string, total int64, what string) *progress {
	p := &progress{w: w, what: what, total: total, silent: mode == progressNever, now: time.Now}
	p.start = p.now()
	p.last = p.start
	if mode == progressAlways || mode == progressAuto && terminal(w) != nil {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(unescaped(w)), progressbar.OptionSetDescription(what), progressbar.OptionSetItsString(what),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetWidth(20),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetSpinnerChangeInterval(0), // it is drawn when something happens, by no goroutine of its own
		)
	}
	return p
}

// SetTotal changes how many there will be. It may be an estimate; a bar that is
// full once stays so. -1 changes nothing.
func (p *progress) SetTotal(total int64) {
	if total < 0 {
		return
	}
	p.total = max(total, p.count)
	if p.bar != nil && p.total > 0 {
		p.bar.ChangeMax64(p.total)
	}
}

// Add counts n things that are done.
func (p *progress) Add(n int) {
	p.count += int64(n)
	if p.total >= 0 && p.count > p.total {
		p.SetTotal(p.count)
	}
	if p.bar != nil {
		_ = p.bar.Add(n) // a terminal that is gone cannot be told so
		return
	}
	if now := p.now(); !p.silent && now.Sub(p.last) >= progressLines {
		p.last = now
		fmt.Fprintf(p.w, "%s\n", p.line(now))
	}
}

// Done ends the bar's line. Nothing is said after it.
func (p *progress) Done() {
	if p.bar != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(p.w)
	}
}

// line says how far it is, as in "12000 of 40000 tasks, 1500 a second, 19s left".
func (p *progress) line(now time.Time) string {
	elapsed := now.Sub(p.start).Seconds()
	rate := float64(p.count) / max(elapsed, 0.001)
	if p.total <= p.count {
		return fmt.Sprintf("%d %s, %.0f a second", p.count, p.what, rate)
	}
	left := time.Duration(float64(p.total-p.count) / max(rate, 0.001) * float64(time.Second))
	return fmt.Sprintf("%d of %d %s, %.0f a second, %s left", p.count, p.total, p.what, rate, left.Round(time.Second))
}
