package mapping_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// TestFriendshipsOfOthersDoNotDeadlock: members become friends at once, each pair by a statement of its own, at the
// isolation level that is the servers' default, and locks gaps.
func TestFriendshipsOfOthersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	g := newGround(t, example(t))
	g.adopt(t)
	const writers, each = 8, 40
	var members, deadlocks atomic.Int64
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			conn, err := g.db.Conn(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			if _, err := conn.ExecContext(context.Background(), "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
				t.Error(err)
			}
			for range each {
				n := members.Add(2)
				_, err := conn.ExecContext(context.Background(), g.named(fmt.Sprintf("INSERT INTO site.friendships (asked_by, asked, state) VALUES (%d, %d, 1)", n, n+1)))
				var refused *mysql.MySQLError
				switch {
				case errors.As(err, &refused) && refused.Number == 1213:
					deadlocks.Add(1)
				case err != nil:
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := column(t, g.db, "SELECT COUNT(*) FROM contacts")[0]; deadlocks.Load() == 0 && n != fmt.Sprint(2*writers*each) {
		t.Errorf("%s contacts", n)
	}
	if n := deadlocks.Load(); n > 0 {
		t.Errorf("%d of %d friendships deadlocked", n, writers*each)
	}
}

// TestAConditionThatTellsEqualTextApart: letters of both cases are equal in the column's collation.
func TestAConditionThatTellsEqualTextApart(t *testing.T) {
	t.Parallel()
	s := example(t)
	s.tables = strings.Replace(s.tables, "state     TINYINT NOT NULL DEFAULT 0", "state VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL", 1)
	s.description = strings.ReplaceAll(s.description, "state = 1", "HEX(state) = HEX('on')")
	g := newGround(t, s)
	g.adopt(t)
	run(t, g.db, g.named("INSERT INTO site.friendships (asked_by, asked, state) VALUES (1, 2, 'ON')"), g.named("UPDATE site.friendships SET state = 'on'"))
	if n := column(t, g.db, "SELECT COUNT(*) FROM contacts")[0]; n != "2" {
		t.Errorf("there are %s contacts, want 2", n)
	}
}

// TestTheOtherRowIsInsertedWithIgnore: the statement's IGNORE does not hold for the statements of the trigger, which meet
// a pair that is there.
func TestTheOtherRowIsInsertedWithIgnore(t *testing.T) {
	t.Parallel()
	g := newGround(t, example(t))
	g.adopt(t)
	insert := g.named("INSERT IGNORE INTO site.friendships (state, is_family, asked_by, asked) VALUES ")
	run(t, g.db, insert+"(1, 0, 1, 2)")
	g.tasks(t)
	run(t, g.db, insert+"(1, 1, 2, 1)", insert+"(1, 0, 2, 1)")
	if got := g.tasks(t); len(got) > 0 {
		t.Errorf("the tasks are %q", got)
	}
	if n := column(t, g.db, "SELECT COUNT(*) FROM contacts WHERE is_family")[0]; n != "2" {
		t.Errorf("%s contacts are family, want 2", n)
	}
}
