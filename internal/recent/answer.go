package recent

import (
	"errors"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// ErrBusy says that as many walks as are allowed are under way already. Ask
// again in a second or so.
var ErrBusy = errors.New("too many walks through the database at once")

// Source says where an answer came from.
type Source string

// The sources of an answer. Both are live and private; they differ in cost.
const (
	FromIndex    Source = "index"    // the index told where to look, MySQL what to show
	FromDatabase Source = "database" // a full walk through the viewer's contacts in MySQL
)

// Answer is what a viewer is shown, and how it was found.
type Answer struct {
	contacts.Album
	Source Source
	Trace  Trace
}

// Trace tells how an answer was found. It holds nothing that the viewer may not
// know: a block looks the same as having nothing to show.
type Trace struct {
	Candidates []Examined // what the index proposed, most recent upload first
	WalkReason string     // why the walk was needed, see [SetMissing] and its like; empty when it was not
	Steps      []Step     // what took how long, in order
}

// Verdict says what became of a candidate.
type Verdict string

// The verdicts on candidates.
const (
	Chosen     Verdict = "chosen"
	Older      Verdict = "older"           // its newest visible photo is older than the answer's
	Nothing    Verdict = "nothing visible" // it has nothing that the viewer may see
	NotContact Verdict = "not a contact"   // any more: the index is behind
	NotLooked  Verdict = "not looked at"   // its score was beaten already
)

// Examined is one candidate of the index and what the read found out about it.
type Examined struct {
	Contact member.ID
	Score   uint64 // unix seconds of its last upload, as the index knows it
	Newest  uint64 // unix seconds of its newest visible photo; 0: none, or not looked at
	Verdict Verdict
}

// Step is one round trip of a read, or a wait.
type Step struct {
	Name string // "redis", "first", "others", "winner", "walk"
	Took time.Duration
}
