package endtoend_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
)

// audience reads all the time.
type audience struct {
	reads   atomic.Int64
	outages atomic.Int64 // reads that failed because the database was away
	stop    func()       // ends the reading and waits for it
}

// watch makes members read through each of the processes until the audience is stopped. The site changes
// meanwhile, so that watch does not judge the photos. It demands that no read fails and that no answer shows
// a secret.
func (tn *town) watch(t *testing.T, seed uint64, processes ...*process) *audience {
	t.Helper()
	var stopped atomic.Bool
	var reading sync.WaitGroup
	a := &audience{}
	viewers := tn.sample()
	for i, p := range processes {
		rnd := rand.New(rand.NewPCG(seed, 100+uint64(i)))
		reading.Go(func() {
			for !stopped.Load() && t.Context().Err() == nil {
				a.read(t, p.reader, viewers[rnd.IntN(len(viewers))], 1+rnd.IntN(20))
			}
		})
	}
	a.stop = func() {
		stopped.Store(true)
		reading.Wait()
	}
	t.Cleanup(a.stop)
	return a
}

func (a *audience) read(t *testing.T, reader *recent.Reader, viewer member.ID, limit int) {
	t.Helper()
	answer, err := reader.Read(t.Context(), contacts.Viewer{ID: viewer}, limit)
	switch {
	case errors.Is(err, mysql.ErrUnavailable):
		a.outages.Add(1)
	case err != nil && !errors.Is(err, contacts.ErrNoMember) && t.Context().Err() == nil:
		t.Errorf("viewer %s: %v", viewer, err)
	}
	a.reads.Add(1)
	checkShape(t, viewer, limit, answer)
}

// checkShape checks the properties that every answer has at any time.
func checkShape(t *testing.T, viewer member.ID, limit int, answer recent.Answer) {
	t.Helper()
	photos := answer.Photos
	if (answer.Contact == nil) != (len(photos) == 0) || len(photos) > limit {
		t.Errorf("viewer %s: contact %v with %d photos, limit %d", viewer, answer.Contact, len(photos), limit)
	}
	for i, p := range photos {
		if p.Title == secret {
			t.Errorf("viewer %s is shown the secret photo %d, from %s", viewer, p.ID, answer.Source)
		}
		if i > 0 && !photos[i-1].Newer(p) {
			t.Errorf("viewer %s: photo %d comes after %d", viewer, p.ID, photos[i-1].ID)
		}
	}
}
