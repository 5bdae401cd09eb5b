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
	// LastUploads are of the set's members that are contacts, in unix seconds; 0: never uploaded. An id that is absent
	// is no contact.
	LastUploads map[member.ID]uint64
	// Top are the Max contacts that uploaded last, or all there are, most recent first.
	Top []contacts.Contact
}

// suspect is a finding before the pending tasks are known.
type suspect struct {
	Finding
	involved []member.ID // the contacts whose uploads may be on their way
}

// isOnlyAbout reports whether the suspicion is that uploads of broadcast members are not in a set. Reads find them in
// their rows.
func (s suspect) isOnlyAbout(rows map[member.ID]contacts.Broadcast) bool {
	if s.Cause != MissingContact && s.Cause != StaleScore && s.Cause != WrongSize || len(s.involved) == 0 {
		return false
	}
	for _, id := range s.involved {
		b, isBroadcast := rows[id]
		if !isBroadcast || s.Cause != WrongSize && b.LastUpload < s.Actual {
			return false
		}
	}
	return true
}

// judge compares a set with the facts. The suspects are weighed as if no task were pending. With activeOnly a missing
// set is right.
func judge(s index.Set, f Facts, settings index.Settings, activeOnly bool) (list []suspect) {
	// add adds a suspect about a contact, or with 0 about the set as a whole.
	add := func(c Cause, contact member.ID, stored, actual uint64, involved ...member.ID) {
		found := Finding{User: s.Member, Contact: contact, Cause: c, Weight: c.ruling().weight, Stored: stored, Actual: actual}
		list = append(list, suspect{found, involved})
	}
	switch {
	case !s.Known && len(f.Top) > 0 && f.Exists && !activeOnly:
		var top []member.ID
		for _, c := range f.Top {
			top = append(top, c.ID)
		}
		add(LostSet, 0, 0, uint64(len(top)), top...)
	case !s.Known:
	case !f.Exists:
		add(Orphan, 0, uint64(s.Size), 0)
	default:
		judgePresent(s, f, settings.Max, add)
		judgeAbsent(s, f, settings.Min, add)
	}
	if n := f.Newest; n.Photo > n.LastUpload {
		add(LowLastUpload, 0, n.LastUpload, n.Photo)
		list[len(list)-1].Detail = fmt.Sprintf("raise users.last_upload of member %s to %d, and report an upload", s.Member, n.Photo)
	}
	return list
}

type adding func(c Cause, contact member.ID, stored, actual uint64, involved ...member.ID)

// judgePresent judges the members of the set. An upload only ever adds a contact or raises its score: a ghost, or a
// score that is too high, does not wait for an upload.
func judgePresent(s index.Set, f Facts, maxSize int, add adding) {
	if s.Foreign > 0 {
		add(Foreign, 0, uint64(s.Foreign), 0)
	}
	if s.Size > maxSize {
		add(WrongSize, 0, uint64(s.Size), uint64(min(len(f.Top), maxSize)))
	}
	for _, e := range s.Members {
		switch lastUpload, isContact := f.LastUploads[e.Contact]; {
		case !isContact:
			add(Ghost, e.Contact, e.Score, 0)
		case e.Score < lastUpload:
			add(StaleScore, e.Contact, e.Score, lastUpload, e.Contact)
		case e.Score > lastUpload:
			add(HighScore, e.Contact, e.Score, lastUpload)
		}
	}
}

// judgeAbsent looks for contacts that are not in the set and should be. Of a set that is far too large only the low
// end is known, so that no contact can be called missing. Where all of a key is foreign there is no lowest score: the
// reads walk.
func judgeAbsent(s index.Set, f Facts, minSize int, add adding) {
	if len(s.Members) == 0 || s.Size > len(s.Members)+s.Foreign {
		return
	}
	present := make(map[member.ID]bool, len(s.Members))
	for _, e := range s.Members {
		present[e.Contact] = true
	}
	low := s.Members[0].Score
	var absent []member.ID
	for _, c := range f.Top {
		if present[c.ID] {
			continue
		}
		absent = append(absent, c.ID)
		if c.LastUpload > low {
			add(MissingContact, c.ID, 0, c.LastUpload, c.ID)
		}
	}
	if s.Size < minSize && len(absent) > 0 {
		add(WrongSize, 0, uint64(s.Size), uint64(len(f.Top)), absent...)
	}
}
