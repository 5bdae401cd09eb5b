package audit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// summary logs what was found: one line a minute for each cause, with the number of
// findings and an example. A Redis that was emptied would fill the disk otherwise.
type summary struct {
	log    *slog.Logger
	repair bool // refills are enqueued

	mu     sync.Mutex
	causes map[Cause]*causeSummary
}

// causeSummary is what is to be logged of one cause.
type causeSummary struct {
	count   int
	since   time.Time // when the first of them was found
	example string
	logged  time.Time
}

// summaryInterval is the time between two lines about one cause.
const summaryInterval = time.Minute

// These stand in for a cause.
const (
	lastingLag Cause = "lasting lag"
	notChecked Cause = "not checked" // a server fails at one member
	nodeAway   Cause = "node away"   // the node of Redis on which the set is cannot be used
)

// failed notes that a member could not be checked.
func (s *summary) failed(id member.ID, err error) {
	s.add(notChecked, fmt.Sprintf("user %s: %v", id, err))
}

// note notes what is to be logged.
func (s *summary) note(r Report) {
	for _, id := range r.Unreachable {
		s.add(nodeAway, fmt.Sprintf("user %s: %v", id, r.Away))
	}
	for _, f := range r.Findings {
		switch {
		case f.Class == Lag && f.Lasting:
			s.add(lastingLag, f.String())
		case f.Class == Error:
			s.add(f.Cause, f.String())
		}
	}
}

func (s *summary) add(cause Cause, example string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.causes[cause]
	if c == nil {
		c = &causeSummary{}
		s.causes[cause] = c
	}
	if c.count == 0 {
		c.since = time.Now()
	}
	c.count++
	c.example = example
}

// write writes the lines that are due, or at an end all of them.
func (s *summary) write(ctx context.Context, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cause, c := range s.causes {
		if c.count == 0 || !end && time.Since(c.logged) < summaryInterval {
			continue
		}
		s.log.WarnContext(ctx, "audit finding", "cause", cause, "count", c.count,
			"example", c.example, "since", c.since, "then", s.advice(cause))
		c.count, c.logged = 0, time.Now()
	}
}

// advice says what is done about a cause, or what to do.
func (s *summary) advice(c Cause) string {
	switch {
	case c == lastingLag:
		return "tasks wait for too long: see activityd tasks stats"
	case c == notChecked:
		return "left out for now: a server fails at this member alone"
	case c == nodeAway:
		return "left out until their node is back"
	case c == LowLastUpload:
		return "no refill mends it: the site has to raise users.last_upload"
	case s.repair:
		return "refills are enqueued"
	}
	return "activityd verify --repair enqueues refills"
}
