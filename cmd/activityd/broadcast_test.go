package main

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// The commands report each change, and the reason when there is none.
func TestBroadcastCommands(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	_, err := queueOf(t, dsn).ExecContext(t.Context(), "INSERT INTO users (id, username) VALUES (7, 'seven'), (8, 'eight')")
	must(t, err)
	environ := []string{"ACTIVITYD_MYSQL_DSN=" + dsn}
	for _, step := range []struct {
		args   string
		fails  bool
		prints string
	}{
		{"add 7 8", true, "repeat with --yes"},
		{"add 7 8 --yes", false, "7 is a broadcast member\n8 is"},
		{"add 7 --yes", false, "7 is a broadcast member"},
		{"add 9 --yes", true, "no such member: 9"},
		{"add 9007199254740991 --yes", true, "no such member"},
		{"add x", true, "MEMBER: not a member id"},
		{"remove 9", true, "member 9 is no broadcast member"},
		{"remove 7", false, "7 ceases to be a broadcast member an hour after all followers have its last upload"},
		{"remove 7", false, "7 ceases"},
		{"add 7 --yes", false, "7 is a broadcast member"},
	} {
		code, out, errs := command(t, environ, strings.Fields("broadcast "+step.args)...)
		if step.fails != (code != exitOK) || !strings.Contains(out+errs, step.prints) {
			t.Errorf("broadcast %s: exit code %d: %s%s, want %q", step.args, code, out, errs, step.prints)
		}
	}
}
