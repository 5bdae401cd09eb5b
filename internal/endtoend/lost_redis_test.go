package endtoend_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestEmptiedRedis: FLUSHALL twice while everybody works, and once at rest.
func TestEmptiedRedis(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	tn := newTown(t, newGround(t, needFor(seed)), seed, 400)
	tn.warm(t, tn.viewers())
	worked := newCounter(0)
	a, b := tn.process(t, "a", faults{index: hesitant, handlers: worked.wrap}), tn.process(t, "b", faults{index: hesitant, handlers: worked.wrap})
	a.start(t)
	b.start(t)
	audience := tn.watch(t, seed, a, b)
	for range 2 {
		before := worked.total.Load()
		alive := tn.living(t, 30)
		eventually(t, "the workers work", func() bool { return worked.total.Load() > before+10 })
		tn.flush(t)
		must(t, alive())
	}
	audience.stop()
	tn.awaitIdle(t)
	tn.check(t, a.reader)

	tn.flush(t)
	if from := tn.checkAnswers(t, a.reader, tn.sample()); from[recent.FromDatabase] < people/2 {
		t.Errorf("answers with an empty Redis from %v", from)
	}
	// Only reads ask for the sets: no change and no command brought them back. A set that is missing seconds
	// later needs another read, because a refill whose enqueue failed is forgotten.
	asked := time.Now()
	eventually(t, "the sets that were asked for are there again", func() bool {
		missing := tn.missingSets(t)
		if time.Since(asked) > 5*time.Second {
			for _, viewer := range missing {
				_, err := a.reader.Read(t.Context(), contacts.Viewer{ID: viewer}, 1)
				must(t, err)
			}
			asked = time.Now()
		}
		return len(missing) == 0
	})
	tn.awaitIdle(t)
	eventually(t, "most answers after the refills are from the index", func() bool {
		return tn.check(t, b.reader)[recent.FromIndex] >= people/2
	})
}

// missingSets returns the sampled viewers who have a contact to be indexed and no
// set. Members who left cannot read, and so ask for none.
func (tn *town) missingSets(t *testing.T) (missing []member.ID) {
	t.Helper()
	sets, truth := tn.sets(t), tn.uploaders(t)
	for _, viewer := range tn.sample() {
		if len(truth[viewer.String()]) > 0 && len(sets[viewer.String()]) == 0 && !tn.isGone(t, viewer) {
			missing = append(missing, viewer)
		}
	}
	return missing
}

// TestKilledRedis kills Redis with SIGKILL in the middle of the work. Workers postpone tasks without counting
// an attempt, though each task has only one until Redis is back. Reads come from the database. A Redis that
// comes back empty, or with its data of the kill, is brought up to date.
func TestKilledRedis(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]string{
		"comes back empty":     nil,
		"comes back as it was": localserver.AOF,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := seedFor(t)
			g := groundOn(t, needFor(seed), servertest.MySQLDSN(t), servertest.Redis(t, options...))
			tn := newTown(t, g, seed, 300)
			tn.warm(t, tn.viewers())
			tn.allowAttempts(t, 1)
			worked := newCounter(0)
			// A lease that runs out takes the only attempt.
			f := faults{handlers: worked.wrap, lease: patience}
			a, b := tn.process(t, "a", f), tn.process(t, "b", f)
			a.start(t)
			b.start(t)
			tn.killRedis(t, seed, worked, a, b)
			tn.awaitIdle(t)
			tn.check(t, a.reader)
			tn.check(t, b.reader)
		})
	}
}

// killRedis kills Redis while the town lives and a and b work, and restarts it.
func (tn *town) killRedis(t *testing.T, seed uint64, worked *counter, a, b *process) {
	t.Helper()
	audience := tn.watch(t, seed, a, b)
	alive := tn.living(t, 40)
	eventually(t, "the workers work", func() bool { return worked.total.Load() >= 10 })
	must(t, tn.redis.Kill())
	must(t, alive())
	tn.live(t, 10) // the changes before may all have been done
	eventually(t, "tasks are postponed", func() bool { return tn.count(t).Scheduled > 0 })
	audience.stop()
	if from := tn.checkAnswers(t, a.reader, tn.sample()); from[recent.FromIndex] > 0 {
		t.Errorf("answers without a Redis from %v", from)
	}
	tn.checkNoneDead(t)
	tn.allowAttempts(t, 25)
	if audience.outages.Load() > 0 {
		t.Errorf("%d reads failed", audience.outages.Load())
	}
	must(t, tn.redis.Restart(t.Context()))
}

// allowAttempts gives every task, now and later, so many attempts. The workers go on meanwhile: the
// tasks that they have are changed when they are done with them.
func (g *ground) allowAttempts(t *testing.T, n int) {
	t.Helper()
	g.exec(t, fmt.Sprint("ALTER TABLE tasks ALTER COLUMN max_attempts SET DEFAULT ", n))
	var since uint64
	must(t, g.db.QueryRowContext(t.Context(), "SELECT "+clock).Scan(&since))
	eventually(t, "the attempts are set", func() bool {
		var before int
		must(t, g.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks WHERE state = 'running' AND started_at <= ?", since).Scan(&before))
		changed, err := g.db.ExecContext(t.Context(), "UPDATE tasks SET max_attempts = ? WHERE max_attempts <> ? AND state <> 'running'", n, n)
		if err != nil {
			return false // of a deadlock
		}
		rows, err := changed.RowsAffected()
		return err == nil && rows == 0 && before == 0 // a worker may have claimed it with earlier tasks
	})
}
