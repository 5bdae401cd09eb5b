//go:build unix

package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// httpReader asks the API as the site's pages do.
type httpReader struct {
	*fleet
	rnd     *rand.Rand
	members []member.ID
}

func (f *fleet) httpReader(rnd *rand.Rand) *httpReader {
	return &httpReader{fleet: f, rnd: rnd, members: f.viewers()}
}

// shown is an answer of the API.
type shown struct {
	Photos []struct {
		ID    uint64 `json:"id,string"`
		Title string `json:"title"`
	} `json:"photos"`
}

// readSomebody reads once. In chaos the API may be gone, or say that it cannot answer now. A wrong status or
// a secret is an error.
func (r *httpReader) readSomebody(ctx context.Context) error {
	viewer := r.members[r.rnd.IntN(len(r.members))]
	r.tally.reads.Add(1)
	answer, err := r.read(ctx, viewer, 1+r.rnd.IntN(20))
	switch status, answered := errors.AsType[*statusError](err); {
	case answered && !isAway(status.code) && status.code != http.StatusNotFound:
		return fmt.Errorf("viewer %s: %w", viewer, err)
	case err != nil:
		r.tally.refused.Add(1)
	}
	for _, p := range answer.Photos {
		if p.Title == secret {
			return fmt.Errorf("viewer %s is shown the secret photo %d", viewer, p.ID)
		}
	}
	return nil
}

func (r *httpReader) read(ctx context.Context, viewer member.ID, limit int) (answer shown, err error) {
	address, err := r.api.address()
	if err != nil {
		return answer, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://%s/v1/users/%s/recent-contact-photos?limit=%d", address, viewer, limit), http.NoBody)
	if err != nil {
		return answer, err
	}
	err = exchange(r.http, request, http.StatusOK, &answer)
	return answer, err
}

// askAgain reads for some viewers, as their pages would in time. A read that could not wait for
// Redis says nothing about a set that is missing.
func (f *fleet) askAgain(t *testing.T, viewers []member.ID) {
	t.Helper()
	reader := f.httpReader(nil)
	for _, viewer := range viewers {
		_, _ = reader.read(t.Context(), viewer, 1) // it is asked again if it is missing still
	}
}

// askEverybody compares the API's answer to each viewer with plain SQL. A read also restores a missing set.
func (f *fleet) askEverybody(t *testing.T) {
	t.Helper()
	const limit = 10
	reader := f.httpReader(nil)
	for _, viewer := range f.viewers() {
		if f.isGone(t, viewer) {
			continue
		}
		album, err := site.AskPlainly(t.Context(), f.db, site.ContactsFirst, contacts.Viewer{ID: viewer}, limit)
		must(t, err)
		answer, err := reader.read(t.Context(), viewer, limit)
		must(t, err)
		var want, got []uint64
		for _, p := range album.Photos {
			want = append(want, p.ID)
		}
		for _, p := range answer.Photos {
			got = append(got, p.ID)
		}
		if !slices.Equal(want, got) {
			t.Errorf("viewer %s is shown the photos %v, want %v", viewer, got, want)
		}
	}
}
