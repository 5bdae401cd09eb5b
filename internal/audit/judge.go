package audit

import (
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// Facts is what MySQL says of one user.
type Facts struct {
	Exists bool // the user is a member of the site
	// Newest is when the user itself uploaded last.
	Newest contacts.Newest
	// LastUploads are those of the set's members who are contacts of the user, in
	// unix seconds; 0: never uploaded. Who is absent is no contact.
	LastUploads map[member.ID]uint64
	// Top are the Max contacts who uploaded last, or all there are, most recent
	// first.
	Top []contacts.Contact
}

// Rules are what a set is judged by.
type Rules struct {
	index.Settings
	ActiveOnly bool // a missing set is as it should be
}

// Judge compares a set with the facts. The findings are classed as if no task
// were pending.
func Judge(s index.Set, f Facts, r Rules) []Finding {
	var found []Finding
	for _, s := range judge(s, f, r) {
		found = append(found, s.Finding)
	}
	return found
}

// suspicion is a finding about which nothing is known yet but that it is there.
type suspicion struct {
	Finding
	involved []member.ID // the contacts whose uploads may be on their way to the set
}

func judge(s index.Set, f Facts, r Rules) []suspicion {
	j := judgement{set: s, facts: f, rules: r}
	switch {
	case !s.Known && len(f.Top) > 0 && f.Exists && !r.ActiveOnly:
		j.whole(LostSet, 0, len(f.Top), idsOf(f.Top))
	case !s.Known:
	case !f.Exists:
		j.whole(Orphan, j.set.Size, 0, nil)
	default:
		j.judgeMembers()
		j.judgeRest()
	}
	if f.Newest.Photo > f.Newest.LastUpload {
		j.promise(f.Newest)
	}
	return j.found
}

// judgement is of one set.
type judgement struct {
	set   index.Set
	facts Facts
	rules Rules
	found []suspicion
}

// whole notes something about the set as a whole.
func (j *judgement) whole(c Cause, stored, actual int, involved []member.ID) {
	f := Finding{User: j.set.Member, Cause: c, Class: c.class(), Stored: uint64(stored), Actual: uint64(actual)}
	j.found = append(j.found, suspicion{f, involved})
}

// promise notes that the site breaks its promise: whoever calls the user a contact
// is told of an older upload, by the index and by the walk alike.
func (j *judgement) promise(n contacts.Newest) {
	j.found = append(j.found, suspicion{Finding: Finding{
		User: j.set.Member, Cause: LowLastUpload, Class: LowLastUpload.class(), Stored: n.LastUpload, Actual: n.Photo,
		Detail: fmt.Sprintf("raise users.last_upload of member %s to %d, and report an upload", j.set.Member, n.Photo),
	}})
}

// about notes something about one contact. News of a contact only ever add it and
// raise its score: a ghost, or a score that is too high, does not wait for them.
func (j *judgement) about(contact member.ID, c Cause, stored, actual uint64) {
	f := Finding{User: j.set.Member, Contact: contact, Cause: c, Class: c.class(), Stored: stored, Actual: actual}
	var involved []member.ID
	if c == MissingContact || c == StaleScore {
		involved = []member.ID{contact}
	}
	j.found = append(j.found, suspicion{f, involved})
}

// judgeMembers looks at who is in the set.
func (j *judgement) judgeMembers() {
	if j.set.Foreign > 0 {
		j.whole(Foreign, j.set.Foreign, 0, nil)
	}
	if j.set.Size > j.rules.Max {
		j.whole(WrongSize, j.set.Size, min(len(j.facts.Top), j.rules.Max), nil)
	}
	for _, e := range j.set.Members {
		switch lastUpload, isContact := j.facts.LastUploads[e.Contact]; {
		case !isContact:
			j.about(e.Contact, Ghost, e.Score, 0)
		case e.Score < lastUpload:
			j.about(e.Contact, StaleScore, e.Score, lastUpload)
		case e.Score > lastUpload:
			j.about(e.Contact, HighScore, e.Score, lastUpload)
		}
	}
}

// judgeRest looks at who is not in the set and should be. Of a set that is far
// too large only the low end is known, so nobody can be called missing there.
// Where all of a key is foreign there is no lowest score: the reads walk.
func (j *judgement) judgeRest() {
	if len(j.set.Members) == 0 || j.set.Size > len(j.set.Members)+j.set.Foreign {
		return
	}
	present := make(map[member.ID]bool, len(j.set.Members))
	for _, e := range j.set.Members {
		present[e.Contact] = true
	}
	low := j.set.Members[0].Score
	var absent []member.ID
	for _, c := range j.facts.Top {
		if present[c.ID] {
			continue
		}
		absent = append(absent, c.ID)
		if c.LastUpload > low {
			j.about(c.ID, MissingContact, 0, c.LastUpload)
		}
	}
	if j.set.Size < j.rules.Min && len(absent) > 0 {
		j.whole(WrongSize, j.set.Size, len(j.facts.Top), absent)
	}
}

func idsOf(list []contacts.Contact) []member.ID {
	ids := make([]member.ID, len(list))
	for i, c := range list {
		ids[i] = c.ID
	}
	return ids
}
