package check

import (
	"context"
	"errors"
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// answerLimit is how many photos of an answer are compared.
const answerLimit = 10

// CheckAnswers reads for each of the viewers by way of the index, each viewer once, and compares the photos with
// the answer by its definition, from MySQL alone. Answers without a part of the index, and answers for ids of no
// member, are skipped. It needs [Options].Reader, and costs a walk for each viewer. It fails as [Checker.Check] does.
func (c *Checker) CheckAnswers(ctx context.Context, viewers []member.ID) (Report, error) {
	return c.check(ctx, viewers, func(ctx context.Context, viewers []member.ID) (map[member.ID]looked, error) {
		found := make(map[member.ID]looked, len(viewers))
		for _, viewer := range viewers {
			l, err := c.lookAtAnswer(ctx, contacts.Viewer{ID: viewer})
			switch {
			case errors.Is(err, errNoPart), errors.Is(err, contacts.ErrNoMember):
				l = looked{skipped: true}
			case err != nil:
				return nil, fmt.Errorf("check the answer for %s: %w", viewer, err)
			}
			found[viewer] = l
		}
		return found, nil
	})
}

// lookAtAnswer compares once. Albums that are equal at once are right. Else the order is: the truth, the pending tasks,
// the answer, the truth again; see the package comment.
func (c *Checker) lookAtAnswer(ctx context.Context, v contacts.Viewer) (looked, error) {
	first, err := c.read(ctx, v)
	if err != nil {
		return looked{}, err
	}
	before, err := c.options.Truth.Walk(ctx, v, answerLimit)
	if err != nil || first.IsSame(before.Album) {
		return looked{}, err
	}
	coming, err := c.pending(ctx, ofContact, owners(first, before.Album))
	if err != nil {
		return looked{}, err
	}
	changes, err := c.pending(ctx, ofViewer, []member.ID{v.ID})
	if err != nil {
		return looked{}, err
	}
	shown, err := c.read(ctx, v)
	if err != nil || shown.IsSame(before.Album) {
		return looked{}, err
	}
	after, err := c.options.Truth.Walk(ctx, v, answerLimit)
	if err != nil || !before.IsSame(after.Album) || !first.IsSame(shown) {
		return looked{moved: true}, err
	}
	due := before.Album
	f := Finding{
		User: v.ID, Contact: ownerOf(due), Cause: WrongAnswer, Weight: Error, Stored: newest(shown), Actual: newest(due),
		Detail: fmt.Sprintf("shown are %s, due are %s", inWords(shown), inWords(due)), involved: owners(shown, due),
	}
	if len(coming)+len(changes) > 0 {
		f.Weight = Lag
	}
	return looked{suspects: []Finding{f}}, nil
}

// errNoPart says that the index had no part in an answer.
var errNoPart = errors.New("the answer came from MySQL")

// read returns the answer by the index.
func (c *Checker) read(ctx context.Context, v contacts.Viewer) (contacts.Album, error) {
	answer, err := c.options.Reader.Read(ctx, v, answerLimit)
	if errors.Is(err, recent.ErrBusy) || err == nil && answer.Source != recent.FromIndex {
		err = errNoPart
	}
	return answer.Album, err
}

// ownerOf is 0 for the album with nothing to show.
func ownerOf(a contacts.Album) member.ID {
	if a.Contact == nil {
		return 0
	}
	return a.Contact.ID
}

func owners(albums ...contacts.Album) (ids []member.ID) {
	for _, a := range albums {
		if id := ownerOf(a); id != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func newest(a contacts.Album) uint64 {
	if len(a.Photos) == 0 {
		return 0
	}
	return a.Photos[0].DateUpload
}

func inWords(a contacts.Album) string {
	if len(a.Photos) == 0 {
		return "no photos"
	}
	return fmt.Sprintf("%d photos of %s, the newest %d", len(a.Photos), ownerOf(a), a.Photos[0].ID)
}
