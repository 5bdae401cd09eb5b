package recent

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// mostRanked is how many contacts an explanation to a viewer names.
const mostRanked = 10

// ViewerExplanation tells a viewer why the answer is as it is. It is made of
// nothing but photos that this viewer may see. The candidates of the index are
// not: who is among them, in which order, who had to be looked at, and whether a
// walk was needed depends on when others uploaded, and that may have been
// something private.
type ViewerExplanation struct {
	// Ranking are the contacts with the newest visible photos, at most some ten,
	// newest first. They were looked at a moment after the answer was found; the
	// one that was chosen stands there with the photo of the answer.
	Ranking []Ranked
	Proof   string // why nobody else won, in a sentence
}

// Ranked is a contact with its newest visible photo.
type Ranked struct {
	Contact member.ID
	Newest  contacts.Photo // without its title
	Verdict Verdict        // [Chosen], [Older] or [Newer]
}

// ToViewer explains the answer to the viewer for whom it was found. The ranking
// costs what a walk costs: it fails as [Reader.Read] does, [ErrBusy] included.
// How long anything took is left out: a walk tells of what is hidden.
func (a Answer) ToViewer(ctx context.Context) (ViewerExplanation, error) {
	var standings []contacts.Standing
	if a.from != nil {
		var err error
		if standings, err = a.from.rank(ctx, a.viewer); err != nil {
			return ViewerExplanation{}, fmt.Errorf("explaining the answer for %s: %w", a.viewer.ID, err)
		}
	}
	ranking := a.among(standings)
	return ViewerExplanation{Ranking: ranking, Proof: a.proofToViewer(ranking)}, nil
}

// rank costs what a walk costs, so only a few go on at once; they have turns of
// their own, lest who is curious keeps others from being answered.
func (r *Reader) rank(ctx context.Context, v contacts.Viewer) ([]contacts.Standing, error) {
	wait, stop := context.WithTimeout(ctx, r.options.WalkWait)
	defer stop()
	if r.ranking.Acquire(wait, 1) != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, ErrBusy
	}
	defer r.ranking.Release(1)
	ctx, cancel := context.WithTimeout(ctx, r.options.WalkTimeout)
	defer cancel()
	return r.store.Ranking(ctx, v, mostRanked)
}

// among puts the answer among those who were looked at after it.
func (a Answer) among(standings []contacts.Standing) []Ranked {
	newest, shows := a.newest()
	var all []Ranked
	if shows {
		all = append(all, Ranked{Contact: a.Contact.ID, Newest: newest, Verdict: Chosen})
	}
	for _, s := range standings {
		switch {
		case shows && s.Owner == a.Contact.ID, s.Newest == nil:
		case shows && newest.Newer(*s.Newest):
			all = append(all, Ranked{Contact: s.Owner, Newest: *s.Newest, Verdict: Older})
		default:
			all = append(all, Ranked{Contact: s.Owner, Newest: *s.Newest, Verdict: Newer})
		}
	}
	slices.SortFunc(all, func(x, y Ranked) int {
		return cmp.Or(cmp.Compare(y.Newest.DateUpload, x.Newest.DateUpload), cmp.Compare(y.Newest.ID, x.Newest.ID))
	})
	return all
}

func (a Answer) proofToViewer(ranking []Ranked) string {
	newest, _ := a.newest()
	switch {
	case len(ranking) == 0:
		return "No contact has a photo that the viewer may see."
	case ranking[0].Verdict == Newer:
		return fmt.Sprintf("Contact %s has come first since: its newest photo (%s) was not known when the answer was found.",
			ranking[0].Contact, when(ranking[0].Newest.DateUpload))
	}
	return fmt.Sprintf("The newest photo of contact %s that the viewer may see is of %s, and no other contact has a newer one that the viewer may see.",
		a.Contact.ID, when(newest.DateUpload))
}
