package queue

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// State is where a task stands.
type State string

// The states.
const (
	Waiting   State = "waiting"   // for a worker
	Scheduled State = "scheduled" // for its time: delayed, or to be tried again
	Running   State = "running"   // under a lease
	Dead      State = "dead"      // failed for good; kept with its reason
	Done      State = "done"      // of a [Verdict]: its row is deleted
)

// States returns the states that a task can be found in, in the order of its life.
func States() []State { return []State{Waiting, Scheduled, Running, Dead} }

// Filter chooses tasks. The zero value of a field matches all; the fields are
// joined by and, the values of one field by or.
type Filter struct {
	IDs    []uint64
	Kinds  []string
	States []State
	Queues []string
	Key    uint64
	Error  string // the last error contains it; % and _ are as in LIKE, and upper and lower case are one
	After  uint64 // only ids above it
}

// FitsError reports whether a last error is one that Error chooses.
func (f Filter) FitsError(text string) bool {
	if f.Error == "" || text == "" {
		return f.Error == ""
	}
	pattern, quoted := strings.Builder{}, false
	for _, r := range f.Error {
		switch {
		case quoted || r != '%' && r != '_' && r != '\\':
			pattern.WriteString(regexp.QuoteMeta(string(r)))
			quoted = false
		case r == '\\':
			quoted = true
		default:
			pattern.WriteString(map[rune]string{'%': ".*", '_': "."}[r])
		}
	}
	fits, err := regexp.MatchString("(?is)"+pattern.String(), text)
	return err == nil && fits
}

// Record is a task as people look at it.
type Record struct {
	ID          uint64
	Queue       string
	Kind        string
	Key         uint64
	Payload     json.RawMessage // a JSON string instead, where they have more than MaxPayload bytes or are no JSON
	Priority    int
	State       State
	Attempts    int
	MaxAttempts int
	RunAt       time.Time // scheduled: when it may start; else zero
	ExpiresAt   time.Time // when it is dropped if it was not started; zero: never
	LeaseOwner  string    // running: the process and the claim
	LeaseUntil  time.Time // running: when it is free again
	DedupeKey   string    // empty once it was started
	LastError   string
	Created     time.Time
	Updated     time.Time
}

// Stats says how full the queues are.
type Stats struct {
	Tasks  []TaskStats // by queue, type and state; none that are 0
	Queues []Summary   // the queues in which there are tasks or that are paused, by name
	// More says that there are tasks in still other queues: of those which are
	// neither standard nor named by [Options], only the first 32 by name are
	// looked at.
	More bool
}

// StatsLimit bounds how many tasks of one queue and state [Queue.Stats] counts.
const StatsLimit = 100_000

// MaxOtherQueues bounds the queues in [Stats] that only rows name, and
// MaxPriorities the priorities of one queue whose oldest task is looked for.
const (
	MaxOtherQueues = 32
	MaxPriorities  = 16
)

// otherKinds stands in [TaskStats] for all kinds that the queue does not know.
const otherKinds = "other"

// TaskStats counts the tasks of one queue, kind and state. Kinds that the queue does not know are "other".
type TaskStats struct {
	Queue string
	Kind  string
	State State
	Count int
	// Oldest is when the oldest of those that were counted was enqueued.
	Oldest time.Time
}

// Summary is the state of one queue.
type Summary struct {
	Queue  string
	Paused bool
	// Capped says that a state of the queue has more than [StatsLimit] tasks:
	// the counts are those of the first StatsLimit.
	Capped bool
	// Oldest is how long ago the oldest waiting task was enqueued, of those of the
	// 16 most urgent priorities; 0 when none waits.
	Oldest time.Duration
	// Due is how long ago the oldest task became due that is not done: it waits,
	// runs, or was postponed or tried before. A delay that its producer wanted does
	// not count, unless it was tried since: then it counts from when it was enqueued.
	// 0 when there is none.
	Due time.Duration
}

// Open is the number of tasks that wait, now or for their time, or run.
func (s Stats) Open() (n int) {
	for _, t := range s.Tasks {
		if t.State == Waiting || t.State == Scheduled || t.State == Running {
			n += t.Count
		}
	}
	return n
}
