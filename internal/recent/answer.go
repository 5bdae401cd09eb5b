package recent

import (
	"time"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// ErrBusy says that more is asked than can be answered soon. A retry in a second or so may succeed.
var ErrBusy = admit.ErrBusy

// Source is where an answer came from.
type Source string

// The sources of an answer. Both are live and private; they differ in cost.
const (
	FromIndex    Source = "index"    // the index said where to look, MySQL what to show
	FromDatabase Source = "database" // a walk through the viewer's contacts in MySQL
)

// Answer is what a viewer is shown, and how it was found.
type Answer struct {
	contacts.Album

	Source Source
	Trace  Trace
}

// Trace is how an answer was found. It is for operators: a score is the date of an
// upload, perhaps of a photo that the viewer may not see.
type Trace struct {
	Candidates []Examined // the set, and the broadcast members that the read found, most recent upload first
	Proof      Proof      // why no other contact can have a newer photo
	// Bound is the date that the proof rests on, in unix seconds: no contact that was not
	// looked at has uploaded later. 0: all were looked at.
	Bound      uint64
	WalkReason Reason             // why the walk was needed, see [SetMissing] and those beside it; "": it was not
	Walk       contacts.WalkTrace // how far the walk went
	Steps      []Step             // what took how long, in order
}

// candidate returns the candidate with an id, nil if there is none.
func (t *Trace) candidate(id member.ID) *Examined {
	for i := range t.Candidates {
		if t.Candidates[i].Contact == id {
			return &t.Candidates[i]
		}
	}
	return nil
}

// Proof is why an answer is right; see the package documentation.
type Proof string

// The proofs of an answer.
const (
	ByNext   Proof = "next"     // the newest photo is newer than the bound of all others
	ByLowest Proof = "lowest"   // it is the newest of all candidates, and newer than the bound of all others
	ByAll    Proof = "complete" // it is the newest of all candidates, and the set, smaller than min, holds all contacts
	ByWalk   Proof = "walk"     // it was found by a walk, through as many contacts as needed
)

// Verdict is the result for one candidate.
type Verdict string

// The verdicts on candidates.
const (
	Chosen     Verdict = "chosen"
	Older      Verdict = "older"           // its newest visible photo is older than the answer's
	Nothing    Verdict = "nothing visible" // the viewer may see none of its photos
	Blocked    Verdict = "blocked"         // the same, because one of the two blocks the other; only in an [Explanation]
	NotContact Verdict = "not a contact"   // it is a ghost: the index is behind
	NotLooked  Verdict = "not looked at"   // its score is below the bound
)

// Examined is one candidate of the index and what the read found out about it.
type Examined struct {
	Contact  member.ID
	Score    uint64 // unix seconds of its last upload, as the index knows it
	Newest   uint64 // unix seconds of its newest visible photo; 0: none, or not looked at
	NewestID uint64 // of the same photo
	Verdict  Verdict
	// Broadcast: it is no member of the set, but a broadcast member that the viewer calls a contact.
	Broadcast bool
}

// Step is one round trip of a read, or a wait.
type Step struct {
	Name string // "redis", "first", "others", "winner", "walk", "details"
	Took time.Duration
}
