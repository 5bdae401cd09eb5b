package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// Cause names the fault of a set or an answer.
type Cause string

// The causes, each with the invariant of package index that it breaks, if it breaks an invariant.
const (
	Ghost          Cause = "ghost"           // a member that is no contact takes a place
	MissingContact Cause = "missing contact" // I1: a contact uploaded after the lowest score and is no member
	StaleScore     Cause = "stale score"     // I2: a score is lower than the contact's last upload
	HighScore      Cause = "high score"      // a score is higher than the last upload, and costs a look
	WrongSize      Cause = "wrong size"      // I3: more members than Max; or fewer than Min, though there are more contacts
	LostSet        Cause = "lost set"        // there is no set, though sets of all members are kept
	Foreign        Cause = "foreign"         // I4: there is something that activityd never wrote
	Orphan         Cause = "orphan"          // the owner of the set is no member
	LowLastUpload  Cause = "low last upload" // the site breaks its promise about users.last_upload
	WrongAnswer    Cause = "wrong answer"    // a read by way of the index shows something else than MySQL alone
)

// Weight says how much a finding matters.
type Weight string

// The weights.
const (
	Lag   Weight = "lag"   // a task is pending that will look at it
	Error Weight = "error" // nothing is pending: it will stay until it is repaired
	Waste Weight = "waste" // nothing is pending, but it does no harm: it costs a place, a look, or memory
)

// rulings are the weights of the causes where no task is pending, and their sentences: STORED and ACTUAL are dates, HAS
// and WANTS numbers.
var rulings = map[Cause]struct {
	weight Weight
	text   string
}{
	Ghost:          {Waste, "which is no contact, scored STORED"},
	MissingContact: {Error, "which uploaded at ACTUAL"},
	StaleScore:     {Error, "scored STORED, which uploaded at ACTUAL"},
	HighScore:      {Waste, "scored STORED, which uploaded at ACTUAL"},
	WrongSize:      {Error, "members: HAS, and should be WANTS"},
	LostSet:        {Error, "members: HAS, and should be WANTS"},
	Foreign:        {Error, "members that activityd never wrote: HAS, or the key is no sorted set"},
	Orphan:         {Waste, "members: HAS, and should be WANTS"},
	LowLastUpload:  {Error, "whose last_upload is STORED, and whose newest photo that is not private ACTUAL: raise it to WANTS, and report an upload"},
	WrongAnswer:    {Error, "who is shown photos up to STORED, and should be up to ACTUAL: "},
}

// Finding is a difference between Redis and MySQL.
type Finding struct {
	User    member.ID `json:"user"`             // the owner of the set, or the viewer of the answer
	Contact member.ID `json:"contact,omitzero"` // the contact that it is about; 0: the set as a whole
	Weight  Weight    `json:"class"`
	Cause   Cause     `json:"cause"`
	// Stored and Actual are the values of the set and of MySQL: unix seconds of the last upload of a contact, or
	// for findings about the set as a whole numbers of members; for a low last upload that and the date of the newest
	// photo that is not private; for a wrong answer the dates of the newest photos shown and due.
	Stored uint64 `json:"stored"`
	Actual uint64 `json:"actual"`
	Detail string `json:"detail,omitzero"` // of an answer, for people
}

// String describes the finding in a line.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s of user %s", f.Weight, f.Cause, f.User)
	if f.Contact != 0 {
		text += fmt.Sprintf(", contact %s", f.Contact)
	}
	values := strings.NewReplacer("STORED", date(f.Stored), "ACTUAL", date(f.Actual), "HAS", fmt.Sprint(f.Stored), "WANTS", fmt.Sprint(f.Actual))
	return text + ", " + values.Replace(rulings[f.Cause].text) + f.Detail
}

// date writes unix seconds for people, in UTC.
func date(unix uint64) string {
	if unix == 0 {
		return "no date"
	}
	return time.Unix(int64(unix), 0).UTC().Format(time.DateTime)
}

// mendable reports whether a refill mends it. A wrong last_upload only the site can mend.
func (f Finding) mendable() bool { return f.Cause != LowLastUpload }

// Report is the result of a check.
type Report struct {
	Checked   int // sets, or answers, that were judged
	Erroneous int // of these, that have an error
	Unsettled int // that changed too often to be judged; not in Checked

	Skipped  []member.ID         // viewers whose answers the index had no part in, or that are no members; not in Checked
	Failed   map[member.ID]error // members that could not be compared, and why; not in Checked
	Wrong    []member.ID         // the owners of errors and waste that a refill would mend
	Findings []Finding
}

// add counts a set, or an answer, in, with its findings.
func (r *Report) add(owner member.ID, found []Finding) {
	has := func(is func(Finding) bool) bool { return slices.ContainsFunc(found, is) }
	r.Checked, r.Findings = r.Checked+1, append(r.Findings, found...)
	if has(func(f Finding) bool { return f.Weight == Error }) {
		r.Erroneous++
	}
	if has(func(f Finding) bool { return f.Weight != Lag && f.mendable() }) {
		r.Wrong = append(r.Wrong, owner)
	}
}

// suspect is a finding before the pending tasks are known.
type suspect struct {
	Finding
	involved []member.ID // the contacts whose uploads may be on their way
}

// isInRows reports whether reads find in the rows of broadcast members all that the set lacks.
func (s suspect) isInRows(rows map[member.ID]contacts.Broadcast) bool {
	if s.Cause != MissingContact && s.Cause != StaleScore && s.Cause != WrongSize {
		return false
	}
	return len(s.involved) > 0 && !slices.ContainsFunc(s.involved, func(id member.ID) bool {
		b, isBroadcast := rows[id]
		return !isBroadcast || s.Cause != WrongSize && b.LastUpload < s.Actual
	})
}

type suspects []suspect

// add adds a suspect about a set, and about a contact or with 0 about the set as a whole.
func (l *suspects) add(s index.Set, c Cause, contact member.ID, stored, actual uint64, involved ...member.ID) {
	found := Finding{User: s.Member, Contact: contact, Cause: c, Weight: rulings[c].weight, Stored: stored, Actual: actual}
	*l = append(*l, suspect{found, involved})
}

// judge compares a set with the truth. The suspects are weighed as if no task were pending. With activeOnly a missing
// set is right.
func judge(s index.Set, t truth, settings index.Settings, activeOnly bool) (list suspects) {
	top := t.top[s.Member]
	switch _, exists := t.newest[s.Member]; {
	case !s.Known && exists && !activeOnly && len(top) > 0:
		list.add(s, LostSet, 0, 0, uint64(len(top)), idsOf(top)...)
	case s.Known && !exists:
		list.add(s, Orphan, 0, uint64(s.Size), 0)
	case s.Known:
		list.judgePresent(s, t.relations)
		list.judgeAbsent(s, top, settings)
	}
	if n := t.newest[s.Member]; n.Photo > n.LastUpload {
		list.add(s, LowLastUpload, 0, n.LastUpload, n.Photo)
	}
	return list
}

// judgePresent judges the members of the set. An upload only ever adds a contact or raises its score: a ghost, or a
// score that is too high, does not wait for an upload.
func (l *suspects) judgePresent(s index.Set, relations map[contacts.Pair]uint64) {
	if s.Foreign > 0 {
		l.add(s, Foreign, 0, uint64(s.Foreign), 0)
	}
	for _, e := range s.Members {
		switch lastUpload, isContact := relations[contacts.Pair{User: s.Member, Contact: e.Contact}]; {
		case !isContact:
			l.add(s, Ghost, e.Contact, e.Score, 0)
		case e.Score < lastUpload:
			l.add(s, StaleScore, e.Contact, e.Score, lastUpload, e.Contact)
		case e.Score > lastUpload:
			l.add(s, HighScore, e.Contact, e.Score, lastUpload)
		}
	}
}

// judgeAbsent judges the size of the set, and looks for contacts that should be in it. Of a set that is far too large
// only the low end is known, so that no contact can be called missing. Where all of a key is foreign there is no lowest
// score: the reads walk.
func (l *suspects) judgeAbsent(s index.Set, top []contacts.Contact, settings index.Settings) {
	if s.Size > settings.Max {
		l.add(s, WrongSize, 0, uint64(s.Size), uint64(len(top)))
	}
	if len(s.Members) == 0 || s.Size > len(s.Members)+s.Foreign {
		return
	}
	absent := slices.DeleteFunc(slices.Clone(top), func(c contacts.Contact) bool {
		return slices.ContainsFunc(s.Members, func(e index.Entry) bool { return e.Contact == c.ID })
	})
	for _, c := range absent {
		if c.LastUpload > s.Members[0].Score {
			l.add(s, MissingContact, c.ID, 0, c.LastUpload, c.ID)
		}
	}
	if s.Size < settings.Min && len(absent) > 0 {
		l.add(s, WrongSize, 0, uint64(s.Size), uint64(len(top)), idsOf(absent)...)
	}
}

func idsOf(list []contacts.Contact) (ids []member.ID) {
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids
}
