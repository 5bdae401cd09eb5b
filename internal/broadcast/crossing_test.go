package broadcast_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/broadcast"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// The site of the crossings: a third of the readers follows each of the movers. When a mover has the crowd, too, it has so many
// followers that its next upload makes it a broadcast member; without the crowd it has less than half as many.
const (
	readers      = member.ID(60)    // members 1 to 60
	firstCrowd   = member.ID(101)   // 101 to 220
	lastCrowd    = member.ID(220)   //
	firstMover   = member.ID(10001) // 10,001 to 10,100
	lastMover    = member.ID(10100) //
	moverCount   = int(lastMover - firstMover + 1)
	crossesAt    = 80
	uploadersRun = 4
)

// follows reports whether a reader follows a mover.
func follows(reader, mover member.ID) bool { return (uint64(reader)*7+uint64(mover)*13)%3 == 0 }

// crossing is the site, and what its readers may rely on.
type crossing struct {
	*ground
	clock atomic.Uint64
	// done is the date of the last upload of each mover whose tasks are done: from then on each follower's answer is as new.
	done    [moverCount]atomic.Uint64
	reads   atomic.Int64
	wrong   atomic.Int64
	byIndex atomic.Int64
	// joined and left are how many changes of state have come to their end.
	joined, left atomic.Int64
}

// countingStore counts the changes of state that come to their end.
type countingStore struct {
	broadcast.Store

	c *crossing
}

func (s countingStore) ChangeBroadcast(ctx context.Context, id member.ID, was, to contacts.Broadcast) error {
	switch to.State {
	case contacts.Joined:
		s.c.joined.Add(1)
	case contacts.NoMember:
		s.c.left.Add(1)
	case contacts.Joining, contacts.Leaving:
	}
	return s.Store.ChangeBroadcast(ctx, id, was, to)
}

func newCrossing(t *testing.T) *crossing {
	t.Helper()
	c := &crossing{ground: newGround(t)}
	c.broadcastAt = crossesAt
	c.clock.Store(100_000)
	c.db.SetMaxOpenConns(24)
	c.truth.Store = countingStore{c.store, c}
	c.serve(false)
	var users, rows []string
	for id := firstCrowd; id <= lastCrowd; id++ {
		users = append(users, fmt.Sprintf("(%d, 'crowd')", id))
	}
	for m := firstMover; m <= lastMover; m++ {
		users = append(users, fmt.Sprintf("(%d, 'mover')", m))
		for r := member.ID(1); r <= readers; r++ {
			if follows(r, m) {
				rows = append(rows, fmt.Sprintf("(%d, %d)", r, m))
			}
		}
	}
	c.exec("INSERT IGNORE INTO users (id, username) VALUES " + strings.Join(users, ","))
	c.exec("INSERT IGNORE INTO contacts (user_id, contact_id) VALUES " + strings.Join(rows, ","))
	return c
}

// moverUploads has a mover upload, and waits until its tasks are done, those of its change of state aside.
func (c *crossing) moverUploads(ctx context.Context, m member.ID) error {
	date := c.clock.Add(1)
	if _, err := c.db.ExecContext(ctx, "INSERT INTO photos (owner_id, visibility, date_upload) VALUES (?, 'public', ?)", m, date); err != nil {
		return err
	}
	if _, err := c.db.ExecContext(ctx, "UPDATE users SET last_upload = ? WHERE id = ?", date, m); err != nil {
		return err
	}
	if _, err := c.queue.Enqueue(ctx, []queue.New{tasks.NewUpload(m)}); err != nil {
		return err
	}
	for {
		pending, err := c.queue.Pending(ctx, []string{tasks.Upload, tasks.FanOut, tasks.FanOutSlots}, []uint64{uint64(m)})
		if err != nil {
			return err
		}
		if !pending[uint64(m)] {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Millisecond):
		}
	}
	c.done[m-firstMover].Store(date)
	return nil
}

// cross gives a mover the crowd, or takes it away, and has the looks come due that find out.
func (c *crossing) cross(ctx context.Context, m member.ID, random *rand.Rand) (err error) {
	if random.IntN(2) == 0 {
		_, err = c.db.ExecContext(ctx, "INSERT IGNORE INTO contacts (user_id, contact_id) SELECT id, ? FROM users WHERE id BETWEEN ? AND ?", m, firstCrowd, lastCrowd)
		return err
	}
	if _, err = c.db.ExecContext(ctx, "DELETE FROM contacts WHERE contact_id = ? AND user_id BETWEEN ? AND ?", m, firstCrowd, lastCrowd); err != nil {
		return err
	}
	_, err = c.db.ExecContext(ctx, "UPDATE parked_tasks SET due_at = 1 WHERE state = 'scheduled' AND type = 'broadcast_look'")
	return err
}

// readOnce reads for a reader, whose answer must be as new as all uploads that were done before. All photos are public, and none
// goes away: so the specification asks for no more, and no older one is right.
func (c *crossing) readOnce(ctx context.Context, by *recent.Reader, id member.ID) error {
	var floor uint64
	for m := firstMover; m <= lastMover; m++ {
		if follows(id, m) {
			floor = max(floor, c.done[m-firstMover].Load())
		}
	}
	a, err := by.Read(ctx, contacts.Viewer{ID: id}, 3)
	if err != nil {
		return err
	}
	c.reads.Add(1)
	if a.Source == recent.FromIndex {
		c.byIndex.Add(1)
	}
	isRight := floor == 0
	if a.Contact != nil && len(a.Photos) > 0 {
		of := a.Contact.ID
		isRight = a.Photos[0].DateUpload >= floor && (of < firstMover || follows(id, of))
	}
	if !isRight && c.wrong.Add(1) == 1 {
		c.Errorf("reader %d is shown %+v by the %s (%s), after uploads of %d were done: %+v", id, a.Album, a.Source, a.Trace.WalkReason, floor, a.Trace)
	}
	return nil
}

// While 100 members cross the number of followers in both directions, and upload, no answer lacks an upload that is done.
// ACTIVITYD_BROADCAST_READS=1000000 asks for so many reads; else it is as many as some seconds allow.
func TestReadsWhileMembersCross(t *testing.T) {
	t.Parallel()
	wanted, err := strconv.ParseInt(cmp.Or(os.Getenv("ACTIVITYD_BROADCAST_READS"), "0"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	c := newCrossing(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	report := func(err error) {
		if err != nil && ctx.Err() == nil {
			t.Error(err)
			stop()
		}
	}
	for i := range uploadersRun {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		running.Go(func() {
			for ctx.Err() == nil { // what is begun is ended: a photo without its task would be missed for good
				m := firstMover + member.ID(random.IntN(moverCount/uploadersRun)*uploadersRun+i) // of this goroutine alone
				if random.IntN(3) == 0 {
					report(c.cross(t.Context(), m, random))
				}
				report(c.moverUploads(t.Context(), m))
			}
		})
	}
	var reading sync.WaitGroup
	over, given := time.Now().Add(10*time.Second), time.Now().Add(5*time.Minute)
	// goesOn until some have joined and some have left, however long the tasks of that take here.
	goesOn := func() bool {
		if wanted > 0 {
			return c.reads.Load() < wanted
		}
		now := time.Now()
		return now.Before(over) || now.Before(given) && (c.joined.Load() == 0 || c.left.Load() == 0)
	}
	for i := range 4 {
		random := rand.New(rand.NewPCG(uint64(i), 2))
		by := recent.NewReader(c.index, c.store, refills{c.ground}, recent.Options{IndexWait: time.Minute})
		reading.Go(func() {
			for ctx.Err() == nil && goesOn() {
				report(c.readOnce(ctx, by, member.ID(1+random.Uint64N(uint64(readers)))))
			}
		})
	}
	reading.Wait()
	stop()
	running.Wait()
	t.Logf("%d reads, %d by the index, %d wrong; %d uploads; %d members joined, %d left",
		c.reads.Load(), c.byIndex.Load(), c.wrong.Load(), c.clock.Load()-100_000, c.joined.Load(), c.left.Load())
	if c.reads.Load() == 0 || c.byIndex.Load() == 0 || c.joined.Load() == 0 || c.left.Load() == 0 {
		t.Error("nothing happened")
	}
	servertest.Eventually(t, "exact answers at rest", func() bool { return c.answers()["wrong"] == 0 })
}
