package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// A search finds what a list does, the newest first.
func TestSearch(t *testing.T) {
	t.Parallel()
	q, db := lookedAt(t)
	enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2), tasks.NewUpload(3), tasks.NewUpload(4))
	held := claim(t, q, 4)
	finish(t, q, queue.Permanent(errors.New("dial 10.0.0.1: refused")), held[0])
	finish(t, q, queue.Later(time.Hour, errors.New("dial 10.0.0.2: refused")), held[1])
	finish(t, q, queue.Permanent(errors.New("timeout")), held[2])
	enqueue(t, q, tasks.NewAddContact(1, 2), tasks.NewUpload(5))
	exec(t, db, "INSERT INTO tasks (type, subject, queue, due_at) VALUES ('own', 9, 'mails', 99999999999999)")
	for want, match := range map[string]queue.Filter{
		"7 6 5 4 3 2 1": {},
		"3 1":           {States: []queue.State{queue.Dead}},
		"2 1":           {Error: "refused"},
		"1":             {Error: "refused", States: []queue.State{queue.Dead}, Kinds: []string{tasks.Upload}},
		"5 1":           {Key: 1},
		"4":             {States: []queue.State{queue.Running}},
		"7":             {Queues: []string{"mails"}},
		"7 2":           {States: []queue.State{queue.Scheduled}},
		"6 5":           {States: []queue.State{queue.Waiting}, Queues: []string{"default"}},
		"3 4":           {IDs: []uint64{3, 4}},
		"":              {Key: 4, States: []queue.State{queue.Dead}},
	} {
		list, partial, err := q.Search(t.Context(), match, 10)
		got := ""
		for _, r := range list {
			got += fmt.Sprint(r.ID, " ")
		}
		if got != want && got != want+" " || partial || err != nil {
			t.Errorf("%+v: found %q, %v, %v; want %q", match, got, partial, err, want)
		}
	}
	if list, _, err := q.Search(t.Context(), queue.Filter{}, 2); err != nil || len(list) != 2 || list[0].ID != 7 {
		t.Errorf("two of them: %+v, %v", list, err)
	}
	fails, partial, err := q.Failures(t.Context())
	if err != nil || partial || len(fails) != 3 || fails[0].ID != 3 || fails[0].Error != "timeout" || fails[2].State != queue.Scheduled {
		t.Errorf("failures %+v, %v, %v", fails, partial, err)
	}
	exec(t, db, parkedRows+" SELECT 1000 + seq.n, 'dead', 'default', 'upload', 8, '{}', 0, 1, 25, NULL, 'old', 1 FROM ("+
		"WITH RECURSIVE seq AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM seq WHERE n < 1000) SELECT a.n + 1000 * b.n AS n FROM seq a, seq b WHERE b.n <= 10) AS seq")
	if list, partial, err := q.Search(t.Context(), queue.Filter{Error: "timeout", States: []queue.State{queue.Dead}}, 10); err != nil || !partial || len(list) != 0 {
		t.Errorf("behind ten thousand: %+v, %v, %v", list, partial, err)
	}
	if fails, partial, err := q.Failures(t.Context()); err != nil || !partial || len(fails) != queue.SearchLimit+1 {
		t.Errorf("%d failures, %v, %v", len(fails), partial, err)
	}
}
