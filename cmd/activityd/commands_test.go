package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

func TestSchemaIsPrintedAndApplied(t *testing.T) {
	t.Parallel()
	if out := succeed(t, "schema"); out != activityd.Schema {
		t.Error("schema does not print schema.sql")
	}
	m := servertest.OwnMySQL(t)
	must(t, m.CreateDatabase(t.Context(), "fresh"))
	for range 2 { // applying it again changes nothing
		if out := succeed(t, "schema", "--apply", "--mysql-dsn="+m.DSN("fresh")); !strings.Contains(out, allThere) {
			t.Errorf("printed %q", out)
		}
	}
	if out := succeed(t, "enqueue", "upload", "7", "--mysql-dsn="+m.DSN("fresh")); out != "1\n" {
		t.Errorf("enqueue printed %q", out)
	}
}

func TestEnqueueAbsorbsAndIsWorkedOn(t *testing.T) {
	t.Parallel()
	r := startAll(t, "--role=api")
	r.makeSite(t, 1)
	dsn := "--mysql-dsn=" + r.config.mysqlDSN
	first := succeed(t, "enqueue", "add_contact", "1", "101", dsn)
	if again := succeed(t, "enqueue", "remove_contact", "1", "101", dsn); again != first {
		t.Errorf("the same work was enqueued twice: %q, %q", first, again)
	}
	if other := succeed(t, "enqueue", "upload", "18446744073709551615", dsn); other == first {
		t.Errorf("other work was absorbed: %q", other)
	}
}

func TestResetDeletesOnlySets(t *testing.T) {
	t.Parallel()
	r := startAll(t)
	r.makeSite(t, 1)
	must(t, r.site.SetContact(t.Context(), 1, 101, site.Grant{}))
	r.awaitTasks(t)
	must(t, r.stop())
	must(t, r.client.Set(t.Context(), "somebody_else", "x", 0).Err())
	must(t, r.client.Do(t.Context(), "XADD", "activityd_events", "*", "task", "x").Err())
	if out := succeed(t, "reset", "--yes", "--redis-url="+r.config.redisURL); out != "deleted 1 sets\n" {
		t.Errorf("printed %q", out)
	}
	keys := r.client.Keys(t.Context(), "*").Val()
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"activityd_events", "somebody_else"}) { // the events of the stream exist nowhere else
		t.Errorf("left: %v", keys)
	}
}
