package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
)

// reporter is a [bulk.Reporter] that writes to stderr: the progress, and between its
// lines, once and not for every batch, what holds the work up.
type reporter struct {
	mode    string // of --progress
	givenUp memberList

	mu     sync.Mutex
	w      io.Writer
	bar    *progress // nil: not begun
	held   condition
	slowed condition
}

// condition is something that is reported when it begins and when it ends.
type condition struct {
	holds bool
	ended time.Time
}

// repeatAfter is how long a condition that ended is not reported again.
const repeatAfter = 10 * time.Second

// set reports whether it is to be reported that the condition holds, or no longer.
func (c *condition) set(holds bool) bool {
	if holds == c.holds || holds && time.Since(c.ended) < repeatAfter {
		return false
	}
	if c.holds = holds; !holds {
		c.ended = time.Now()
	}
	return true
}

// Begin implements [bulk.Reporter].
func (r *reporter) Begin(total int64, after member.ID, written time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bar = newProgress(r.w, r.mode, total, "members")
	if after > 0 {
		r.printf("going on after member %s (saved %s)", after, written.Format(time.DateTime+" MST"))
	}
}

// Moved implements [bulk.Reporter].
func (r *reporter) Moved(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held.set(false) {
		r.printf("going on")
	}
	r.bar.Add(n)
}

// Trouble implements [bulk.Reporter].
func (r *reporter) Trouble(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held.set(true) {
		r.printf("held up, trying again: %v", err)
	}
}

// Paced implements [bulk.Reporter].
func (r *reporter) Paced(p bulk.Pace) {
	if p.Mode == bulk.Stopped {
		r.Trouble(fmt.Errorf("%s does not answer: %w", p.Server, p.Err))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.slowed.set(p.Mode == bulk.Slowed) {
		r.printf("%s", p)
	}
}

// GaveUp implements [bulk.Reporter].
func (r *reporter) GaveUp(id member.ID, err error) {
	r.sayf("gave up member %s: %v", id, err)
	r.givenUp.add(id)
}

// sayf writes a line.
func (r *reporter) sayf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.printf(format, args...)
}

// printf writes a line. The caller holds the lock.
func (r *reporter) printf(format string, args ...any) {
	r.clear()
	fmt.Fprintf(r.w, "activityd: "+format+"\n", args...)
}

// clear makes room for a line. The caller holds the lock.
func (r *reporter) clear() {
	if r.bar != nil && r.bar.bar != nil {
		_ = r.bar.bar.Clear() // there is no place to report that the terminal is gone
	}
}

// aside calls what writes something else to the terminal.
func (r *reporter) aside(do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	return do()
}

// Write writes the lines of a logger.
func (r *reporter) Write(text []byte) (n int, err error) {
	err = r.aside(func() error {
		n, err = r.w.Write(text)
		return err
	})
	return n, err
}

// done ends the progress.
func (r *reporter) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bar != nil {
		r.bar.Done()
	}
}

// maxNamed is how many members a [memberList] names.
const maxNamed = 10

// memberList keeps the first of many members, to name them in the end.
type memberList struct {
	mu      sync.Mutex
	members []member.ID
}

func (l *memberList) add(members ...member.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members = append(l.members, members[:min(len(members), maxNamed-len(l.members))]...)
}

// first names them as the first of n.
func (l *memberList) first(n int64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, id := range l.members {
		names = append(names, id.String())
	}
	if int64(len(names)) < n {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
