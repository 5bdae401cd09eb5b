package audit

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// teller tells the log of errors: for each cause one line a minute, with how many
// there were and one of them for an example. A Redis that was emptied would
// otherwise fill the disk.
type teller struct {
	log    *slog.Logger
	now    func() time.Time
	repair bool // what can be mended is

	mu    sync.Mutex
	tales map[Cause]*tale
}

// tale is what is to be told of one cause.
type tale struct {
	count   int
	since   time.Time // when the first of them was found
	example string
	told    time.Time
}

// tellEvery is the time between two lines about one cause.
const tellEvery = time.Minute

// These stand in for a cause.
const (
	lastingLag Cause = "lasting lag"
	notChecked Cause = "not checked" // a server fails at one member
)

// failed remembers that a user could not be checked.
func (t *teller) failed(user member.ID, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(notChecked, fmt.Sprintf("user %s: %v", user, err))
}

// count adds to the tale of a cause. The caller holds the lock.
func (t *teller) count(cause Cause, example string) {
	if t.tales == nil {
		t.tales = make(map[Cause]*tale)
	}
	told := t.tales[cause]
	if told == nil {
		told = &tale{}
		t.tales[cause] = told
	}
	if told.count == 0 {
		told.since = t.now()
	}
	told.count++
	told.example = example
}

// note remembers the findings that are worth a line.
func (t *teller) note(found []Finding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range found {
		cause := f.Cause
		switch {
		case f.Class == Lag && f.Lasting:
			cause = lastingLag
		case f.Class != Error:
			continue
		}
		t.count(cause, f.String())
	}
}

// tell writes the lines that are due; all that are left, if something ends.
func (t *teller) tell(ctx context.Context, end bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for cause, told := range t.tales {
		if told.count == 0 || !end && now.Sub(told.told) < tellEvery {
			continue
		}
		t.log.WarnContext(ctx, "the audit found what is not as it should be", "cause", cause, "count", told.count,
			"example", told.example, "since", told.since, "then", t.advice(cause))
		told.count, told.told = 0, now
	}
}

// advice says what is done about a cause, or what to do.
func (t *teller) advice(c Cause) string {
	switch {
	case c == lastingLag:
		return "tasks wait for too long: see activityd tasks stats"
	case c == notChecked:
		return "left out for now: a server fails at this member alone"
	case c == LowLastUpload:
		return "no refill mends it: the site has to raise users.last_upload"
	case t.repair:
		return "refills are enqueued"
	}
	return "activityd verify --repair enqueues refills"
}
