package queue_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// Rows may name any number of queues: a few are counted beside those of the kinds, and those that are paused.
func TestOfManyQueuesSomeAreCounted(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	exec(t, db, "INSERT INTO tasks (type, queue) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 40)"+
		" SELECT 'strange', CONCAT('a', i) FROM n UNION ALL SELECT 'strange', 'paused'")
	if _, err := q.Pause(t.Context(), "paused"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, tasks.NewUpload(1), tasks.NewRefill(1))
	s, err := q.Stats(t.Context())
	if err != nil || !s.More || len(s.Queues) != 35 || len(s.Tasks) != 35 {
		t.Errorf("%+v, %v, want 35 queues and more", s, err)
	}
	if due, err := q.Due(t.Context()); err != nil || len(due) != 34 {
		t.Errorf("due %v, %v, want 34 queues", due, err)
	}
}

// How long the oldest task is due counts from when it was enqueued, in whichever
// state it is by now; a delay that its producer wanted does not count.
func TestHowLongTasksAreDue(t *testing.T) {
	t.Parallel()
	delayed := tasks.NewUpload(1)
	delayed.Delay = time.Hour
	postponed := func(t *testing.T, q queuetest.Queue) {
		finish(t, q, queue.Later(2*time.Second, errors.New("away")), claim(t, q, 1)...)
	}
	const aged, young = 10 * time.Minute, 0
	for name, c := range map[string]struct {
		task  queue.New
		then  func(t *testing.T, q queuetest.Queue)
		after string // a change of the table, after all past is ten minutes older
		want  time.Duration
	}{
		"waits":           {task: tasks.NewUpload(1), want: aged},
		"delayed":         {task: delayed, want: young},
		"delayed and due": {task: delayed, then: func(t *testing.T, q queuetest.Queue) { claim(t, q, 1) }, after: "tasks SET run_at = run_at - 3900000", want: 5 * time.Minute},
		"postponed":       {task: tasks.NewUpload(1), then: postponed, want: aged},
		"failed":          {task: tasks.NewUpload(1), then: func(t *testing.T, q queuetest.Queue) { finish(t, q, errors.New("x"), claim(t, q, 1)...) }, want: aged},
		"runs":            {task: tasks.NewUpload(1), then: func(t *testing.T, q queuetest.Queue) { claim(t, q, 1) }, after: "tasks SET started_at = started_at + 600000", want: young},
		"runs again": {task: tasks.NewUpload(1), then: func(t *testing.T, q queuetest.Queue) {
			finish(t, q, queue.Later(0, errors.New("away")), claim(t, q, 1)...)
			claim(t, q, 1)
		}, want: aged},
		"behind many that are delayed": {task: tasks.NewUpload(1), then: func(t *testing.T, q queuetest.Queue) {
			postponed(t, q)
			list := make([]queue.New, 1100)
			for i := range list {
				list[i] = tasks.NewUpload(member.ID(i + 2))
				list[i].Delay = time.Hour
			}
			enqueue(t, q, list...)
		}, after: "tasks SET id = id + 5000 WHERE last_error IS NOT NULL", want: aged},
		"dead": {task: tasks.NewUpload(1), then: func(t *testing.T, q queuetest.Queue) {
			finish(t, q, queue.Permanent(errors.New("x")), claim(t, q, 1)...)
		}, want: young},
		"from the future":   {task: tasks.NewUpload(1), then: postponed, after: "tasks SET created_at = created_at + 3600000", want: young},
		"from a far future": {task: tasks.NewUpload(1), then: postponed, after: "tasks SET created_at = 18446744073709551615", want: young},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := openDB(t)
			enqueue(t, q, c.task)
			if c.then != nil {
				c.then(t, q)
			}
			exec(t, db, "UPDATE tasks SET created_at = created_at - 600000")
			exec(t, db, "UPDATE tasks SET started_at = started_at - 600000 WHERE started_at > 0")
			if c.after != "" {
				exec(t, db, "UPDATE "+c.after)
			}
			s, err := q.Stats(t.Context())
			if err != nil || len(s.Queues) != 1 {
				t.Fatalf("%+v, %v", s, err)
			}
			if due := s.Queues[0].Due; math.Abs((due - c.want).Minutes()) > 1 {
				t.Errorf("due for %v, want %v", due, c.want)
			}
			due, err := q.Due(t.Context())
			if err != nil || math.Abs((due[queue.DefaultQueue]-c.want).Minutes()) > 1 {
				t.Errorf("by queue %v, %v, want %v in the default one", due, err, c.want)
			}
			due, err = q.Due(t.Context(), tasks.Upload, tasks.AddContact)
			if err != nil || len(due) != 1 || math.Abs((due[queue.DefaultQueue]-c.want).Minutes()) > 1 {
				t.Errorf("of its kind %v, %v, want %v", due, err, c.want)
			}
			if due, err = q.Due(t.Context(), tasks.FanOut); err != nil || len(due) != 1 || due[tasks.QueueFanOut] != 0 {
				t.Errorf("of another kind %v, %v, want none", due, err)
			}
		})
	}
}
