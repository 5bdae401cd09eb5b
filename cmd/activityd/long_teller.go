package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/pace"
)

// teller says on stderr how a long command goes: the progress, and in between, now
// and then and not for every batch, what holds it up. It is safe for concurrent
// use.
type teller struct {
	mu        sync.Mutex
	w         io.Writer
	bar       *progress // nil: not begun
	held      bool      // it was said that something is wrong, and not yet that it is over
	slowed    bool      // likewise, that it is slow
	wentOn    time.Time // when that was over last
	slowedEnd time.Time
}

// tellerRest is how long the teller does not say the same again, after it said
// that it was over.
const tellerRest = 10 * time.Second

// begin begins the progress.
func (t *teller) begin(mode string, total int64, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bar = newProgress(t.w, mode, total, what)
}

// moved counts members who are done.
func (t *teller) moved(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held {
		t.held, t.wentOn = false, time.Now()
		t.print("going on")
	}
	if t.bar != nil {
		t.bar.Add(n)
	}
}

// trouble says once what holds the work up.
func (t *teller) trouble(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held || time.Since(t.wentOn) < tellerRest {
		return
	}
	t.held = true
	t.print(fmt.Sprintf("held up, trying again: %v", err))
}

// paced says that the pace has changed, and why.
func (t *teller) paced(s pace.State) {
	if s.Mode == pace.Stopped {
		t.trouble(fmt.Errorf("%s does not answer: %w", s.Server, s.Err))
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	slowed := s.Mode == pace.Slowed
	if slowed == t.slowed || slowed && time.Since(t.slowedEnd) < tellerRest {
		return
	}
	if t.slowed = slowed; !slowed {
		t.slowedEnd = time.Now()
	}
	t.print(s.String())
}

// say says a line.
func (t *teller) say(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.print(line)
}

// print says a line. The caller holds the lock.
func (t *teller) print(line string) {
	t.clear()
	fmt.Fprintf(t.w, "activityd: %s\n", line)
}

// clear makes room for a line. The caller holds the lock.
func (t *teller) clear() {
	if t.bar != nil && t.bar.bar != nil {
		_ = t.bar.bar.Clear() // a terminal that is gone cannot be told so
	}
}

// aside runs what prints something else on the terminal.
func (t *teller) aside(do func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	return do()
}

// Write says what others have to say, a logger for example.
func (t *teller) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
	return t.w.Write(text)
}

// done ends the progress.
func (t *teller) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bar != nil {
		t.bar.Done()
	}
}
