package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/testing/site"
)

// The tasks of a site's own queue change no set, however long they wait. In any queue a task of activityd's kinds does.
func TestOwnQueuesKeepNoAnswerBehind(t *testing.T) {
	t.Parallel()
	r := startAll(t, "--role=api", "--metrics-listen=127.0.0.1:0")
	workers := start(t, configFor(t, r.config.mysqlDSN, r.config.redisURL, "--role=workers"))
	r.makeSite(t, 1)
	must(t, r.site.SetContact(t.Context(), 1, 101, site.Grant{}))
	r.awaitTasks(t)
	r.awaitIndexed(t, 1, 1, "101")
	must(t, workers.stop())

	insert := func(queue, kind string) {
		_, err := r.db.ExecContext(t.Context(), "INSERT INTO tasks (queue, type, subject, created_at) VALUES (?, ?, 101, (UNIX_TIMESTAMP() - 3600) * 1000)", queue, kind)
		must(t, err)
	}
	shows := func(path string) string {
		var status int
		body := r.get(t, path, &status)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, body)
		}
		return body
	}
	const read = "/v1/users/1/recent-contact-photos"
	insert("mail", "letter")
	insert("default", "letter")
	insert("push", "deliver")
	insert("refill", "refill") // /readyz shows it once all tasks were seen
	eventually(t, "the tasks were seen", func() bool { return strings.Contains(shows("/readyz"), `"refill":36`) })
	if body := shows("/readyz"); strings.Contains(body, "mail") || strings.Contains(body, "push") || !strings.Contains(body, `"default":0`) {
		t.Errorf("readyz: %s", body)
	}
	_, err := r.db.ExecContext(t.Context(), "DELETE FROM tasks WHERE type = 'refill'")
	must(t, err)
	eventually(t, "nothing is behind", func() bool { return strings.Contains(shows(read), `"behind_seconds":0`) })
	if body := shows(read + "?explain=1"); !strings.Contains(body, `"behind_seconds":0`) {
		t.Errorf("explain=1: %s", body)
	}
	if _, out, errs := command(t, nil, "explain", "1", "-o", "json", "--mysql-dsn="+r.config.mysqlDSN, "--redis-url="+r.config.redisURL); !strings.Contains(out, `"behind_seconds":0`) {
		t.Errorf("explain: %s%s", out, errs)
	}
	if _, body := page(t, r.metrics+"/metrics"); !strings.Contains(body, "\nactivityd_behind_seconds 0\n") {
		t.Error("the metric is not 0")
	}

	insert("mail", "upload")
	eventually(t, "an upload in the same queue counts", func() bool { return strings.Contains(shows(read), `"behind_seconds":36`) })
	if body := shows("/readyz"); !strings.Contains(body, `"mail":36`) {
		t.Errorf("readyz: %s", body)
	}
}
