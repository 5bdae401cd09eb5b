package endtoend_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/site"
)

// TestPrivateUploadsCostNothing: a private upload costs neither a task nor a command to Redis, by the
// triggers or by a site that writes its tasks itself. To show a private photo costs a single task, which
// brings it into the sets.
func TestPrivateUploadsCostNothing(t *testing.T) {
	t.Parallel()
	const uploads = 20
	for name, way := range map[string]struct {
		prepare func(*testing.T, *ground)
		upload  func(*testing.T, *ground, uint64)
		show    func(*testing.T, *ground, uint64)
	}{
		"the site's own tasks": {
			func(*testing.T, *ground) {},
			func(t *testing.T, g *ground, photo uint64) {
				_, err := g.site.Upload(t.Context(), site.Photo{ID: photo, Owner: star, Visibility: contacts.Private, DateUpload: start + photo})
				must(t, err)
			},
			func(t *testing.T, g *ground, photo uint64) {
				must(t, g.site.SetVisibility(t.Context(), photo, contacts.Public))
			},
		},
		"triggers": {
			func(t *testing.T, g *ground) {
				err := schema.StandardTriggers().Install(t.Context(), g.db)
				must(t, err)
			},
			func(t *testing.T, g *ground, photo uint64) {
				g.exec(t, "INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (?, ?, 'private', ?)", photo, star, start+photo)
			},
			func(t *testing.T, g *ground, photo uint64) {
				g.exec(t, "UPDATE photos SET visibility = 'public' WHERE id = ?", photo)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, 4)
			hiding{visibility: contacts.Public}.setUp(t, g)
			way.prepare(t, g)
			p := g.started(t, "worker")
			g.exec(t, "INSERT INTO tasks (type, subject) VALUES ('upload', ?)", star) // the process executes its first commands before the count
			g.awaitIdle(t)
			before, commands := g.lastTask(t), g.commands(t)
			for photo := range uint64(uploads) {
				way.upload(t, g, 1000+photo)
			}
			if n := g.count(t).Open(); n != 0 {
				t.Errorf("%d tasks wait after private uploads", n)
			}
			if after := g.commands(t); after != commands {
				t.Errorf("private uploads cost %d commands to Redis", after-commands)
			}
			if tasks := g.lastTask(t) - before - 1; tasks != 0 {
				t.Errorf("private uploads cost %d tasks", tasks)
			}
			g.awaitIdle(t)
			before, commands = g.lastTask(t), g.commands(t)
			way.show(t, g, 1000+uploads-1)
			g.awaitIdle(t)
			if tasks := g.lastTask(t) - before - 1; tasks != 1 || g.commands(t) == commands {
				t.Errorf("a photo that is shown costs %d tasks and %d commands, want one task, and its commands", tasks, g.commands(t)-commands)
			}
			set := g.sets(t)[viewer.String()]
			if top := set[len(set)-1]; top.Member != star.String() || top.Score != start+1000+uploads-1 {
				t.Errorf("the set of the viewer is %v, want the photo that is shown on top", set)
			}
			checkRight := func() {
				t.Helper()
				if n := g.checkSets(t); n == 0 {
					t.Error("there is no set")
				}
				g.checkAnswers(t, p.reader, []member.ID{viewer})
			}
			checkRight()
		})
	}
}

var callsOf = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// commands returns how many commands Redis executed, without the commands of observers.
func (g *ground) commands(t *testing.T) (n int) {
	t.Helper()
	stats, err := g.client.Info(t.Context(), "commandstats").Result()
	must(t, err)
	for _, found := range callsOf.FindAllStringSubmatch(stats, -1) {
		switch found[1] {
		case "info", "hello", "client|setinfo", "ping":
			continue
		}
		calls, err := strconv.Atoi(found[2])
		must(t, err)
		n += calls
	}
	return n
}

// lastTask returns the id of a task that it inserts, and takes away again.
func (g *ground) lastTask(t *testing.T) int64 {
	t.Helper()
	inserted, err := g.db.ExecContext(t.Context(), "INSERT INTO tasks (queue, type, subject) VALUES ('nobody', 'upload', 1)")
	must(t, err)
	id, err := inserted.LastInsertId()
	must(t, err)
	g.exec(t, "DELETE FROM tasks WHERE id = ?", id)
	return id
}

// TestLoweringLosesNoUpload: while members upload, show, hide, redate and give away photos, in
// transactions of both usual levels, last_upload is lowered again and again by the SQL of
// docs/setup.md. At no instant is it before a photo that is not private. A lowering that was
// the victim of three deadlocks in a row has the writers wait, so that the test ends.
func TestLoweringLosesNoUpload(t *testing.T) {
	t.Parallel()
	const owners, changes, least = 4, 250, 20
	g := newGround(t, 3)
	err := schema.StandardTriggers().Install(t.Context(), g.db)
	must(t, err)
	for id := range owners {
		g.exec(t, "INSERT INTO users (id) VALUES (?)", id+1)
	}
	lower := blockWith(t, "users.last_upload > COALESCE(seen.newest, 0)")
	seed := seedFor(t)
	var writing atomic.Int64
	var pause sync.RWMutex // held by a writer in a transaction
	var lowered, looked atomic.Int64
	group, ctx := errgroup.WithContext(t.Context())
	for n := range uint64(3) {
		writing.Add(1)
		rnd := rand.New(rand.NewPCG(seed, n))
		group.Go(func() error {
			defer writing.Add(-1)
			for i := 0; i < changes || lowered.Load() < least && ctx.Err() == nil; i++ {
				level := sql.LevelRepeatableRead
				if rnd.IntN(2) == 0 {
					level = sql.LevelReadCommitted
				}
				var list []string
				for range 1 + rnd.IntN(2) {
					list = append(list, somePhotoChange(rnd, owners))
				}
				pause.RLock()
				err := g.repeat(ctx, level, list)
				pause.RUnlock()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		for deadlocks := 0; writing.Load() > 0; {
			alone := deadlocks == 3
			if alone {
				pause.Lock()
			}
			err := g.onOneConnection(ctx, lower)
			if alone {
				pause.Unlock()
			}
			switch {
			case err == nil:
				deadlocks = 0
				lowered.Add(1)
			case !mysql.IsRetryable(err) || alone:
				return err
			default:
				deadlocks++
			}
		}
		return nil
	})
	group.Go(func() error {
		for writing.Load() > 0 {
			var behind int
			err := g.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM users u WHERE COALESCE(last_upload, 0) <
				(SELECT MAX(date_upload) FROM photos WHERE owner_id = u.id AND visibility <> 'private')`).Scan(&behind)
			if err != nil {
				return err
			}
			if behind > 0 {
				return fmt.Errorf("seed %d: the last upload of %d members is before a photo that others may see", seed, behind)
			}
			looked.Add(1)
		}
		return nil
	})
	must(t, group.Wait())
	t.Logf("lowered %d times, looked %d times", lowered.Load(), looked.Load())
	g.execOn(t, lower)
	var differ int
	must(t, g.db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM users u WHERE COALESCE(last_upload, 0) <>
		COALESCE((SELECT MAX(date_upload) FROM photos WHERE owner_id = u.id AND visibility <> 'private'), 0)`).Scan(&differ))
	if differ > 0 {
		t.Errorf("the last upload of %d members is not the date of a photo", differ)
	}
}

// somePhotoChange is a statement on the photos of some owner. The owner has few dates, so that statements
// lower and raise the same date.
func somePhotoChange(rnd *rand.Rand, owners int) string {
	owner, other, date := 1+rnd.IntN(owners), 1+rnd.IntN(owners), 1+rnd.IntN(1000)
	visibility := []string{"private", "private", "public", "friends"}[rnd.IntN(4)]
	switch rnd.IntN(8) {
	case 0, 1:
		return fmt.Sprintf("INSERT INTO photos (owner_id, visibility, date_upload) VALUES (%d, '%s', %d)", owner, visibility, date)
	case 2:
		return fmt.Sprintf("INSERT INTO photos (owner_id, visibility, date_upload) VALUES (%d, 'private', %d), (%d, 'public', %d)", owner, date, other, date)
	case 3:
		return fmt.Sprintf("UPDATE photos SET date_upload = %d WHERE owner_id = %d ORDER BY id DESC LIMIT 1", date, owner)
	case 4:
		return fmt.Sprintf("UPDATE photos SET owner_id = %d WHERE owner_id = %d ORDER BY id DESC LIMIT 1", other, owner)
	case 5:
		return fmt.Sprintf("DELETE FROM photos WHERE owner_id = %d ORDER BY date_upload DESC LIMIT 2", owner)
	default:
		return fmt.Sprintf("UPDATE photos SET visibility = '%s' WHERE owner_id = %d ORDER BY date_upload DESC LIMIT %d", visibility, owner, 1+rnd.IntN(2))
	}
}

func (g *ground) repeat(ctx context.Context, level sql.IsolationLevel, list []string) error {
	for {
		err := func() error {
			tx, err := g.db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			for _, statement := range list {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("%s: %w", statement, err)
				}
			}
			return tx.Commit()
		}()
		if !mysql.IsRetryable(err) {
			return err
		}
	}
}

// onOneConnection runs statements as a person with a client does, up to an error. A
// transaction that it left open is rolled back.
func (g *ground) onOneConnection(ctx context.Context, list []string) error {
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }() // the statements may change the session
	for _, statement := range list {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			return err
		}
	}
	return nil
}
