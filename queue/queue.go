package queue

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/notify"
)

// now is the clock of the queue in unix milliseconds, that of the database: machines whose clocks differ agree on the end of a lease.
const now = mysql.Now

// MaxLease bounds leases.
const MaxLease = 24 * time.Hour

// ErrUnavailable is wrapped by the errors of a database that cannot be reached, is shutting down, is read-only or has no connection to
// spare. The same call may succeed later.
var ErrUnavailable = mysql.ErrUnavailable

// OpenDB returns a pool of at most 32 connections to MySQL 8.0.13 or MariaDB 10.6, or later, for a [Queue]. The dsn is in the form of
// go-sql-driver/mysql: user:password@tcp(host:3306)/database. OpenDB does not connect: the first use notices a server that is down.
//
// Each connection has the session that the statements of the queue rely on: the time zone UTC, a strict sql_mode, REPEATABLE READ
// unless a transaction asks for another isolation level, and 5 seconds for row locks. It leads to the primary: after a failover the
// pool gives up connections to the server before. The server closes a connection after 30 seconds without a statement, which ends the
// transactions of a process that was stopped. Your own statements may use the pool, too.
//
// An error says what is wrong with the dsn, and never quotes it.
func OpenDB(dsn string) (*sql.DB, error) { return mysql.Open(dsn) }

// Schema has the statements that make the tables of a queue. They are safe to apply again.
//
//go:embed schema.sql
var Schema string

var createTable = regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS (\w+) \(.*?;\n`)

// Migrate makes the tables of a queue that are missing. It is safe to call at each start, by several processes at once. It needs the
// right to CREATE; without it, have [Schema] applied by a user who has the right, as by `activityd schema --apply --only queue`.
// It fails on tables of another version.
func Migrate(ctx context.Context, db *sql.DB) error {
	for _, statement := range createTable.FindAllStringSubmatch(Schema, -1) {
		if _, err := db.ExecContext(ctx, statement[0]); err != nil {
			return mysql.Translate(ctx, "make table "+statement[1], err)
		}
	}
	var comment string
	err := db.QueryRowContext(ctx, "SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'tasks'").Scan(&comment)
	if err == nil && comment != version {
		err = fmt.Errorf("the table tasks is %q, and not %q: drop it, as no release had it, or give the queue another database", comment, version)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = nil // the user may not see it
	}
	return mysql.Translate(ctx, "look at the version of the tables", err)
}

var version = regexp.MustCompile(`COMMENT='(activityd schema \d+)'`).FindStringSubmatch(Schema)[1]

// Options are the options of a [Queue].
type Options struct {
	// Kinds are the kinds of task that it knows.
	Kinds Kinds
	// Registerer gets the metrics; nil: none are exported. Queues and pools with the same registerer count together.
	Registerer prometheus.Registerer
	// Notifier is notified of tasks that were enqueued, by the names of their queues. Nil: the queue has its own, for its pools in
	// this process.
	Notifier *notify.Notifier
	// Owner names this process in the leases, for operators: its first 29 bytes, with ? for characters that are not printable ASCII.
	Owner string
}

// Queue is a durable queue of tasks in tables of the database of a site, so that a task commits with the change that it is about. It
// is safe for concurrent use.
type Queue struct {
	db      *sql.DB
	options Options
	metrics *metrics

	// Hints for the next claims and sweeps of this process. Nothing is lost with them.
	mu     sync.Mutex
	fronts map[string]front // by queue
	sweeps sweeps
}

// NewQueue returns a queue over db, a pool of [OpenDB] that the caller closes. It sends nothing to the database. It panics if db is nil,
// or if a kind has attempts or a backoff out of the bounds of [New].
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
	return &Queue{db: db, options: o, metrics: newMetrics(o), fronts: make(map[string]front)}
}

// Options returns the options of the queue.
func (q *Queue) Options() Options { return q.options }

// Notify says that tasks of queues were committed, by [Queue.EnqueueTx] or by another program. Pools with the notifier of the queue look
// at once.
func (q *Queue) Notify(queues ...string) { q.options.Notifier.Notify(queues...) }

// cameBack makes claims look at all tasks of queues, because some came back, and notifies.
func (q *Queue) cameBack(queues map[string]bool) {
	if len(queues) > 0 {
		q.mu.Lock()
		maps.DeleteFunc(q.fronts, func(queue string, _ front) bool { return queues[queue] })
		q.mu.Unlock()
		q.Notify(slices.Sorted(maps.Keys(queues))...)
	}
}

// Active returns the keys that have tasks of the kind which wait and are due, or run. It counts tasks in the queue of the kind that are
// [Normal] or more urgent: a producer may have put a task where no worker looks.
func (q *Queue) Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error) {
	home, _ := q.options.Kinds.of(kind)
	return q.keysOf(ctx, "look for tasks under way", []string{kind}, keys,
		"state IN ('waiting', 'behind', 'running') AND run_at <= IF(state = 'running', run_at, "+now+") AND priority <= 0 AND queue = ?", home.Queue)
}

// Pending returns the keys that have tasks of the kinds which are neither done nor dead.
func (q *Queue) Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error) {
	return q.keysOf(ctx, "look for pending tasks", kinds, keys, "state <> 'dead'")
}

func (q *Queue) keysOf(ctx context.Context, what string, kinds []string, keys []uint64, condition string, args ...any) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	if len(kinds) == 0 || len(keys) == 0 {
		return found, nil
	}
	list, err := mysql.Select(ctx, q.db, mysql.Column[uint64], "SELECT DISTINCT subject FROM tasks FORCE INDEX (subjects) WHERE subject IN ("+mysql.Marks(len(keys))+
		") AND type IN ("+mysql.Marks(len(kinds))+") AND "+condition, slices.Concat(mysql.Args(keys), mysql.Args(kinds), args)...)
	for _, key := range list {
		found[key] = true
	}
	return found, mysql.Translate(ctx, what, err)
}
