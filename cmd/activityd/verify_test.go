package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/check"
)

// verifyJSON runs verify, and returns its exit code, its findings and the summary.
func (m *masses) verifyJSON(t *testing.T, args ...string) (code int, findings []check.Finding, summary map[string]any) {
	t.Helper()
	code, out, errs := m.run(t, append([]string{"verify", "--json"}, args...)...)
	for line := range strings.Lines(out) {
		var s struct{ Summary map[string]any }
		must(t, json.Unmarshal([]byte(line), &s))
		if s.Summary != nil {
			summary = s.Summary
			continue
		}
		var f check.Finding
		must(t, json.Unmarshal([]byte(line), &f))
		findings = append(findings, f)
	}
	if summary == nil {
		t.Fatalf("no summary; exit code %d: %s", code, errs)
	}
	return code, findings, summary
}

func TestVerifyFindsAndRepairs(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 300)
	m.backfill(t)
	eventually(t, "all answers are compared", func() bool { // the index has no part in the answers of a slow machine
		code, out, errs := m.run(t, "verify", "--answers=1")
		if code != exitOK {
			t.Fatalf("exit code %d: %s%s", code, out, errs)
		}
		return strings.HasPrefix(out, "checked: 300 sets, 300 answers; 0 wrong; ")
	})
	ctx := t.Context()
	must(t, m.client.Del(ctx, "user_7").Err())                          // lost
	must(t, m.client.ZRem(ctx, "user_8", "10").Err())                   // a missing contact
	must(t, m.client.Do(ctx, "ZADD", "user_9", "7777", "200").Err())    // a ghost: waste
	must(t, m.client.Do(ctx, "ZADD", "user_99999", "7777", "20").Err()) // of no member: waste
	must(t, m.client.Del(ctx, "user_11").Err())                         // lag: a task is pending
	_, err := m.db.ExecContext(ctx, "INSERT INTO tasks (type, subject, queue) VALUES ('refill', 11, 'refill')")
	must(t, err)
	code, out, errs := m.run(t, "verify")
	if code != exitWrong || !strings.Contains(errs, "2 sets or answers are wrong; --repair enqueues refills") || strings.Contains(out, "lag: ") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"error: lost set of user 7", "of user 8, contact 10", "waste: ghost of user 9, contact 200", "waste: orphan of user 99999", "1      lag", "checked: 301 sets"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if code, _, errs := m.run(t, "verify", "9"); code != exitOK {
		t.Errorf("waste alone: exit code %d: %s", code, errs)
	}
	code, findings, summary := m.verifyJSON(t, "--repair")
	if code != exitWrong || len(findings) != 6 || summary["repairs"] != 4.0 || summary["complete"] != true {
		t.Errorf("exit code %d: %+v, %v", code, findings, summary)
	}
	r := start(t, configFor(t, m.dsn, m.url))
	r.db = m.db
	r.awaitTasks(t)
	if code, out, errs := m.run(t, "verify"); code != exitOK {
		t.Errorf("after the repair: exit code %d: %s%s", code, out, errs)
	}
	m.wantSets(t, 300)
}

// --rate holds for the sets of deleted members, too, and a signal says how to go on.
func TestVerifyKeepsToItsRate(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 200)
	m.backfill(t)
	for i := range 300 {
		must(t, m.client.Do(t.Context(), "ZADD", fmt.Sprint("user_", 1000+i), "7", "1").Err())
	}
	start := time.Now()
	_, _, summary := m.verifyJSON(t, "--rate=200")
	if took := time.Since(start); summary["checked"] != 500.0 || took < time.Second {
		t.Errorf("%v within %v", summary, took)
	}
	c := m.spawn(t, "verify", "--rate=20", "1-199")
	eventually(t, "some are compared", func() bool { return strings.Contains(c.log.String(), "of 199 members") })
	c.signal(t, syscall.SIGINT)
	if code := c.wait(); code != exitFailed || !regexp.MustCompile(`are done; go on with \d+-199\n`).MatchString(c.log.String()) {
		t.Errorf("exit code %d: %s", code, c.log.String())
	}
}
