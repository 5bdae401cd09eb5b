package main

import (
	"strings"
	"testing"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/schema"
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
		if want := len(schema.TriggerStatements()); out != "the 10 triggers are installed\n" || number(t, db, count) != want {
			t.Errorf("printed %q; there are %d triggers, want %d", out, number(t, db, count), want)
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
		"--triggers --apply --remove":           "exclude each other",
		"--triggers --apply":                    "--mysql-dsn",
		"--triggers --apply --mysql-dsn=" + dsn: "install the triggers: there is no table contacts",
	} {
		code, _, errs := command(t, nil, append([]string{"schema"}, strings.Fields(args)...)...)
		if code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s", args, code, errs)
		}
	}
	// What outlives a command must not say what to do now.
	code, out, _ := command(t, []string{"ACTIVITYD_TRIGGERS=true", "ACTIVITYD_REMOVE=true", "ACTIVITYD_MYSQL_DSN=" + dsn}, "schema")
	if code != 0 || out != activityd.Schema {
		t.Errorf("by the environment: exit code %d: %s", code, out)
	}
}
