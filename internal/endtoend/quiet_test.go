//go:build unix

package endtoend_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// The quiet quarter of a town: nobody there uploads or changes a contact, so no task is ever pending about
// it. Whatever happens to the machines, its viewer therefore gets exactly the answer of plain SQL, or a 503.
// Only the visibility of the newest photo changes.
const (
	quietViewer   = member.ID(5001)
	quietContacts = 20
	quietPearl    = uint64(1 << 40)
)

// The states of the quiet pearl. From before a change is tried until it has surely been made, the state is
// unknown.
const (
	pearlShown = iota
	pearlHiding
	pearlHidden
	pearlShowing
	pearlStates
)

// quiet watches the quiet quarter.
type quiet struct {
	*fleet
	want  [pearlStates][]uint64 // the viewer's answer; only for the two known states
	phase atomic.Int64          // modulo pearlStates, the state of the pearl
	right [pearlStates]atomic.Int64
}

// newQuiet loads the quiet quarter.
func newQuiet(t *testing.T, f *fleet) *quiet {
	t.Helper()
	q := &quiet{fleet: f}
	members := []site.Member{{ID: quietViewer, Username: "quiet viewer"}}
	var relations []site.Relation
	// The last contact owns the pearl, and comes last without it.
	photos := []site.Photo{{ID: quietPearl, Owner: quietViewer + quietContacts, Visibility: contacts.Public, DateUpload: start + 1}}
	for i := range member.ID(quietContacts) {
		id := quietViewer + 1 + i
		members = append(members, site.Member{ID: id, Username: "quiet " + id.String()})
		relations = append(relations, site.Relation{User: quietViewer, Contact: id})
		photos = append(photos, site.Photo{Owner: id, Visibility: contacts.Public, DateUpload: start - uint64(i)})
	}
	must(t, f.site.LoadMembers(t.Context(), members))
	must(t, f.site.LoadContacts(t.Context(), relations))
	must(t, f.site.LoadPhotos(t.Context(), photos))
	f.warm(t, []member.ID{quietViewer})
	q.want[pearlShown] = plainly(t, f.ground, quietViewer)
	must(t, f.site.SetVisibility(t.Context(), quietPearl, contacts.Friends))
	q.want[pearlHidden] = plainly(t, f.ground, quietViewer)
	must(t, f.site.SetVisibility(t.Context(), quietPearl, contacts.Public))
	return q
}

// turn moves the pearl to its next known state.
func (q *quiet) turn(ctx context.Context) error {
	visibility := contacts.Friends // the viewer is no friend: were it private, showing it would be an upload
	if q.phase.Add(1)%pearlStates == pearlShowing {
		visibility = contacts.Public
	}
	err := insist(ctx, func(ctx context.Context) error { return q.site.SetVisibility(ctx, quietPearl, visibility) })
	if err == nil {
		q.phase.Add(1)
	}
	return err
}

// look reads once. An answer must be right if the pearl did not change during the read.
func (q *quiet) look(ctx context.Context) error {
	before := q.phase.Load()
	answer, err := ask(ctx, q.http, q.api, quietViewer, 10)
	state := before % pearlStates
	switch {
	case isWrong(err):
		return fmt.Errorf("the quiet viewer: %w", err)
	case err == nil && q.phase.Load() == before && q.want[state] != nil:
		if !slices.Equal(answer.ids(), q.want[state]) {
			return fmt.Errorf("the quiet viewer is shown the photos %v, want %v", answer.ids(), q.want[state])
		}
		q.right[state].Add(1)
	}
	return nil
}

// live turns the pearl and looks at it. The pearl stays in a state until a read was judged in it: on a slow
// machine a read takes longer than the pause between two turns.
func (q *quiet) live(c *crew) {
	judged := func() int64 { return q.right[q.phase.Load()%pearlStates].Load() }
	before := judged()
	c.each(120*time.Millisecond, q.noted(func(ctx context.Context) error {
		if judged() == before {
			return nil
		}
		err := q.turn(ctx)
		before = judged()
		return err
	}))
	for range 2 {
		c.each(5*time.Millisecond, q.noted(q.look))
	}
}

// awaitBoth waits until reads saw the photo in both states.
func (q *quiet) awaitBoth(t *testing.T) {
	t.Helper()
	shown, hidden := &q.right[pearlShown], &q.right[pearlHidden]
	eventually(t, "reads see the quiet viewer's photo, and see that it is hidden", func() bool {
		return shown.Load() > 0 && hidden.Load() > 0 || q.trouble.Load() != nil
	})
	t.Logf("the quiet viewer: %d reads exact while the photo was visible, %d while it was hidden", shown.Load(), hidden.Load())
}
