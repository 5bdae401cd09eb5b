package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/sweep"
)

// mostNamed is how many members are named in the end who failed, or were left out.
const mostNamed = 10

// firstMembers are the first of many members, to be named in the end. They are safe
// for concurrent use.
type firstMembers struct {
	mu    sync.Mutex
	named []member.ID // those of this run
}

func (f *firstMembers) add(users ...member.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.named = append(f.named, users[:min(len(users), mostNamed-len(f.named))]...)
}

// of names them as the first of count.
func (f *firstMembers) of(count int64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, user := range f.named {
		names = append(names, user.String())
	}
	if int64(len(names)) < count {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// gaveUp says that a member was given up, and why.
func (l *longRun) gaveUp(user member.ID, err error) {
	l.say(fmt.Sprintf("gave up member %s: %v", user, err))
	l.failures.add(user)
}

// failed is the error that ends a run in which some were given up; nil if nobody
// was.
func (l *longRun) failed(n sweep.Counts) error {
	count := n[sweep.Failed]
	if count == 0 {
		return nil
	}
	return fmt.Errorf("%d members failed every time and were given up: %s; the reasons are told above, run it for them again",
		count, l.failures.of(count))
}
