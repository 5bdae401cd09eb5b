package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// homepage is the definition of the read, as a site would have it.
const homepage = `
WITH mine AS (
  SELECT p.id, p.owner_id, p.date_upload
  FROM contacts c
  JOIN photos p ON p.owner_id = c.contact_id
  LEFT JOIN blocks b ON b.user_id IN (c.contact_id, c.user_id) AND b.blocked_id IN (c.contact_id, c.user_id)
  WHERE c.user_id = :viewer AND b.user_id IS NULL AND p.visibility = 'public'
)
SELECT id FROM mine WHERE owner_id = (SELECT owner_id FROM mine ORDER BY date_upload DESC, id DESC LIMIT 1)
ORDER BY date_upload DESC, id DESC LIMIT :limit`

// A user that may only read, without Redis, compares the answers. A difference is printed with the smallest example, and the exit code says so.
func TestVerifyAgainstAStatement(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 30)
	var database string
	must(t, m.db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database))
	user := "reader_" + database
	for _, statement := range []string{"CREATE USER " + user + "@localhost IDENTIFIED BY ''", fmt.Sprintf("GRANT SELECT ON %s.* TO %s@localhost", database, user)} {
		_, err := m.db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	t.Cleanup(func() { _, _ = m.db.ExecContext(context.Background(), "DROP USER "+user+"@localhost") })
	_, rest, _ := strings.Cut(m.dsn, "@")
	against := func(statement string, args ...string) (code int, out, errs string) {
		return command(t, nil, append([]string{"verify", "--mysql-dsn=" + user + "@" + rest, "--redis-url=redis://127.0.0.1:1", "--against=" + statement}, args...)...)
	}
	code, out, errs := against(homepage, "--sample=20")
	if code != exitOK || out != "compared the answers for 20 members: 20 the same, 0 differ\n" {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	s := site.NewMySQL(m.db)
	for owner := member.ID(2); owner <= 4; owner++ { // all contacts of member 1
		must(t, s.Block(t.Context(), owner, 1))
	}
	unblocked := strings.Replace(homepage, "b.user_id IS NULL", "TRUE", 1)
	code, out, errs = against(unblocked)
	if want := "1 hidden_by_ours_block: theirs shows the photo, and one of the two members blocks the other\n" +
		"  such as member 1, photo 4 of member 4: ours [], theirs [4]\n" +
		"compared the answers for 30 members: 29 the same, 1 differ\n"; code != exitWrong || out != want || !strings.HasSuffix(errs, "activityd: 1 of 30 answers differ\n") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	code, out, errs = against(unblocked, "--json")
	if want := `{"class":"hidden_by_ours_block","viewer":"1","photo":"4","owner":"4","ours":[],"theirs":["4"]}` + "\n" +
		`{"summary":{"compared":30,"differences":{"hidden_by_ours_block":1},"failed":0,"same":29}}` + "\n"; code != exitWrong || out != want {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, out, errs = against(unblocked, "2-9"); code != exitOK || !strings.HasPrefix(out, "compared the answers for 8 members: 8 the same") {
		t.Errorf("of a range: exit code %d: %s%s", code, out, errs)
	}
	failing := strings.Replace(homepage, "SELECT id", "SELECT IF(:viewer = 5, (SELECT id FROM photos), id)", 1)
	if code, out, errs = against(failing); code != exitFailed || !strings.Contains(out, "29 members: 29 the same") || !strings.Contains(errs, "member 5: ") || !strings.Contains(errs, "1 members could not be compared, 0 of them in a row") {
		t.Errorf("one of them: exit code %d: %s%s", code, out, errs)
	}
	if code, out, errs = against("SELECT nothing FROM photos WHERE id = :viewer"); code != exitFailed || strings.Count(errs, "activityd: member ") != 3 || !strings.Contains(errs, "3 members could not be compared, 3 of them in a row") {
		t.Errorf("all of them: exit code %d: %s%s", code, out, errs)
	}
	for want, args := range map[string][]string{
		"--against: begins with \"DELETE": {"DELETE FROM photos WHERE id = :viewer"}, "has no :viewer": {"SELECT 1"}, "want 1 to 50": {homepage, "--limit=51"},
		"--sample: is 0": {homepage, "--sample=0"}, "none of the others can be": {homepage, "--repair"}, "--rate: is -1": {homepage, "--rate=-1"},
	} {
		if code, out, errs := against(args[0], args[1:]...); code != exitFailed || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%v: exit code %d: %s%s, want %q", args, code, out, errs, want)
		}
	}
}
