package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/check"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// backend holds the servers and stores of a process.
type backend struct {
	config   *config
	log      *slog.Logger
	store    *contacts.MySQL
	db       *sql.DB // of store and queue
	queue    *queue.Queue
	id       *databaseID // of db
	notifier *notify.Notifier
	wake     *wake.Wake // carries notifications to other processes
	redis    redis.UniversalClient
	index    *index.Index
	push     *push.MySQL
	health   health.Servers
	// requests is for the API's tasks and devices, and for the console: no lock for which they wait holds up reads or tasks.
	requests      *sql.DB
	closers       closers
	checkedSchema bool // nothing is wrong in it
}

// openBackend opens MySQL and Redis without connecting to them.
func openBackend(c *config, log *slog.Logger) (b *backend, err error) {
	options, err := c.indexOptions()
	if err != nil {
		return nil, err
	}
	b = &backend{config: c, log: log, notifier: &notify.Notifier{}}
	if b.redis, err = openRedis(c.redisURL); err != nil {
		return nil, err
	}
	b.closers.push(b.redis.Close)
	pool := func(connections int) (db *sql.DB) {
		if err == nil {
			db, err = openMySQL(c, connections)
		}
		if err == nil {
			b.closers.push(db.Close)
		}
		return db
	}
	_, requests := c.shares()
	b.db, b.requests = pool(c.mysqlConnections-requests), pool(requests)
	probe := pool(1) // which no load takes away
	if err != nil {
		return nil, errors.Join(err, b.closers.close())
	}
	b.id = &databaseID{db: probe}
	options.Database = b.id.get
	b.index = index.New(b.redis, options)
	b.closers.push(b.index.Close)
	b.store, b.push = contacts.NewMySQL(b.db), push.NewMySQL(b.db)
	b.wake = wake.New(b.redis, b.notifier, log)
	b.queue = b.queueOn(b.db)
	store, q := contacts.NewMySQL(probe), queue.NewQueue(probe, queue.Options{Kinds: tasks.Kinds()})
	b.health = health.NewServers(func(ctx context.Context) error {
		_, err := store.LastUploads(ctx, []member.ID{1})
		if err == nil {
			_, err = q.Active(ctx, tasks.FanOut, []uint64{1})
		}
		return err
	}, health.NewRedis(b.redis, log), log)
	return b, nil
}

// queueOn returns the queue on connections to its database.
func (b *backend) queueOn(db *sql.DB) *queue.Queue {
	return queue.NewQueue(db, queue.Options{
		Kinds: tasks.Kinds(), Registerer: prometheus.DefaultRegisterer, Notifier: b.notifier, Owner: processName(),
	})
}

// withBackend calls do with the servers of a command, after it has checked them. A Redis that is away is no error.
func withBackend(cmd *cobra.Command, c *config, log io.Writer, do func(context.Context, *backend) error) error {
	if err := c.check(cmd.Flags()); err != nil {
		return err
	}
	b, err := openBackend(c, newLogger(c, log))
	if err != nil {
		return err
	}
	defer func() { _ = b.closers.close() }() // each call's own error was checked
	if err = b.checkServers(cmd.Context()); err == nil {
		err = do(cmd.Context(), b)
	}
	return advised(err)
}

// backendFlags registers the flags for [withBackend].
func (c *config) backendFlags(f *pflag.FlagSet) {
	c.mysqlFlags(f)
	c.redisFlags(f)
	c.indexFlags(f)
}

// advised adds the remedy to an error.
func advised(err error) error {
	switch {
	case errors.Is(err, contacts.ErrNoMember):
		return fmt.Errorf("%w: want an id of the table users", err)
	case errors.Is(err, mysql.ErrUnavailable):
		return fmt.Errorf("%w: start MySQL, or correct --mysql-dsn (%s)", err, settings.Variable("mysql-dsn"))
	case errors.Is(err, index.ErrNoDatabase):
		return fmt.Errorf("--redis-url (%s): %w: want a number that the server has, as in redis://host:6379/0; a cluster has 0 only, and its URL is redis+cluster://host:6379",
			settings.Variable("redis-url"), err)
	}
	return err
}

// reader returns a reader that changes nothing.
func (b *backend) reader(o recent.Options) *recent.Reader {
	o.Min = b.index.Settings().Min
	return recent.NewReader(b.index, b.store, noHints{}, o)
}

// noHints is for reads that change nothing.
type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

// checker returns a checker of the sets.
func (b *backend) checker() *check.Checker {
	return &check.Checker{
		Sets: b.index, Truth: b.store, Tasks: b.queue, Read: b.reader(recent.Options{Uncounted: true}).Read,
		ActiveOnly: b.config.materialize == materializeActive,
	}
}

// checkServers checks the tables and the sets. The error [isRefusal] where activityd cannot work on them; any other
// error means that MySQL is away.
func (b *backend) checkServers(ctx context.Context) error {
	err := b.checkSchema(ctx)
	if err == nil {
		err = b.id.read(ctx)
	}
	if isSchemaError(err) {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if refused := b.index.Check(bounded); isRedisRefusal(refused) { // the first probe reports any other error
		return refused
	}
	return err
}

// isRefusal reports whether waiting does not mend an error of [backend.checkServers].
func isRefusal(err error) bool { return isSchemaError(err) || isRedisRefusal(err) }

// isRedisRefusal: sets of another database or of other settings, a database that Redis does not have, a Redis that hides
// its run.
func isRedisRefusal(err error) bool {
	return errors.Is(err, index.ErrSettings) || errors.Is(err, index.ErrNoDatabase) || errors.Is(err, index.ErrHidden)
}

// checkSchema checks the tables until a check succeeds, and logs warnings.
func (b *backend) checkSchema(ctx context.Context) error {
	if b.checkedSchema {
		return nil
	}
	findings, err := checkSchema(ctx, b.db)
	if err != nil {
		return err
	}
	b.checkedSchema = true
	for _, f := range findings {
		b.log.WarnContext(ctx, "schema warning", "table", f.Table, "finding", f.What, "do", f.Do)
	}
	return nil
}

// checkSchema returns the findings about the tables, errors first. A wrong table makes the error a *[schemaError]. Any
// other error means that the check could not be made. A server that does not answer within 5 s is away.
func checkSchema(ctx context.Context, db *sql.DB) ([]schema.Finding, error) {
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	findings, err := schema.Check(bounded, db)
	switch wrong := wrongOf(findings); {
	case err != nil && ctx.Err() == nil && bounded.Err() != nil:
		return nil, fmt.Errorf("check the schema: %w: no answer within 5 s", mysql.ErrUnavailable)
	case err != nil:
		return nil, mysql.Translate(ctx, "check the schema", err)
	case len(wrong) > 0:
		return findings, &schemaError{wrong}
	}
	return findings, nil
}

// wrongOf returns the first of the findings, those that are wrong.
func wrongOf(findings []schema.Finding) []schema.Finding {
	if at := slices.IndexFunc(findings, func(f schema.Finding) bool { return !f.Wrong }); at >= 0 {
		return findings[:at]
	}
	return findings
}

// schemaError says that nothing can work on the tables as they are.
type schemaError struct{ wrong []schema.Finding }

func isSchemaError(err error) bool {
	_, is := errors.AsType[*schemaError](err)
	return is
}

func (e *schemaError) Error() string {
	return e.summary() + "\n" + strings.TrimSuffix(findingsText(e.wrong), "\n")
}

func (e *schemaError) summary() string {
	return count(len(e.wrong), "error") + " in the schema; where tables of these names are the site's own, they stay, and views take their place in a database beside it: docs/setup.md"
}

// count is a number of things, in words.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// findingsText has a line for each finding, and its remedy below it.
func findingsText(findings []schema.Finding) string {
	var text strings.Builder
	for _, f := range findings {
		class := "warning"
		if f.Wrong {
			class = "wrong"
		}
		fmt.Fprintf(&text, "%-7s  %s: %s\n         %s\n", class, f.Table, inspect.OneLine(f.What), inspect.OneLine(f.Do))
	}
	return text.String()
}

// databaseID is the id of the database, from when it was read.
type databaseID struct {
	db    *sql.DB
	known atomic.Pointer[string]
}

// get returns the id, or "" while it is not known.
func (d *databaseID) get() string {
	if id := d.known.Load(); id != nil {
		return *id
	}
	return ""
}

// read reads the id unless it is known, and takes 5 s at most.
func (d *databaseID) read(ctx context.Context) error {
	if d.known.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id, err := schema.DatabaseID(ctx, d.db)
	if err == nil {
		d.known.Store(&id)
	}
	return err
}
