package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Cause names the fault of a set or an answer.
type Cause string

// The causes; see rulings.
const (
	Ghost          Cause = "ghost"
	MissingContact Cause = "missing contact"
	StaleScore     Cause = "stale score"
	HighScore      Cause = "high score"
	WrongSize      Cause = "wrong size"
	LostSet        Cause = "lost set"
	Foreign        Cause = "foreign"
	Orphan         Cause = "orphan"
	LowLastUpload  Cause = "low last upload"
	WrongAnswer    Cause = "wrong answer"
)

// Weight says how much a finding matters.
type Weight string

// The weights.
const (
	Lag   Weight = "lag"   // a task is pending that will look at it
	Error Weight = "error" // nothing is pending: it will stay until it is repaired
	Waste Weight = "waste" // nothing is pending, but it does no harm: it costs a place, a look, or memory
)

// ruling is a cause, with its weight where no task is pending and its sentence.
type ruling struct {
	Cause
	weight Weight
	text   string // STORED and ACTUAL are dates, HAS and WANTS numbers
}

// rulings are all causes, each with the invariant of package index that it breaks.
var rulings = []ruling{
	// None: a member that is no contact takes a place.
	{Ghost, Waste, "which is no contact, scored STORED"},
	// I1: a contact uploaded after the lowest score and is no member.
	{MissingContact, Error, "which uploaded at ACTUAL"},
	// I2: a score is lower than the contact's last upload.
	{StaleScore, Error, "scored STORED, which uploaded at ACTUAL"},
	// None: a score is higher than the last upload, and costs a look.
	{HighScore, Waste, "scored STORED, which uploaded at ACTUAL"},
	// I3: more members than Max; or fewer than Min, though there are more contacts.
	{WrongSize, Error, "members: HAS, and should be WANTS"},
	// None: there is no set, though sets of all members are kept.
	{LostSet, Error, "members: HAS, and should be WANTS"},
	// I4: there is something that activityd never wrote.
	{Foreign, Error, "members that activityd never wrote: HAS, or the key is no sorted set"},
	// None: the owner of the set is no member.
	{Orphan, Waste, "members: HAS, and should be WANTS"},
	// None: the site's promise.
	{LowLastUpload, Error, "whose last_upload is STORED, and whose newest photo that is not private ACTUAL"},
	// A read by way of the index shows something else than MySQL alone.
	{WrongAnswer, Error, "who is shown photos up to STORED, and should be up to ACTUAL"},
}

func (c Cause) ruling() ruling {
	return rulings[slices.IndexFunc(rulings, func(f ruling) bool { return f.Cause == c })]
}

// Finding is a difference between Redis and MySQL.
type Finding struct {
	User    member.ID `json:"user"`             // the owner of the set, or the viewer of the answer
	Contact member.ID `json:"contact,omitzero"` // the contact that it is about; 0: the set as a whole
	Cause   Cause     `json:"cause"`
	Weight  Weight    `json:"class"`
	// Stored and Actual are the values of the set and of MySQL: unix seconds of the last upload of a contact, or
	// for findings about the set as a whole numbers of members; for a low last upload that and the date of the newest
	// photo that is not private; for a wrong answer the dates of the newest photos shown and due.
	Stored uint64 `json:"stored"`
	Actual uint64 `json:"actual"`
	Detail string `json:"detail,omitzero"` // for people; may be empty
}

// String describes the finding in a line.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s of user %s", f.Weight, f.Cause, f.User)
	if f.Contact != 0 {
		text += fmt.Sprintf(", contact %s", f.Contact)
	}
	values := strings.NewReplacer("STORED", date(f.Stored), "ACTUAL", date(f.Actual), "HAS", fmt.Sprint(f.Stored), "WANTS", fmt.Sprint(f.Actual))
	text += ", " + values.Replace(f.Cause.ruling().text)
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// mendable reports whether a refill mends it. A wrong last_upload only the site can mend.
func (f Finding) mendable() bool { return f.Cause != LowLastUpload }

// date writes unix seconds for people, in UTC.
func date(unix uint64) string {
	if unix == 0 {
		return "no date"
	}
	return time.Unix(int64(unix), 0).UTC().Format(time.DateTime)
}

// Report is the result of a check.
type Report struct {
	Checked   int // sets, or answers, that were judged
	Unsettled int // sets, or answers, that changed too often to be judged; not in Checked

	Skipped  []member.ID         // viewers whose answers the index had no part in, or that are no members; not in Checked
	Failed   map[member.ID]error // members that could not be compared, and why; not in Checked
	Findings []Finding
}

// Erroneous returns how many sets, or answers, have an error.
func (r *Report) Erroneous() int {
	return len(r.owners(func(f Finding) bool { return f.Weight == Error }))
}

// Wrong returns the owners of errors and waste that a refill would mend, each once.
func (r *Report) Wrong() []member.ID {
	return r.owners(func(f Finding) bool { return f.Weight != Lag && f.mendable() })
}

func (r *Report) owners(of func(Finding) bool) []member.ID {
	ids := make(map[member.ID]bool)
	for _, f := range r.Findings {
		if of(f) {
			ids[f.User] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// Add counts another report in.
func (r *Report) Add(other Report) {
	r.Checked += other.Checked
	r.Unsettled += other.Unsettled
	r.Skipped = append(r.Skipped, other.Skipped...)
	maps.Copy(r.Failed, other.Failed)
	r.Findings = append(r.Findings, other.Findings...)
}
