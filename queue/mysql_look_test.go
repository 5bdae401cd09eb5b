package queue_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func lookedAt(t *testing.T) (*queue.Queue, *sql.DB) {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"}), db
}

// look looks, after a backlog has waited since long before the look before.
func look(t *testing.T, q *queue.Queue, before *queue.Look) queue.Look {
	t.Helper()
	l, err := q.Look(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	if first := before == nil; first != (l.Since == 0) {
		t.Errorf("%v since the look before", l.Since)
	}
	return l
}

func TestALookSaysWhatCameAndWent(t *testing.T) {
	t.Parallel()
	q, db := lookedAt(t)
	for i := range member.ID(10) {
		enqueue(t, q, tasks.NewUpload(1+i))
	}
	exec(t, db, "UPDATE tasks SET created_at = created_at - 60000")
	first := look(t, q, nil)
	if first.Flows != nil || len(first.About) != 0 {
		t.Errorf("at first: %+v, %v", first.Flows, first.About)
	}
	held := claim(t, q, 4)
	finish(t, q, nil, held[:3]...)
	enqueue(t, q, tasks.NewAddContact(1, 2), tasks.NewAddContact(1, 3))
	exec(t, db, "INSERT INTO tasks (type, subject, queue) VALUES ('own', 1, 'OWN'), ('own', 2, 'own')")
	exec(t, db, "INSERT INTO tasks (type, subject, due_at) VALUES ('upload', 1, 99999999999999)") // it does not wait
	second := look(t, q, &first)
	want := []queue.Flow{
		{Queue: "default", Kind: tasks.AddContact, Enqueued: 2},
		{Queue: "default", Kind: tasks.Upload, Started: 4},
		{Queue: "own", Kind: "other", Enqueued: 2, AtLeast: true},
	}
	for i := range second.Flows { // whichever of its names the table gives first
		if second.Flows[i].Queue == "OWN" {
			second.Flows[i].Queue = "own"
		}
	}
	slices.SortFunc(second.Flows, func(a, b queue.Flow) int { return strings.Compare(a.Queue+a.Kind, b.Queue+b.Kind) })
	if diff := cmp.Diff(want, second.Flows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Where nothing waited for long, there may be more.
	for range 7 {
		finish(t, q, nil, claim(t, q, 2)...)
	}
	third := look(t, q, &second)
	for _, f := range third.Flows {
		if f.Queue == "default" && (!f.AtLeast || f.Started != map[string]int{tasks.AddContact: 2, tasks.Upload: 6}[f.Kind]) {
			t.Errorf("%+v", f)
		}
	}
	// Those that come back are not new.
	finish(t, q, queue.Permanent(errors.New("boom")), held[3])
	if n, err := q.Retry(t.Context(), queue.Filter{States: []queue.State{queue.Dead}}, 1); err != nil || n != 1 {
		t.Errorf("retried %d, %v", n, err)
	}
	for _, f := range look(t, q, &third).Flows {
		if f.Queue == "default" && (f.Enqueued != 0 || f.Started != 0) {
			t.Errorf("%+v", f)
		}
	}
}

// Of more than are counted, it says about how many they are, and how fast they go all the same.
func TestALookAtALargeBacklog(t *testing.T) {
	t.Parallel()
	q, db := lookedAt(t)
	// Two queues and two priorities share the ids; every tenth is missing.
	exec(t, db, "CREATE TABLE digits (n INT PRIMARY KEY)")
	exec(t, db, "INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)")
	exec(t, db, `INSERT INTO tasks (type, subject, queue, priority, created_at)
		SELECT 'upload', 1, IF(a.n = 0, 'refill', 'default'), IF(a.n = 1, 5, 0), 1 FROM digits a, digits b, digits c, digits d, digits e, (SELECT 0 AS n UNION ALL SELECT 1) f
		WHERE a.n < 9 ORDER BY f.n, e.n, d.n, c.n, b.n, a.n`)
	first := look(t, q, nil)
	if about := first.About["default"]; about < 155_000 || about > 165_000 || len(first.About) != 1 {
		t.Errorf("about %v, want about 160,000 in one queue", first.About)
	}
	finish(t, q, nil, claim(t, q, 700)...)
	exec(t, db, "INSERT INTO tasks (type, subject) SELECT 'upload', 2 FROM digits")
	for _, f := range look(t, q, &first).Flows {
		if f.Queue == "default" && f != (queue.Flow{Queue: "default", Kind: tasks.Upload, Enqueued: 10, Started: 700}) {
			t.Errorf("%+v", f)
		}
	}
}

// A look that is long ago is none.
func TestALookForgets(t *testing.T) {
	t.Parallel()
	q, _ := lookedAt(t)
	first := look(t, q, nil)
	first.Age(time.Hour)
	if again, err := q.Look(t.Context(), &first); err != nil || again.Since != 0 || again.Flows != nil {
		t.Errorf("%+v, %v", again, err)
	}
}
