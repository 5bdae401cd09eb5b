package check

import (
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// Facts is the state of a member in MySQL.
type Facts struct {
	Exists bool // it is a member of the site
	// Newest is when the member itself uploaded last.
	Newest contacts.Newest
	// LastUploads are of the set's members that are contacts, in unix seconds; 0:
	// never uploaded. An id that is absent is no contact.
	LastUploads map[member.ID]uint64
	// Top are the Max contacts that uploaded last, or all there are, most recent first.
	Top []contacts.Contact
}

// judge compares a set with the facts. The findings are weighed as if no task were
// pending. With activeOnly a missing set is right.
func judge(s index.Set, f Facts, settings index.Settings, activeOnly bool) []Finding {
	j := judgement{set: s, facts: f}
	switch {
	case !s.Known && len(f.Top) > 0 && f.Exists && !activeOnly:
		j.add(LostSet, 0, 0, uint64(len(f.Top)), idsOf(f.Top)...)
	case !s.Known:
	case !f.Exists:
		j.add(Orphan, 0, uint64(s.Size), 0)
	default:
		j.judgePresent(settings.Max)
		j.judgeAbsent(settings.Min)
	}
	if n := f.Newest; n.Photo > n.LastUpload {
		j.add(LowLastUpload, 0, n.LastUpload, n.Photo)
		j.found[len(j.found)-1].Detail = fmt.Sprintf("raise users.last_upload of member %s to %d, and report an upload", s.Member, n.Photo)
	}
	return j.found
}

// judgement is of a set.
type judgement struct {
	set   index.Set
	facts Facts
	found []Finding
}

// add adds a finding about a contact, or with 0 about the set as a whole.
func (j *judgement) add(c Cause, contact member.ID, stored, actual uint64, involved ...member.ID) {
	weight := Error
	if c == Ghost || c == HighScore || c == Orphan {
		weight = Waste
	}
	j.found = append(j.found, Finding{
		User: j.set.Member, Contact: contact, Cause: c, Weight: weight, Stored: stored, Actual: actual, involved: involved,
	})
}

// judgePresent judges the members of the set. An upload only ever adds a contact or
// raises its score: a ghost, or a score that is too high, does not wait for an upload.
func (j *judgement) judgePresent(maxSize int) {
	if j.set.Foreign > 0 {
		j.add(Foreign, 0, uint64(j.set.Foreign), 0)
	}
	if j.set.Size > maxSize {
		j.add(WrongSize, 0, uint64(j.set.Size), uint64(min(len(j.facts.Top), maxSize)))
	}
	for _, e := range j.set.Members {
		switch lastUpload, isContact := j.facts.LastUploads[e.Contact]; {
		case !isContact:
			j.add(Ghost, e.Contact, e.Score, 0)
		case e.Score < lastUpload:
			j.add(StaleScore, e.Contact, e.Score, lastUpload, e.Contact)
		case e.Score > lastUpload:
			j.add(HighScore, e.Contact, e.Score, lastUpload)
		}
	}
}

// judgeAbsent looks for contacts that are not in the set and should be. Of a set that
// is far too large only the low end is known, so that no contact can be called missing.
// Where all of a key is foreign there is no lowest score: the reads walk.
func (j *judgement) judgeAbsent(minSize int) {
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
			j.add(MissingContact, c.ID, 0, c.LastUpload, c.ID)
		}
	}
	if j.set.Size < minSize && len(absent) > 0 {
		j.add(WrongSize, 0, uint64(j.set.Size), uint64(len(j.facts.Top)), absent...)
	}
}

func idsOf(list []contacts.Contact) []member.ID {
	ids := make([]member.ID, len(list))
	for i, c := range list {
		ids[i] = c.ID
	}
	return ids
}
