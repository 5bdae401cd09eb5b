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

	from   *Reader // nil: no Reader found it; it was put together by hand
	viewer contacts.Viewer
}

// Trace tells how an answer was found. It is for those who operate the site: a
// score tells when somebody uploaded, which may have been something that the
// viewer must not know of. See [Answer.ToViewer] for what may be told.
type Trace struct {
	Candidates []Examined         // what the index proposed, most recent upload first
	Proof      Proof              // why nobody else can have won
	WalkReason string             // why the walk was needed, see [SetMissing] and its like; empty when it was not
	Walk       contacts.WalkTrace // how far the walk went, if one was needed
	Steps      []Step             // what took how long, in order
}

// Proof is what proves an answer.
type Proof int

// The proofs of an answer; see the package documentation.
const (
	ByWalk   Proof = iota // through all contacts, as far as was needed
	ByNext                // the newest photo is newer than the next candidate's score
	ByLowest              // it is newer than the lowest score, and the newest of all candidates
	ByAll                 // the set is smaller than min: it holds everybody
)

// Verdict says what became of a candidate.
type Verdict string

// The verdicts on candidates.
const (
	Chosen     Verdict = "chosen"
	Older      Verdict = "older"           // its newest visible photo is older than the answer's
	Nothing    Verdict = "nothing visible" // it has nothing that the viewer may see
	Blocked    Verdict = "blocked"         // so, because it blocks the viewer; only explanations know
	NotContact Verdict = "not a contact"   // any more: the index is behind
	NotLooked  Verdict = "not looked at"   // its score was beaten already
	Newer      Verdict = "newer"           // its newest visible photo was not known when the answer was found; only explanations know
)

// Examined is one candidate of the index and what the read found out about it.
type Examined struct {
	Contact  member.ID
	Score    uint64 // unix seconds of its last upload, as the index knows it
	Newest   uint64 // unix seconds of its newest visible photo; 0: none, or not looked at
	NewestID uint64 // of the same photo
	Verdict  Verdict
}

// Step is one round trip of a read, or a wait.
type Step struct {
	Name string // "redis", "first", "others", "winner", "walk"
	Took time.Duration
}
