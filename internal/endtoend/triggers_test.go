package endtoend_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/schema"
)

// TestSiteThatKnowsNothing: a site that writes its own tables and nothing else,
// neither a task nor last_upload, changes at random and from several connections
// while activityd works, and while last_upload is lowered by the SQL of docs/setup.md. At no instant is it before a
// photo that is not private. With the triggers, all sets and answers are right in the end.
func TestSiteThatKnowsNothing(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	s := &silentSite{ground: newGround(t, needFor(seed)), lower: blockWith(t, "users.last_upload > COALESCE(seen.newest, 0)")}
	s.addCascades(t)
	s.found(t, rand.New(rand.NewPCG(seed, 0)))
	s.adopt(t)
	p := s.started(t, "worker")
	var living atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	for n := range uint64(3) {
		living.Add(1)
		rnd := rand.New(rand.NewPCG(seed, n+1))
		group.Go(func() error {
			defer living.Add(-1)
			return s.live(ctx, rnd)
		})
	}
	group.Go(func() error { return s.lowerAll(ctx, func() bool { return living.Load() == 0 }) })
	group.Go(func() error {
		for living.Load() > 0 {
			switch behind, err := s.behind(ctx); {
			case err != nil:
				return err
			case behind > 0:
				return fmt.Errorf("the last upload of %d members is before a photo that others may see", behind)
			}
		}
		return nil
	})
	must(t, group.Wait())
	s.awaitIdle(t)
	s.check(t, p.reader)
}

// silentSite is a site that does not know of activityd.
type silentSite struct {
	*ground
	now     atomic.Uint64 // seconds since start
	lower   []string      // the SQL that lowers last_upload
	lowered atomic.Int64
	pause   sync.RWMutex // held by a transaction of the site
}

func (s *silentSite) addCascades(t *testing.T) {
	t.Helper()
	s.exec(t, `ALTER TABLE contacts ADD FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
		ADD FOREIGN KEY (contact_id) REFERENCES users (id) ON DELETE CASCADE`)
	s.exec(t, "ALTER TABLE photos ADD FOREIGN KEY (owner_id) REFERENCES users (id) ON DELETE CASCADE")
}

// found fills the site as it was before it heard of activityd.
func (s *silentSite) found(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	for id := range people {
		s.exec(t, "INSERT INTO users (id, username) VALUES (?, ?)", id+1, fmt.Sprint("member ", id+1))
	}
	for range 8 * people {
		s.exec(t, "INSERT IGNORE INTO contacts (user_id, contact_id, is_friend) VALUES (?, ?, ?)", uint64(somePerson(rnd)), uint64(somePerson(rnd)), rnd.IntN(2))
	}
	for range 3 * people {
		s.exec(t, "INSERT INTO photos (owner_id, visibility, date_upload) VALUES (?, ?, ?)", uint64(somePerson(rnd)), string(someVisibility(rnd)),
			start-1-rnd.IntN(1000)) // adopt uploads at start, later than all photos here
	}
}

// adopt follows docs/setup.md. In the meantime somebody uploads.
func (s *silentSite) adopt(t *testing.T) {
	t.Helper()
	catchUp := blockWith(t, "WHERE COALESCE(users.last_upload, 0) < seen.newest")
	must(t, s.onOneConnection(t.Context(), catchUp))
	s.exec(t, "INSERT INTO photos (owner_id, visibility, date_upload) VALUES (1, 'public', ?)", start)
	must(t, schema.StandardTriggers().Install(t.Context(), s.db))
	must(t, s.onOneConnection(t.Context(), catchUp))
	if n := s.count(t).Waiting; n != 1 {
		t.Errorf("%d tasks wait, want that of the upload in the meantime alone", n)
	}
}

// live makes transactions, and rolls some back.
func (s *silentSite) live(ctx context.Context, rnd *rand.Rand) error {
	const transactions, lowerings = 150, 20
	for i := 0; (i < transactions || s.lowered.Load() < lowerings) && ctx.Err() == nil; i++ {
		s.now.Add(uint64(rnd.IntN(2)))
		var statements []statement
		for range 1 + rnd.IntN(3) {
			statements = append(statements, s.change(rnd))
		}
		level := []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted}[rnd.IntN(2)]
		s.pause.RLock()
		err := s.transact(ctx, level, statements, rnd.IntN(8) > 0)
		s.pause.RUnlock()
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// lowerAll lowers last_upload again and again. A lowering that was the victim of three deadlocks has the site wait.
func (s *silentSite) lowerAll(ctx context.Context, over func() bool) error {
	for deadlocks := 0; !over(); {
		alone := deadlocks == 3
		if alone {
			s.pause.Lock()
		}
		err := s.onOneConnection(ctx, s.lower)
		if alone {
			s.pause.Unlock()
		}
		switch deadlocks++; {
		case err == nil:
			deadlocks = 0
			s.lowered.Add(1)
		case alone || !mysql.IsRetryable(err):
			return err
		}
	}
	return nil
}

// behind counts the members whose last upload is before a photo that is not private.
func (s *silentSite) behind(ctx context.Context) (n int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM users u
		WHERE COALESCE(last_upload, 0) < (SELECT MAX(date_upload) FROM photos WHERE owner_id = u.id AND visibility <> 'private')`).Scan(&n)
	return n, err
}

// change writes the site's tables in a random way. IGNORE passes over duplicate keys and missing members.
func (s *silentSite) change(rnd *rand.Rand) statement {
	a, b, c := uint64(somePerson(rnd)), uint64(somePerson(rnd)), uint64(somePerson(rnd))
	leaver := uint64(people - rnd.IntN(6))
	now := start + s.now.Load()
	past, seen := now-uint64(rnd.IntN(200)), string(someVisibility(rnd))
	all := []statement{
		sqlText("INSERT IGNORE INTO photos (owner_id, visibility, date_upload) VALUES (?, ?, ?)", a, seen, now),
		sqlText("INSERT IGNORE INTO photos (owner_id, visibility, date_upload) VALUES (?, ?, ?)", a, seen, past),
		sqlText("INSERT IGNORE INTO photos (owner_id, visibility, date_upload) VALUES (?, ?, ?), (?, 'public', ?), (?, 'private', ?)", a, seen, now, b, past, a, now),
		sqlText("INSERT IGNORE INTO photos (owner_id, visibility, date_upload) SELECT ?, visibility, ? FROM photos WHERE owner_id = ? ORDER BY id DESC LIMIT 2", a, now, b),
		sqlText("UPDATE photos SET date_upload = ? WHERE owner_id = ? ORDER BY id DESC LIMIT 1", now, a),
		sqlText("UPDATE IGNORE photos SET owner_id = ? WHERE owner_id = ? ORDER BY id DESC LIMIT 1", a, b),
		sqlText("UPDATE photos SET visibility = ? WHERE owner_id = ?", seen, a),
		sqlText("UPDATE photos SET visibility = IF(visibility = 'private', 'public', 'private') WHERE owner_id = ? ORDER BY id DESC LIMIT 2", a),
		sqlText("UPDATE photos SET visibility = ?, date_upload = ? WHERE owner_id = ? ORDER BY id DESC LIMIT 1", seen, now, a),
		sqlText("DELETE FROM photos WHERE owner_id = ? ORDER BY id DESC LIMIT 1", a),
		sqlText("INSERT IGNORE INTO contacts (user_id, contact_id) VALUES (?, ?), (?, ?), (?, ?)", a, b, b, a, a, c),
		sqlText("INSERT IGNORE INTO contacts (user_id, contact_id) SELECT ?, contact_id FROM contacts WHERE user_id = ?", a, b),
		sqlText("INSERT INTO contacts (user_id, contact_id) SELECT x.id, y.id FROM users x, users y WHERE x.id = ? AND y.id = ? ON DUPLICATE KEY UPDATE is_family = NOT is_family", a, b),
		sqlText("REPLACE INTO contacts (user_id, contact_id, is_friend) SELECT x.id, y.id, 1 FROM users x, users y WHERE x.id = ? AND y.id = ?", a, b),
		sqlText("UPDATE IGNORE contacts SET contact_id = ? WHERE user_id = ? AND contact_id = ?", c, a, b),
		sqlText("UPDATE IGNORE contacts SET user_id = ? WHERE user_id = ? ORDER BY contact_id LIMIT 1", a, b),
		sqlText("DELETE FROM contacts WHERE user_id = ? AND contact_id IN (?, ?)", a, b, c),
		sqlText("DELETE FROM contacts WHERE contact_id = ? ORDER BY user_id LIMIT 2", a),
		sqlText("UPDATE users SET username = ? WHERE id = ?", fmt.Sprint("renamed ", past), a),
		sqlText("DELETE FROM users WHERE id = ?", leaver),
		sqlText("REPLACE INTO users (id, username, last_upload) VALUES (?, 'again', (SELECT MAX(date_upload) FROM photos WHERE owner_id = ?))", leaver, leaver),
		// As docs/setup.md has it for members who come back.
		sqlText("INSERT IGNORE INTO users (id, username, last_upload) VALUES (?, 'back', (SELECT MAX(date_upload) FROM photos WHERE owner_id = ?))", leaver, leaver),
		sqlText("INSERT INTO users (id, username, last_upload) VALUES (?, 'back', (SELECT MAX(date_upload) FROM photos WHERE owner_id = ?)) ON DUPLICATE KEY UPDATE username = 'there'", leaver, leaver),
	}
	return all[rnd.IntN(len(all))]
}

// check is all that has to hold.
func (s *silentSite) check(t *testing.T, reader *recent.Reader) {
	t.Helper()
	if n := s.checkSets(t); n < people/2 {
		t.Errorf("there are %d sets", n)
	}
	s.checkGuards(t)
	for user := range s.sets(t) {
		if s.number(t, "SELECT COUNT(*) FROM users WHERE id = ?", user) == 0 {
			t.Errorf("%s is no member, and has a set", user)
		}
	}
	var viewers []member.ID
	for id := range member.ID(people) {
		viewers = append(viewers, id+1)
	}
	if from := s.checkAnswers(t, reader, viewers); from[recent.FromIndex] < people/3 {
		t.Errorf("answers from %v", from)
	}
}
