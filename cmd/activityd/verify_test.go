package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// verifyJSON runs verify, and returns its exit code, its findings and the summary.
func (m *masses) verifyJSON(t *testing.T, args ...string) (code int, findings []findingJSON, summary map[string]any) {
	t.Helper()
	code, out, errs := m.run(t, append([]string{"verify", "-o", "json"}, args...)...)
	for line := range strings.Lines(out) {
		var s struct{ Summary map[string]any }
		must(t, json.Unmarshal([]byte(line), &s))
		if s.Summary != nil {
			summary = s.Summary
			continue
		}
		var f findingJSON
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
	code, out, errs := m.run(t, "verify")
	if code != exitWrong || !strings.Contains(errs, "2 sets or answers are wrong; --repair enqueues refills") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"error: lost set of user 7", "of user 8, contact 10", "waste: ghost of user 9, contact 200", "waste: orphan of user 99999", "checked: 301 sets"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if code, _, errs := m.run(t, "verify", "9"); code != exitOK {
		t.Errorf("waste alone: exit code %d: %s", code, errs)
	}
	code, findings, summary := m.verifyJSON(t, "--repair")
	if code != exitWrong || len(findings) != 5 || summary["repairs"] != 4.0 || summary["complete"] != true {
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

func TestVerifyThatCannotSaysSo(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 10)
	m.backfill(t)
	for _, test := range []struct{ args, want string }{
		{"4711", "no such member"},
		{"--need=5", "the sets in Redis were built with"},
		{"--answers=2", "--answers: is 2: want 0 to 1"},
		{"-o xml", "--output"},
	} {
		code, out, errs := m.run(t, append([]string{"verify"}, strings.Fields(test.args)...)...)
		if code != exitFailed || !strings.Contains(errs, test.want) || out != "" {
			t.Errorf("%s: exit code %d: %s%s", test.args, code, out, errs)
		}
	}
}

// Lag, however much there is, hides no error from people.
func TestLagHidesNoError(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 400)
	m.backfill(t)
	for i := 1; i <= 150; i++ {
		must(t, m.client.Del(t.Context(), fmt.Sprint("user_", i)).Err())
		_, err := m.db.ExecContext(t.Context(), "INSERT INTO tasks (type, subject, queue) VALUES ('refill', ?, 'refill')", i)
		must(t, err)
	}
	must(t, m.client.Del(t.Context(), "user_300").Err())
	must(t, m.client.ZRem(t.Context(), "user_308", "310").Err())
	code, out, errs := m.run(t, "verify")
	if code != exitWrong || strings.Count(out, "error: ") != 3 || strings.Contains(out, "lag: ") || !strings.Contains(errs, "2 sets or answers are wrong") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	for _, want := range []string{"error: lost set of user 300", "of user 308, contact 310", "150    lag"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if _, findings, _ := m.verifyJSON(t); len(findings) != 153 {
		t.Errorf("%d findings", len(findings))
	}
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
	c := m.spawn(t, "verify", "--rate=20", "--progress=100ms")
	eventually(t, "some are compared", func() bool { return strings.Contains(c.said(), "of 200 members") })
	c.signal(t, syscall.SIGINT)
	if code := c.wait(); code != exitFailed || !strings.Contains(c.said(), "go on with --after ") {
		t.Errorf("exit code %d: %s", code, c.said())
	}
}
