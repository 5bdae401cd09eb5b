package endtoend_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// ground holds the servers of a test, and the site that its processes serve.
type ground struct {
	dsn      string
	redis    *localserver.Redis
	db       *sql.DB       // the site's own connections
	client   *redis.Client // the test's own look at the sets
	site     *site.MySQL
	queue    *queue.Queue // the test's own look at the queue
	settings index.Settings
}

// indexOf returns an index of the sets of a database, as the processes of the program have it.
func indexOf(t *testing.T, client redis.UniversalClient, db *sql.DB, o index.Options) *index.Index {
	t.Helper()
	id, err := schema.DatabaseID(t.Context(), db)
	must(t, err)
	o.Database = func() string { return id }
	return index.New(client, o)
}

// newGround stands on a database of its own on the shared server.
func newGround(t *testing.T, need int) *ground {
	t.Helper()
	return groundOn(t, need, servertest.MySQLDSN(t), servertest.Redis(t))
}

func groundOn(t *testing.T, need int, dsn string, r *localserver.Redis) *ground {
	t.Helper()
	settings, err := index.NewSettings(need, 20, 0)
	must(t, err)
	db := openMySQL(t, dsn)
	return &ground{
		dsn: dsn, redis: r, db: db, client: openRedis(t, r), site: site.NewMySQL(db),
		queue: queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"}), settings: settings,
	}
}

func openMySQL(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := mysql.Open(patiently(t, dsn), mysql.WithMaxOpen(16))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// patiently returns dsn with a longer time to connect than the default of 5 s, after which the database
// counts as unavailable. A dead server still refuses at once.
func patiently(t *testing.T, dsn string) string {
	t.Helper()
	cfg, err := driver.ParseDSN(dsn)
	must(t, err)
	cfg.Timeout = patience
	return cfg.FormatDSN()
}

func openRedis(t *testing.T, r *localserver.Redis) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: r.Addr(), ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// flush empties Redis, as a lost server does.
func (g *ground) flush(t *testing.T) {
	t.Helper()
	must(t, g.client.FlushAll(t.Context()).Err())
}

// exec runs a statement of the site.
func (g *ground) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := g.db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// statement is a change of the site.
type statement struct {
	text string
	args []any
}

func sqlText(text string, args ...any) statement { return statement{text, args} }

// transact runs statements in a transaction, and again if the server ended it to resolve a deadlock.
func (g *ground) transact(ctx context.Context, level sql.IsolationLevel, statements []statement, commit bool) error {
	for {
		tx, err := g.db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			return err
		}
		for _, s := range statements {
			if _, err = tx.ExecContext(ctx, s.text, s.args...); err != nil {
				err = fmt.Errorf("%s: %w", s.text, err)
				break
			}
		}
		if err == nil && commit {
			err = tx.Commit()
		} else {
			_ = tx.Rollback() // err is the error to return
		}
		if !mysql.IsRetryable(err) {
			return err
		}
	}
}

// onOneConnection runs statements as a person with a client does, up to an error. A transaction that it left open
// is rolled back.
func (g *ground) onOneConnection(ctx context.Context, list []string) error {
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { // the pool would not know of variables that the statements set
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		_ = conn.Close()
	}()
	for _, s := range list {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func (g *ground) count(t *testing.T) queuetest.Counts {
	t.Helper()
	c, err := queuetest.Count(t.Context(), g.queue)
	must(t, err)
	return c
}

// leftTasks counts all tasks but the sweep, which never ends.
const leftTasks = "(SELECT COUNT(*) FROM tasks WHERE queue <> 'check')"

// awaitIdle waits until every task is done. None may have died.
func (g *ground) awaitIdle(t *testing.T) {
	t.Helper()
	eventually(t, "every task is done", func() bool { return g.count(t).Open() == 0 })
	g.checkNoneDead(t)
}

func (g *ground) checkNoneDead(t *testing.T) {
	t.Helper()
	if dead := g.count(t).Dead; dead > 0 {
		var reason string
		must(t, g.db.QueryRowContext(t.Context(), "SELECT last_error FROM tasks WHERE state = 'dead' ORDER BY id LIMIT 1").Scan(&reason))
		t.Fatalf("%d tasks are dead, the first because of: %s", dead, reason)
	}
}

// warm builds the sets of the given members, by a process that ends again.
func (g *ground) warm(t *testing.T, users []member.ID) {
	t.Helper()
	refills := make([]queue.New, len(users))
	for i, user := range users {
		refills[i] = tasks.NewRefill(user)
	}
	_, err := g.queue.Enqueue(t.Context(), refills)
	must(t, err)
	p := g.started(t, "warmer")
	g.awaitIdle(t)
	p.stop()
}
