package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/sweep"
)

// mostNamed is how many members who failed are named in the end.
const mostNamed = 10

// failures are the members who were given up. They are safe for concurrent use.
type failures struct {
	mu    sync.Mutex
	named []member.ID // the first of this run
}

// gaveUp says that a member was given up, and why.
func (l *longRun) gaveUp(user member.ID, err error) {
	l.say(fmt.Sprintf("gave up member %s: %v", user, err))
	l.failures.mu.Lock()
	defer l.failures.mu.Unlock()
	if len(l.failures.named) < mostNamed {
		l.failures.named = append(l.failures.named, user)
	}
}

// failed is the error that ends a run in which some were given up; nil if nobody
// was.
func (l *longRun) failed(n sweep.Counts) error {
	count := n[sweep.Failed]
	if count == 0 {
		return nil
	}
	l.failures.mu.Lock()
	defer l.failures.mu.Unlock()
	var names []string
	for _, user := range l.failures.named {
		names = append(names, user.String())
	}
	if int64(len(names)) < count {
		names = append(names, "…")
	}
	return fmt.Errorf("%d members failed every time and were given up: %s; the reasons are told above, run it for them again", count, strings.Join(names, ", "))
}
