package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// resize is the payload of a kind of its own.
type resize struct {
	Photo string `json:"photo"`
	Width int    `json:"width"`
}

// ownKinds are the kinds of a program that is not activityd.
func ownKinds() queue.Kinds {
	return queue.Kinds{{Name: "resize", Ordered: true}, {Name: "mail", Queue: "mails"}}
}

// openOwn returns a queue of ownKinds in a database that [queue.Migrate] makes.
func openOwn(t *testing.T, o queue.Options) (*sql.DB, *queue.Queue) {
	t.Helper()
	db := emptyDB(t)
	if err := queue.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	o.Kinds = ownKinds()
	return db, queue.NewQueue(db, o)
}

// emptyDB returns a database without tables.
func emptyDB(t *testing.T) *sql.DB {
	t.Helper()
	db := open(t, servertest.MySQLDSN(t))
	for _, name := range tablesIn(t, db) {
		exec(t, db, "DROP TABLE "+name)
	}
	return db
}

func tablesIn(t *testing.T, db *sql.DB) []string {
	t.Helper()
	names, err := mysql.Select(t.Context(), db, mysql.Column[string], "SHOW TABLES")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// Eight processes that migrate at once, and then again, leave the tables of the queue alone.
func TestMigrateTwiceAndAtOnce(t *testing.T) {
	t.Parallel()
	db := emptyDB(t)
	for range 2 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := queue.Migrate(t.Context(), db); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if names, want := tablesIn(t, db), []string{"held_keys", "idempotency_keys", "paused_queues", "tasks"}; !slices.Equal(names, want) {
		t.Errorf("tables %v, want %v", names, want)
	}
}

// A task that the caller commits is done, and again after a failure; a task that it rolls back never was.
func TestTasksOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	db, q := openOwn(t, queue.Options{Registerer: registry})
	kept, dropped := begin(t, db), begin(t, db)
	album := queue.KeyOf("album/7")
	ids, err := q.EnqueueTx(t.Context(), kept, queue.New{Kind: "resize", Key: album, Args: resize{"a.jpg", 640}})
	if err != nil || len(ids) != 1 || ids[0] == 0 {
		t.Fatalf("ids %v, %v", ids, err)
	}
	if _, err := q.EnqueueTx(t.Context(), dropped, queue.New{Kind: "resize", Args: resize{"b.jpg", 640}}); err != nil {
		t.Fatal(err)
	}
	ran := make(chan queue.Task, 10)
	args := make(chan resize, 10)
	running := queue.NewPool(q, map[string]queue.Handler{"resize": queue.Handle(func(_ context.Context, task queue.Task, r resize) error {
		ran <- task
		args <- r
		if task.Attempts == 1 {
			return errors.New("the disk is full")
		}
		return nil
	})}, queue.PoolOptions{Workers: []queue.Workers{{Queue: queue.DefaultQueue, Count: 2}}, Poll: time.Hour, Log: quiet()})
	stop := run(t, running)
	if err := dropped.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := kept.Commit(); err != nil {
		t.Fatal(err)
	}
	q.Notify(queue.DefaultQueue)
	for attempt := 1; attempt <= 2; attempt++ {
		task, r := <-ran, <-args
		if task.ID != ids[0] || task.Attempts != attempt || task.Key != album || r != (resize{"a.jpg", 640}) {
			t.Errorf("attempt %d: task %+v with %+v", attempt, task, r)
		}
	}
	eventually(t, "no task is left", func() bool {
		list, err := q.List(t.Context(), queue.Filter{}, 10)
		return err == nil && len(list) == 0
	})
	stop()
	if len(ran) > 0 {
		t.Errorf("a task of a transaction that was rolled back ran: %+v", <-ran)
	}
	if done, retried := counter(t, registry, "activityd_tasks_finished_total", "resize", "done"), counter(t, registry, "activityd_tasks_finished_total", "resize", "retried"); done != 1 || retried != 1 {
		t.Errorf("counted %v done and %v retried, want one each", done, retried)
	}
}

// counter returns the value of a counter of a registry whose labels have the values; -1: there is none.
func counter(t *testing.T, registry prometheus.Gatherer, name string, values ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var all []string
			for _, l := range m.GetLabel() {
				all = append(all, l.GetValue())
			}
			if f.GetName() == name && !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(all, v) }) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// A wrong task is refused before anything is sent: the transaction goes on.
func TestWrongTasksOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	db, q := openOwn(t, queue.Options{})
	tx := begin(t, db)
	for name, wrong := range map[string]struct {
		task queue.New
		want string
	}{
		"an unknown kind":         {queue.New{Kind: "resise"}, "no such kind"},
		"no kind":                 {queue.New{}, "no such kind"},
		"args that are no JSON":   {queue.New{Kind: "mail", Args: make(chan int)}, "unsupported type: chan int"},
		"args that are too large": {queue.New{Kind: "mail", Args: strings.Repeat("x", queue.MaxPayload)}, "at most 32768 bytes"},
		"args and a payload":      {queue.New{Kind: "mail", Args: 1, Payload: []byte("1")}, "a payload and args"},
		"a payload that is none":  {queue.New{Kind: "mail", Payload: []byte("{")}, "not JSON"},
		"a dedupe key in French":  {queue.New{Kind: "mail", DedupeKey: "mail:é"}, "printable ASCII"},
		"a long dedupe key":       {queue.New{Kind: "mail", DedupeKey: strings.Repeat("k", 129)}, "at most 128 bytes"},
		"a priority out of range": {queue.New{Kind: "mail", Priority: 1 << 15}, "priority 32768"},
		"a life below 0":          {queue.New{Kind: "mail", Life: -time.Second}, "none below 0"},
		"a delay below 0":         {queue.New{Kind: "mail", Delay: -time.Second}, "none below 0"},
		"a blank at its end":      {queue.New{Kind: "mail", DedupeKey: "mail "}, "no blank at the end"},
		"a long queue":            {queue.New{Kind: "mail", Queue: strings.Repeat("q", 33)}, "at most 32 bytes"},
	} {
		ids, err := q.EnqueueTx(t.Context(), tx, queue.New{Kind: "mail"}, wrong.task)
		if ids != nil || !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %v, %v", name, ids, err)
		}
	}
	largest := queue.New{Kind: "mail", Args: strings.Repeat("x", queue.MaxPayload-2)}
	if _, err := q.EnqueueTx(t.Context(), tx, largest); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	list, err := q.List(t.Context(), queue.Filter{}, 10)
	if err != nil || len(list) != 1 || list[0].Queue != "mails" || len(list[0].Payload) != queue.MaxPayload {
		t.Errorf("%d tasks, %v, want the largest", len(list), err)
	}
}

// Tasks with the same dedupe key have the same id until it starts. The ids of several without a key are not read.
func TestIDsInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	db, q := openOwn(t, queue.Options{})
	keyed := queue.New{Kind: "mail", DedupeKey: "mail:7", Args: 1}
	first := begin(t, db)
	before, err := q.EnqueueTx(t.Context(), first, keyed)
	if err == nil {
		err = first.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	second := begin(t, db)
	again := keyed
	again.Args = 2 // the key says that it is the same work
	ids, err := q.EnqueueTx(t.Context(), second, again, queue.New{Kind: "mail"}, queue.New{Kind: "resize"})
	if err != nil || !slices.Equal(ids, []uint64{before[0], 0, 0}) {
		t.Errorf("ids %v, %v, want %v and twice 0", ids, err, before)
	}
	third, err := q.EnqueueTx(t.Context(), second, again, queue.New{Kind: "mail"})
	if err != nil || third[0] != before[0] || third[1] <= before[0] {
		t.Errorf("ids %v, %v", third, err)
	}
	// A key that another kind has is taken from its task: each kind begins its keys with its name.
	other, err := q.EnqueueTx(t.Context(), second, queue.New{Kind: "resize", Queue: "mails", DedupeKey: "mail:7"})
	if err != nil || other[0] == before[0] {
		t.Errorf("a task of another kind was absorbed: %v, %v", other, err)
	}
}

// A plain INSERT makes a task of any kind, and SQL knows the key of a name.
func TestAPlainInsert(t *testing.T) {
	t.Parallel()
	db, q := openOwn(t, queue.Options{})
	exec(t, db, `INSERT INTO tasks (type, subject, args) VALUES ('resize', CONV(LEFT(SHA2('album/7', 256), 16), 16, 10), '{"photo": "a.jpg"}')`)
	list := claim(t, q, 10)
	if len(list) != 1 || list[0].Kind != "resize" || list[0].Key != queue.KeyOf("album/7") {
		t.Errorf("claimed %+v", list)
	}
}

// A panic, and a payload of another form, are the outcomes of their tasks alone, though a claim has several.
func TestHandleIsOfOneTask(t *testing.T) {
	t.Parallel()
	runs := make(map[uint64]int)
	h := queue.Handle(func(_ context.Context, task queue.Task, r resize) error {
		runs[task.Key]++
		if r.Width < 0 {
			panic("a negative width")
		}
		return nil
	})
	batch := []queue.Task{
		{Key: 1, Payload: []byte(`{"width": 1}`)},
		{Key: 2, Payload: []byte(`{"width": -1}`)},
		{Key: 3, Payload: []byte(`{"width": "wide"}`)},
		{Key: 4, Payload: []byte(`{"height": 4}`)},
	}
	all := h.Handle(t.Context(), batch)
	if all[0].Err != nil || all[3].Err != nil || all[1].Err == nil || !strings.HasPrefix(all[1].Err.Error(), "panic: a negative width\n") || !errors.Is(all[2].Err, queue.ErrInvalid) {
		t.Errorf("outcomes %v", all)
	}
	if v := queue.Judge(queue.Result{Task: queue.Task{Attempts: 1, MaxAttempts: 25}, Err: all[2].Err}); v.State != queue.Dead {
		t.Errorf("a payload of another form is %s, want dead", v.State)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the process stops"))
	if v := queue.Judge(queue.Result{Err: h.Handle(ctx, batch)[0].Err}); !v.Uncounted || v.State != queue.Waiting || runs[1] != 1 {
		t.Errorf("after the end of its context: %+v, %d runs", v, runs[1])
	}
}

// Two queues with the same registerer count together. Without a registerer nothing is registered.
func TestARegistererUsedTwice(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	db, one := openOwn(t, queue.Options{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shop": "a"}, registry)})
	two := queue.NewQueue(db, queue.Options{Kinds: ownKinds(), Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shop": "a"}, registry)})
	silent := queue.NewQueue(db, queue.Options{Kinds: ownKinds()})
	for _, q := range []*queue.Queue{one, two, silent} {
		if _, err := q.Enqueue(t.Context(), []queue.New{{Kind: "mail"}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := counter(t, registry, "activityd_tasks_enqueued_total", "a", "mail"); n != 2 {
		t.Errorf("counted %v, want 2", n)
	}
}

// The transaction may come from a pool that is not of OpenDB: a session of another time zone and sql_mode, without the driver's
// parameters, and in any isolation level.
func TestATransactionOfAForeignPool(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	db := open(t, dsn)
	q := queue.NewQueue(db, queue.Options{Kinds: ownKinds()})
	foreign, err := sql.Open("mysql", dsn+"&parseTime=true&time_zone=%27%2B05%3A30%27&sql_mode=%27%27")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = foreign.Close() })
	var first uint64
	for i, level := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx, err := foreign.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		ids, err := q.EnqueueTx(t.Context(), tx, queue.New{Kind: "mail", DedupeKey: "mail:7", Delay: time.Hour, Life: 2 * time.Hour})
		if err == nil {
			err = tx.Commit()
		}
		if first = max(first, ids[0]); err != nil || i > 0 && ids[0] != first {
			t.Errorf("%v: ids %v, %v, want %d", level, ids, err, first)
		}
	}
	list, err := q.List(t.Context(), queue.Filter{}, 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d tasks, %v", len(list), err)
	}
	if in, until := time.Until(list[0].RunAt), time.Until(list[0].ExpiresAt); in < 50*time.Minute || in > time.Hour+time.Minute || until < 110*time.Minute || until > 121*time.Minute {
		t.Errorf("it runs in %v and expires in %v", in, until)
	}
}
