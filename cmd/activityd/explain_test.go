package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
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
		"proof    the newest visible photo of all candidates", "bound    1970-01-02 04:03:20\n", "behind   by up to 0.0 s, ", "timings  redis ", ", details ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestExplainAsJSON(t *testing.T) {
	t.Parallel()
	r := makeExplained(t)
	out := succeed(t, append([]string{"explain", "1", "-o=json", "--limit=1"}, r.flags()...)...)
	var a struct {
		Contact struct {
			LastUpload uint64 `json:"last_upload"`
		}
		Explain struct {
			Candidates []struct {
				Verdict string
				Now     struct {
					Username string
				}
			}
		}
	}
	must(t, json.Unmarshal([]byte(out), &a))
	if len(a.Explain.Candidates) != 11 || a.Explain.Candidates[1].Verdict != "blocked" ||
		a.Explain.Candidates[1].Now.Username != "member 110" || a.Contact.LastUpload != 109_000 || strings.Count(out, "\n") != 1 {
		t.Errorf("printed %s", out)
	}
}

// Without Redis, explain explains the walk.
func TestExplainWithoutRedis(t *testing.T) {
	t.Parallel()
	r := makeExplained(t)
	must(t, r.stop())
	must(t, r.redis.Kill())
	out := succeed(t, append([]string{"explain", "1"}, r.flags()...)...)
	if !strings.Contains(out, "from the database;") || !strings.Contains(out, "walk     redis_unavailable; contacts looked at: 11, statements: ") ||
		!regexp.MustCompile(`(?m)^109 \("member 109"\) +- .* chosen: found by the walk`).MatchString(out) {
		t.Errorf("printed\n%s", out)
	}
}

func TestExplainOfWhoSeesNothing(t *testing.T) {
	t.Parallel()
	r := startAll(t)
	r.makeSite(t, 0)
	out := succeed(t, append([]string{"explain", "1"}, r.flags()...)...)
	if !strings.HasPrefix(out, "1 sees nothing, from the database\n\nproof ") || !strings.Contains(out, "bound    -") {
		t.Errorf("printed\n%s", out)
	}
	code, _, errs := command(t, nil, append([]string{"explain", "999"}, r.flags()...)...)
	if code != 1 || errs != "activityd: no such member: 999: want an id of the table users\n" {
		t.Errorf("no member: exit code %d: %s", code, errs)
	}
}

func TestExplainWithoutMySQL(t *testing.T) {
	t.Parallel()
	code, out, errs := command(t, nil, "explain", "1", "--mysql-dsn=u:p@tcp(127.0.0.1:1)/x", "--redis-url="+servertest.Redis(t).URL())
	if code != 1 || out != "" || !strings.Contains(errs, "database unavailable") || !strings.Contains(errs, "start MySQL, or correct --mysql-dsn (ACTIVITYD_MYSQL_DSN)") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

func TestExplainRefusesNonsense(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"MEMBER: not a member id":      {"x"},
		"--limit: is 0: want 1 to 50":  {"1", "--limit=0"},
		"--limit: is 51: want 1 to 50": {"1", "--limit=51"},
		`for "-o, --output" flag`:      {"1", "--output=xml"},
		"--mysql-dsn":                  {"1"},
	} {
		if code, _, errs := command(t, nil, append([]string{"explain"}, args...)...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d: %s", args, code, errs)
		}
	}
}

// While an older task waits, an answer by the index says by how much it may be late, as long
// as it waits; so do /readyz and the command.
func TestAnswersSayHowFarBehindTheyAre(t *testing.T) {
	t.Parallel()
	r := makeExplained(t)
	var status int
	behind := func() string { return r.get(t, "/v1/users/1/recent-contact-photos", &status) }
	eventually(t, "it is not behind", func() bool { return strings.Contains(behind(), `"source":"index","behind_seconds":0}`) })

	change := func(statement string) {
		_, err := r.db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	change("INSERT INTO tasks (queue, type, subject, created_at) VALUES ('aside', 'upload', 109, (UNIX_TIMESTAMP() - 3600) * 1000)") // no worker looks there
	late := regexp.MustCompile(`"source":"index","behind_seconds":36\d\d(\.\d+)?}`)
	eventually(t, "the answer is behind", func() bool { return late.MatchString(behind()) })
	if body := r.get(t, "/readyz", &status); status != http.StatusOK || !regexp.MustCompile(`"status":"ok",.*"behind_seconds":{"aside":36\d\d`).MatchString(body) {
		t.Errorf("/readyz: %d %s", status, body)
	}
	out := succeed(t, append([]string{"explain", "1"}, r.flags()...)...)
	if !regexp.MustCompile(`(?m)^behind {3}by up to 36\d\d\.\d s, `).MatchString(out) {
		t.Errorf("explain says\n%s", out)
	}
	change("UPDATE tasks SET queue = 'default' WHERE queue = 'aside'")
	eventually(t, "it is not behind any more", func() bool { return strings.Contains(behind(), `"behind_seconds":0}`) })
}
