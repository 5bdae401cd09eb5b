package queue

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/notify"
)

// now is the clock of the queue, in unix milliseconds: the database's own, so that machines whose clocks
// differ agree on when a lease ends.
const now = mysql.Now

// MaxLease is how long a lease lasts at most.
const MaxLease = 24 * time.Hour

// sharedAttempts is how many attempts of a task may be shared with others. From the next attempt on the task runs
// alone, as it may be what makes all of them fail, hang or die. It is two: most tasks whose first attempt was
// lost were in a process that was killed for another reason, often with a thousand others.
const sharedAttempts = 2

// Options say how a queue works.
type Options struct {
	// Kinds are the kinds of task that it knows.
	Kinds Kinds
	// Registerer gets the metrics; nil: there are none. Queues and pools may share one: they
	// count together.
	Registerer prometheus.Registerer
	// Notifier is notified of tasks that were enqueued, by the names of their queues; nil: one of
	// the queue's own, for the pools of this process.
	Notifier *notify.Notifier
	// Owner names this process in the leases, for operators: its first 29 bytes, with ? for what is not printable ASCII.
	Owner string
	// Queues are always among those that Stats counts, besides those of the kinds.
	Queues []string
}

// Queue is a durable queue of tasks in tables of the site's, so that a task commits together with the change
// that it is about. It is safe for concurrent use. Package queuetest has its specification.
type Queue struct {
	db      *sql.DB
	options Options
	metrics *metrics
	memory
}

// memory is what the queue of a process remembers. Nothing is lost with it.
type memory struct {
	mu     sync.Mutex
	fronts map[string]front // by queue; see front
	sweeps sweeps
}

// NewQueue returns a queue over db, which comes from [OpenDB] and which the caller closes. It asks
// the database nothing. It panics if db is nil, or a kind has attempts or a backoff that
// no row can have.
func NewQueue(db *sql.DB, o Options) *Queue {
	if db == nil {
		panic("queue: NewQueue: db is nil")
	}
	for _, k := range o.Kinds {
		if wrong := (New{Payload: noArgs, MaxAttempts: k.MaxAttempts, Backoff: k.Backoff}).wrong(); wrong != "" {
			panic("queue: NewQueue: kind " + k.Name + ": " + wrong)
		}
	}
	if o.Notifier == nil {
		o.Notifier = &notify.Notifier{}
	}
	m := newMetrics(o.Registerer)
	m.begin(o.Kinds)
	return &Queue{db: db, options: o, metrics: m, memory: memory{fronts: make(map[string]front)}}
}

// Notify says that tasks of queues were committed whose enqueuing could not say so: those of
// [Queue.EnqueueTx], or of another program. Pools that share the queue's notifier look at once.
func (q *Queue) Notify(queues ...string) { q.options.Notifier.Notify(queues...) }

// notifyAll notifies of queues.
func (q *Queue) notifyAll(queues map[string]bool) {
	if len(queues) > 0 {
		q.forgetFronts(queues)
		q.options.Notifier.Notify(slices.Sorted(maps.Keys(queues))...)
	}
}

// Active returns those of the keys that have tasks of the kind that wait, or run under a lease. A task that a
// producer put elsewhere does not count, so that it holds up nothing: in another queue than the kind's, where perhaps no
// worker looks, or less urgent than [Normal]; nor does one that failed and is scheduled for later.
func (q *Queue) Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error) {
	home, _ := q.options.Kinds.of(kind)
	return q.keysOf(ctx, "look for tasks under way", []string{kind}, keys,
		"state IN ('waiting', 'behind', 'running') AND run_at <= IF(state = 'running', run_at, "+now+") AND priority <= 0 AND queue = ?", home.Queue)
}

// Pending returns those of the keys that have tasks of the kinds which are not finished and not dead.
func (q *Queue) Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error) {
	return q.keysOf(ctx, "look for pending tasks", kinds, keys, "state <> 'dead'")
}

func (q *Queue) keysOf(ctx context.Context, what string, kinds []string, keys []uint64, condition string, args ...any) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	if len(kinds) == 0 || len(keys) == 0 {
		return found, nil
	}
	_, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (key uint64, err error) {
		err = rows.Scan(&key)
		found[key] = true
		return key, err
	}, "SELECT DISTINCT subject FROM tasks FORCE INDEX (subjects) WHERE subject IN ("+mysql.Marks(len(keys))+") AND type IN ("+mysql.Marks(len(kinds))+") AND "+condition,
		slices.Concat(mysql.Args(keys), mysql.Args(kinds), args)...)
	return found, mysql.Translate(ctx, what, err)
}
