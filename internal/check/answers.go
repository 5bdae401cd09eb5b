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
		all := make(map[member.ID]looked, len(viewers))
		for _, viewer := range viewers {
			l, err := c.lookAtAnswer(ctx, contacts.Viewer{ID: viewer})
			switch {
			case errors.Is(err, errNoPart), errors.Is(err, contacts.ErrNoMember):
				l = looked{skipped: true}
			case err != nil:
				return nil, fmt.Errorf("check the answer for %s: %w", viewer, err)
			}
			all[viewer] = l
		}
		return all, nil
	})
}

// lookAtAnswer compares once. Albums that are equal at once are right. Else the order is: the truth, the pending tasks,
// the answer, the truth again; see the package comment.
func (c *Checker) lookAtAnswer(ctx context.Context, v contacts.Viewer) (looked, error) {
	first, err := c.read(ctx, v)
	if err != nil {
		return looked{}, err
	}
	due, err := c.options.Truth.Walk(ctx, v, answerLimit)
	if err != nil || first.IsSame(due.Album) {
		return looked{}, err
	}
	f := Finding{User: v.ID, Cause: WrongAnswer, Weight: Error, Stored: newest(first), Actual: newest(due.Album)}
	f.Detail = fmt.Sprintf("shown are %s, due are %s", inWords(first), inWords(due.Album))
	if due.Contact != nil {
		f.Contact = due.Contact.ID
	}
	found, err := c.findLags(ctx, map[member.ID][]suspect{v.ID: {{f, owners(first, due.Album)}}})
	if err != nil {
		return looked{}, err
	}
	second, err := c.read(ctx, v)
	if err != nil {
		return looked{}, err
	}
	after, err := c.options.Truth.Walk(ctx, v, answerLimit)
	if err != nil || !due.IsSame(after.Album) || !first.IsSame(second) {
		return looked{moved: true}, err
	}
	return looked{found: found[v.ID]}, nil
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

func owners(albums ...contacts.Album) (ids []member.ID) {
	for _, a := range albums {
		if a.Contact != nil {
			ids = append(ids, a.Contact.ID)
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
	return fmt.Sprintf("%d photos of %s, the newest %d", len(a.Photos), a.Contact.ID, a.Photos[0].ID)
}
