package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// flags returns the flags that lead a command to the servers of r.
func (r *running) flags() []string {
	return []string{"--mysql-dsn=" + r.config.mysqlDSN, "--redis-url=" + r.config.redisURL}
}

// makeExplained makes viewer 1 with contacts 101 to 111 and their set; 111
// uploaded last, but shows 1 nothing, and 110 blocks 1.
func makeExplained(t *testing.T) *running {
	t.Helper()
	r := startAll(t)
	r.makeSite(t, 11)
	for i := 1; i <= 11; i++ {
		must(t, r.site.SetContact(t.Context(), 1, member.ID(100+i), site.Grant{}))
	}
	must(t, r.site.SetVisibility(t.Context(), 111_000, contacts.Family))
	must(t, r.site.SetContact(t.Context(), 111, 1, site.Grant{Friend: true}))
	must(t, r.site.Block(t.Context(), 110, 1))
	r.awaitTasks(t)
	return r
}

func TestExplainPrintsWhy(t *testing.T) {
	t.Parallel()
	r := makeExplained(t)
	out := succeed(t, append([]string{"explain", "1"}, r.flags()...)...)
	if !strings.HasPrefix(out, "1 sees 109 (\"member 109\"), from the index; photos: 1, newest: 1970-01-02 06:16:40\n\nCONTACT ") {
		t.Errorf("begins so:\n%s", out)
	}
	for contact, want := range map[string]string{
		"111": `\("member 111"\) +1970-01-02 06:50:00 +1970-01-02 06:50:00 +- +1970-01-02 06:50:00 family +friend +nothing visible *$`,
		"110": `\("member 110"\) .* - +1970-01-02 06:33:20 public +- +blocked *$`,
		"109": `\("member 109"\) .* 1970-01-02 06:16:40 +- +- +chosen *$`,
		"101": `\("member 101"\) .* 1970-01-02 04:03:20 +- +- +older *$`,
	} {
		if !regexp.MustCompile(`(?m)^` + contact + ` ` + want).MatchString(out) {
			t.Errorf("no line of %s with %q in\n%s", contact, want, out)
		}
	}
	for _, want := range []string{
		"proof    the newest visible photo of all candidates", "bound    1970-01-02 04:03:20\n", "behind   by up to 0.0 s, ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
