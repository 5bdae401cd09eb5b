package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// Search finds the newest tasks of each state, by each field of a filter.
func TestSearch(t *testing.T) {
	t.Parallel()
	_, q := openDB(t)
	ids := enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2), tasks.NewUpload(3), tasks.NewUpload(4))
	held := claim(t, q, 3)
	finish(t, q, queue.Permanent(errors.New("gone for good")), held[0])
	finish(t, q, queue.Later(time.Hour, errors.New("away")), held[1])
	for name, c := range map[string]struct {
		match queue.Filter
		want  []uint64
	}{
		"all":      {queue.Filter{}, []uint64{ids[3], ids[2], ids[1], ids[0]}},
		"state":    {queue.Filter{States: []queue.State{queue.Dead, queue.Waiting}}, []uint64{ids[3], ids[0]}},
		"queue":    {queue.Filter{Queues: []string{queue.DefaultQueue}, States: []queue.State{queue.Waiting}}, []uint64{ids[3]}},
		"kind":     {queue.Filter{Kinds: []string{tasks.Refill}}, nil},
		"error":    {queue.Filter{Error: "for good"}, []uint64{ids[0]}},
		"failed":   {queue.Filter{Error: "%"}, []uint64{ids[1], ids[0]}},
		"key":      {queue.Filter{Key: 2}, []uint64{ids[1]}},
		"two keys": {queue.Filter{Key: 2, IDs: []uint64{ids[0]}}, nil},
	} {
		list, partial, err := q.Search(t.Context(), c.match, 10)
		if err != nil || partial || len(list) != len(c.want) {
			t.Errorf("%s: %+v, %v, %v, want %v", name, list, partial, err, c.want)
			continue
		}
		for i, r := range list {
			if r.ID != c.want[i] {
				t.Errorf("%s: %d is %d, want %d", name, i, r.ID, c.want[i])
			}
		}
	}
}

// Tasks that wait in a queue are found behind any number of tasks in another queue.
func TestAFullQueueHidesNoOther(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	ids := enqueue(t, q, queue.New{Kind: "mail", Queue: "few"})
	exec(t, db, "INSERT INTO tasks (type, queue) WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 100)"+
		" SELECT 'mail', 'many' FROM n a JOIN n b")
	for name, want := range map[string]int{"few": 1, "many": 20} {
		list, partial, err := q.Search(t.Context(), queue.Filter{Queues: []string{name}, States: []queue.State{queue.Waiting}}, 20)
		if err != nil || len(list) != want || partial != (name == "many") || name == "few" && list[0].ID != ids[0] {
			t.Errorf("%s: %d tasks, partial %v, %v", name, len(list), partial, err)
		}
	}
}
