package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func TestTriggersArePrintedInstalledAndRemoved(t *testing.T) {
	t.Parallel()
	if out := succeed(t, "schema", "--triggers"); out != activityd.Triggers {
		t.Error("schema --triggers does not print triggers.sql")
	}
	dsn := servertest.MySQLDSN(t)
	db := queueOf(t, dsn)
	const count = "SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = DATABASE()"
	for range 2 { // installing them again changes nothing
		out := succeed(t, "schema", "--triggers", "--apply", "--mysql-dsn="+dsn)
		if out != "the 10 triggers are installed\n" || number(t, db, count) != 10 {
			t.Errorf("printed %q; there are %d triggers, want 10", out, number(t, db, count))
		}
	}
	for _, want := range []string{"removed 10 triggers\n", "removed 0 triggers\n"} {
		if out := succeed(t, "schema", "--triggers", "--remove", "--mysql-dsn="+dsn); out != want || number(t, db, count) != 0 {
			t.Errorf("printed %q, want %q; %d triggers are left", out, want, number(t, db, count))
		}
	}
}

func TestSchemaRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	db := queueOf(t, dsn)
	_, err := db.ExecContext(t.Context(), "DROP TABLE photos, contacts")
	must(t, err)
	for args, want := range map[string]string{
		"--remove":                              "--triggers --remove",
		"--triggers --apply --remove":           "without --apply",
		"--triggers --apply":                    "--mysql-dsn",
		"--triggers --apply --mysql-dsn=" + dsn: "install the triggers: the triggers would fail at",
	} {
		code, _, errs := command(t, nil, append([]string{"schema"}, strings.Fields(args)...)...)
		if code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s", args, code, errs)
		}
	}
}

// damaged is the address of a database whose tables were changed.
func damaged(t *testing.T, statements ...string) string {
	t.Helper()
	dsn := servertest.MySQLDSN(t)
	db := queueOf(t, dsn)
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s)
		must(t, err)
	}
	return dsn
}

const (
	allThere     = "all tables are there"
	nothingWrong = allThere + ", and nothing is wrong with them\n"
)

// foreignUsers is a table of users of another program.
var foreignUsers = []string{"DROP TABLE users, tasks", "CREATE TABLE users (user_no INT PRIMARY KEY, email VARCHAR(80) NOT NULL)"}

func TestTheSchemaIsChecked(t *testing.T) {
	t.Parallel()
	const noIndex = "ALTER TABLE photos DROP KEY newest"
	for name, test := range map[string]struct {
		damage []string
		args   string
		code   int
		want   []string // texts of the output
	}{
		"all is well":  {[]string{"DO 1"}, "--check", exitOK, []string{nothingWrong}},
		"slow":         {[]string{noIndex}, "--check", exitOK, []string{"warning  photos: there is no index (owner_id, visibility, date_upload, id): ", "\n         ALTER TABLE photos ADD KEY newest (owner_id, visibility, date_upload, id);\n", "can be used, with 1 warning\n"}},
		"wrong":        {[]string{noIndex, "ALTER TABLE photos MODIFY visibility INT NOT NULL"}, "--check", exitWrong, []string{"wrong    photos: column visibility is int", "1 error in the schema"}},
		"a table less": {[]string{"DROP TABLE paused_queues"}, "--check", exitWrong, []string{"wrong    paused_queues: there is no such table", "activityd schema --apply"}},
		"another program's tables, and apply": {foreignUsers, "--apply", exitWrong, []string{
			"wrong    users: there is no column id\n", "wrong    users: there is no column username\n", "wrong    users: there is no column last_upload\n",
			"\n         ALTER TABLE users ADD COLUMN last_upload BIGINT UNSIGNED NULL", "views take their place in a database beside it: docs/setup.md",
		}},
		"a table less, and apply": {[]string{"DROP TABLE tasks"}, "--apply", exitOK, []string{allThere}},
		"with triggers":           {[]string{"DO 1"}, "--check --triggers", exitFailed, []string{"leave out --triggers"}},
		"with apply":              {[]string{"DO 1"}, "--check --apply", exitFailed, []string{"--check is given alone"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := command(t, nil, append(strings.Fields("schema "+test.args), "--mysql-dsn="+damaged(t, test.damage...))...)
			if code != test.code {
				t.Errorf("exit code %d, want %d: %s%s", code, test.code, out, errs)
			}
			for _, want := range test.want {
				if !strings.Contains(out+errs, want) {
					t.Errorf("printed %s%s, want %q", out, errs, want)
				}
			}
		})
	}
	if code, _, errs := command(t, nil, "schema", "--check", "--mysql-dsn=x@unix(/nowhere)/site"); code != exitFailed || !strings.Contains(errs, "check the schema") {
		t.Errorf("without a server: exit code %d: %s", code, errs)
	}
}

// TestNothingRunsOnAWrongSchema, nor on tables of another version: it is refused at once, by its name, and not waited for.
func TestNothingRunsOnAWrongSchema(t *testing.T) {
	t.Parallel()
	redisURL := servertest.Redis(t).URL()
	runs := []string{"serve --listen=127.0.0.1:0 --metrics-listen=", "serve --role=workers --metrics-listen=", "backfill", "verify"}
	others := []string{"tasks list", "enqueue upload 1", "schema --apply", "schema --check"}
	for want, test := range map[string]struct{ damage, commands []string }{
		"wrong    users: there is no column last_upload":           {foreignUsers, runs},
		"this activityd is older than the schema: run a newer one": {[]string{"ALTER TABLE tasks COMMENT = 'activityd schema 999'"}, slices.Concat(runs, others)},
		"start anew": {[]string{"ALTER TABLE tasks COMMENT = 'activityd schema 6'"}, slices.Concat(runs, others)},
	} {
		environ := []string{"ACTIVITYD_MYSQL_DSN=" + damaged(t, test.damage...), "ACTIVITYD_REDIS_URL=" + redisURL}
		for _, line := range test.commands {
			if code, out, errs := command(t, environ, strings.Fields(line)...); code == exitOK || !strings.Contains(out+errs, want) {
				t.Errorf("%s: exit code %d: %s%s, want %s", line, code, out, errs, want)
			}
		}
	}
}

// TestAWrongSchemaThatComesLater: a server that was away at the start is looked at when
// it is there.
func TestAWrongSchemaThatComesLater(t *testing.T) {
	t.Parallel()
	mysqlServer := servertest.OwnMySQL(t)
	db, err := sql.Open("mysql", mysqlServer.DSN(servertest.Database))
	must(t, err)
	for _, s := range foreignUsers {
		_, err := db.ExecContext(t.Context(), s)
		must(t, err)
	}
	must(t, db.Close())
	must(t, mysqlServer.Kill())
	log := &logtest.Log{}
	s, err := openService(configFor(t, mysqlServer.DSN(servertest.Database), servertest.Redis(t).URL(), "--role=workers"), slog.New(slog.NewTextHandler(log, nil)))
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.serve(context.WithoutCancel(t.Context())) }()
	eventually(t, "it waits for MySQL", func() bool { return strings.Contains(log.String(), "server cannot be used") })
	must(t, mysqlServer.Restart(t.Context()))
	err = <-ended
	if wrong, ok := errors.AsType[*schemaError](err); !ok || !strings.Contains(wrong.Error(), "there is no column last_upload") {
		t.Errorf("serve: %v", err)
	}
}

// A queue's user gets the queue's tables and no other.
func TestOnlyTheQueuesTables(t *testing.T) {
	t.Parallel()
	m := servertest.OwnMySQL(t)
	must(t, m.CreateDatabase(t.Context(), "shop"))
	for range 2 {
		if out := succeed(t, "schema", "--apply", "--only=queue", "--mysql-dsn="+m.DSN("shop")); out != "the tables of the queue are there\n" {
			t.Errorf("said %q", out)
		}
	}
	if n := number(t, queueOf(t, m.DSN("shop")), "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'shop'"); n != 4 {
		t.Errorf("%d tables", n)
	}
	if out := succeed(t, "schema", "--only=queue"); out != queue.Schema || !strings.Contains(activityd.Schema, queue.Schema) {
		t.Errorf("printed\n%s", out)
	}
	for _, o := range []schemaOptions{{only: "push"}, {only: "queue", check: true}, {only: "queue", triggers: true}} {
		if o.refuse() == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
