package main

import (
	"regexp"
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

func TestShowMarksDifferences(t *testing.T) {
	t.Parallel()
	r := startAll(t, "--role=api")
	r.makeSite(t, 5)
	ctx := t.Context()
	for _, contact := range []string{"101", "102", "103", "105"} {
		if _, err := r.db.ExecContext(ctx, "INSERT INTO contacts (user_id, contact_id) VALUES (1, ?)", contact); err != nil {
			t.Fatal(err)
		}
	}
	servers := []string{"--mysql-dsn=" + r.config.mysqlDSN, "--redis-url=" + r.config.redisURL}
	if out := succeed(t, append([]string{"show", "1"}, servers...)...); !strings.Contains(out, "user_1: there is no set") || strings.Count(out, "missing in the set") != 4 {
		t.Errorf("without a set:\n%s", out)
	}
	must(t, r.client.Do(ctx, "ZADD", "user_1", 101000, "101", 1, "102", 104000, "104", 999000, "105").Err())
	out := succeed(t, append([]string{"show", "1"}, servers...)...)
	for contact, want := range map[string]string{
		"101": "", "102": "stale: uploaded since", "103": "missing in the set", "104": "ghost: not a contact", "105": "high: harmless, costs a look",
	} {
		line := strings.TrimSpace(regexp.MustCompile(`(?m)^` + contact + ` .*$`).FindString(out))
		if !strings.HasSuffix(line, want) || want == "" && !strings.HasSuffix(line, "-") {
			t.Errorf("line of %s: %q, want %q", contact, line, want)
		}
	}
	if !strings.Contains(out, "user_1: 4 members (need=10 max=12 min=10), 4 differences") {
		t.Errorf("summary:\n%s", out)
	}
}

// A command names an id that is no member, and shows its stored data all the same. A set may lack the uploads of a
// broadcast member: the command shows no difference, and marks the member as a broadcast member.
func TestShowTellsOfBroadcastMembers(t *testing.T) {
	t.Parallel()
	r := startAll(t, "--role=api")
	r.makeSite(t, 2)
	ctx := t.Context()
	for _, statement := range []string{
		"INSERT INTO contacts (user_id, contact_id) VALUES (1, 101), (1, 102)",
		"INSERT INTO broadcast_members (member_id, last_upload) VALUES (102, 102000)",
	} {
		_, err := r.db.ExecContext(ctx, statement)
		must(t, err)
	}
	must(t, r.client.Do(ctx, "ZADD", "user_1", 101000, "101", 1, "102").Err())
	out := succeed(t, append([]string{"show", "1"}, r.flags()...)...)
	if !regexp.MustCompile(`(?m)^CONTACT .* BROADCAST MEMBER  DIFFERENCE$`).MatchString(out) || !regexp.MustCompile(`(?m)^102 .*\) +broadcast *$`).MatchString(out) ||
		!strings.Contains(out, ", 0 differences") || strings.Contains(out, "1 is a broadcast member") {
		t.Errorf("of a follower:\n%s", out)
	}
	if out := succeed(t, append([]string{"show", "102"}, r.flags()...)...); !strings.Contains(out, "\n102 is a broadcast member (broadcast): its uploads are written to its row") {
		t.Errorf("of the broadcast member:\n%s", out)
	}
	if out := succeed(t, append([]string{"show", "1", "-o=json"}, r.flags()...)...); strings.Count(out, `"broadcast":"broadcast"`) != 1 {
		t.Errorf("as JSON: %s", out)
	}
}

func TestShowOfNoMember(t *testing.T) {
	t.Parallel()
	r := startAll(t, "--role=api")
	r.makeSite(t, 1)
	args := append([]string{"show", "999"}, r.flags()...)
	const noMember = "no such member: 999: want an id of the table users"
	if code, out, errs := command(t, nil, args...); code != exitFailed || out != "" || !strings.Contains(errs, noMember) {
		t.Errorf("without a set: exit code %d, %q, %q", code, out, errs)
	}
	must(t, r.client.Do(t.Context(), "ZADD", "user_999", 101000, "101").Err())
	code, out, errs := command(t, nil, args...)
	if code != exitFailed || !strings.Contains(out, "user_999: 1 members (") || !strings.Contains(errs, noMember) || !strings.Contains(errs, "verify --repair") {
		t.Errorf("with a set: exit code %d, %q, %q", code, out, errs)
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
