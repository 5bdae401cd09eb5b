package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/auth"
)

// fill makes some tasks and an event, with texts of strangers.
func (r *rig) fill() {
	r.Helper()
	r.exec("INSERT INTO tasks (id, type, subject, args) VALUES (1, 'upload', 7, ?), (2, 'upload', 8, '{}')", `{"x":"</pre>`+strings.ReplaceAll(evil, `"`, `\"`)+`"}`)
	r.park("dead", "upload", "dial tcp 10.0.0.1:443: refused "+evil, 11, 3)
	r.park("dead", "<b>own</b>", "timeout", 21, 1)
	r.park("scheduled", "deliver", "dial tcp 10.0.0.2:443: refused", 31, 1)
	r.exec("INSERT INTO paused_queues (queue) VALUES (?)", "<i>held</i>")
	r.exec(`INSERT INTO push_events (number, id, actor_id, event, created_at, expires_at, forget_at)
		VALUES (5, 'upload-901', 7, '{"id":"upload-901","type":"upload","recipients":"followers","object":"photo:901","title":"<script>alert(3)</script>"}', 1700000000000, 99999999999999, 99999999999999)`)
	r.exec(`INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES (3, 8, 'webpush', '', '{"endpoint":"https://push.example/s3cret","auth":"s3cret"}', 1)`)
	r.exec("INSERT INTO push_receipts (event_number, member_id, device_id, state, reason, at) VALUES (5, 8, 3, 'failed', '<u>gone</u>', 1700000000000)")
}

var foreign = regexp.MustCompile(`(?i)<[^>]*\s(on[a-z]+|style)=|<[^>]*\s(src|href|action)="(https?:)?//|<style`)

// A page refuses unknown fields: a filter that is misspelt would match more.
func TestFieldsThatArePossible(t *testing.T) {
	t.Parallel()
	b := newRig(t).browser()
	for path, want := range map[string]string{
		"/console/tasks?page=0":                                  "page: want 1 to 20",
		"/console/tasks?state=foo":                               "state: want one of",
		"/console/tasks?member=7":                                "there is no field",
		"POST /console/act?do=burn&type=a":                       "want do=retry",
		"POST /console/act?do=retry&member=7":                    "there is no field",
		"POST /console/act?do=retry":                             "say which tasks",
		"POST /console/act?do=retry&state=dead":                  "say which tasks",
		"POST /console/act?do=retry&type=a":                      "want the state of the tasks, one of [dead scheduled]",
		"POST /console/act?do=discard&type=upload&state=running": "want the state of the tasks",
		"POST /console/act?do=retry&type=upload&state=waiting":   "want the state of the tasks",
		"POST /console/act?do=discard&type=upload&state=dead":    "tick the box",
	} {
		method := http.MethodGet
		if post, ok := strings.CutPrefix(path, "POST "); ok {
			method, path = http.MethodPost, post
		}
		response, text := b.send(method, path, nil)
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %q in\n%s", path, response.Status, want, text)
		}
	}
}

// Every page shows its facts, as text.
func TestThePages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill()
	b := r.browser()
	for path, want := range map[string][]string{
		"/console/": {
			`<a href="/console/tasks?queue=default">default</a>`, "&lt;i&gt;held&lt;/i&gt;", "paused", "dial tcp 10.0.0.1:443: refused &lt;script&gt;", "&lt;b&gt;own&lt;/b&gt;",
			`state=dead&amp;type=upload">3 dead</a>`, `<a href="/console/tasks/13">13</a>`, "scheduled", "oldest waiting",
		},
		"/console/tasks": {"/console/tasks/1\"", "/console/tasks/31\"", "&lt;/pre&gt;&lt;script&gt;"},
		"/console/tasks?state=dead&error=%25.0.0._:": {"/console/tasks/11\"", "/console/tasks/13\"", "Retry all that match"},
		"/console/tasks?type=upload&key=7":           {"/console/tasks/1\""},
		"/console/tasks?error=nothing":               {"No such task was found"},
		"/console/tasks/1":                           {"waiting", "attempts", "&lt;/pre&gt;&lt;script&gt;", ">Discard<", "/console/explain?member=7"},
		"/console/tasks/12":                          {"dead", "3 of 25", "Last error", "refused &lt;script&gt;", ">Retry<", "2023-11-14"},
		"/console/tasks/31":                          {"may start", "/console/event?id=31"},
		"/console/event":                             {"Event, or the id of a task"},
		"/console/event?id=upload-901":               {"upload-901", "1 failed (&lt;u&gt;gone&lt;/u&gt;)", "webpush", "title"},
		"/console/explain?member=7":                  {"7 sees 5 (&lt;script&gt;", "chosen"},
	} {
		text := b.page(path)
		for _, one := range want {
			if !strings.Contains(text, one) {
				t.Errorf("%s: no %q in\n%s", path, one, text)
			}
		}
		if strings.Contains(text, "<script>") || strings.Contains(text, "<b>own") || strings.Contains(text, "<u>gone") || strings.Contains(text, "<img") || foreign.MatchString(text) {
			t.Errorf("%s: what strangers wrote is part of\n%s", path, text)
		}
		if strings.Contains(text, "s3cret") {
			t.Errorf("%s: a secret is in\n%s", path, text)
		}
	}
	for path, want := range map[string]int{
		"/console/tasks/999": 404, "/console/tasks/x": 400, "/console/event?id=other": 404, "/console/event?id=1": 404,
		"/console/event?id=a&member=x": 400, "/console/explain?member=404": 404, "/console/act": 405, "/console/other": 404,
	} {
		if response, text := b.send(http.MethodGet, path, nil); response.StatusCode != want {
			t.Errorf("%s: %s, want %d\n%s", path, response.Status, want, text)
		}
	}
	if n := r.parked(); n != 5 {
		t.Errorf("after the looks there are %d parked tasks", n)
	}
}

// Kinds of the site's own have their names, and the page loads itself again where that is asked for.
func TestTheQueuesHaveTypes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec("INSERT INTO tasks (type, queue, subject) VALUES ('letter', 'mail', 1), ('letter', 'mail', 2), ('invoice', 'mail', 3)")
	text := r.browser().page("/console/?refresh=5")
	for _, want := range []string{
		`type=letter">letter</a></td><td data-of="waiting" class="">2</td>`, `type=invoice">invoice</a></td><td data-of="waiting" class="">1</td>`,
		`http-equiv="refresh" content="5"`,
	} {
		if !strings.Contains(text, want) || strings.Contains(text, ">other<") {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Tasks come by pages, the newest first.
func TestPagesOfTasks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park("dead", "upload", "boom", 1, 120)
	b := r.browser()
	path, want := "/console/tasks?type=upload", 120
	for {
		text := b.page(path)
		rows := regexp.MustCompile(`href="/console/tasks/(\d+)"`).FindAllStringSubmatch(text, -1)
		for _, row := range rows {
			if row[1] != strconv.Itoa(want) {
				t.Fatalf("%s: %s, want %d", path, row[1], want)
			}
			want--
		}
		older := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(text)
		if older == nil {
			break
		}
		path = strings.ReplaceAll(older[1], "&amp;", "&")
	}
	if want != 0 || !strings.Contains(b.page(path), `page=2&amp;type=upload" rel="prev"`) {
		t.Errorf("%d were not shown; the last page is %s", want, path)
	}
}

// A queue is paused and resumed, and the log names the token.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	one, secret := token(t, "ann", auth.Admin)
	r := newRig(t, one)
	r.exec("INSERT INTO tasks (type, queue, subject) VALUES ('letter', 'mail', 1)")
	b := r.browser()
	b.signIn(secret)
	for _, do := range []string{"pause", "resume"} {
		if text := b.page("/console/"); !strings.Contains(text, `value="mail"><button class="plain" name="do" value="`+do+`">`) {
			t.Errorf("no button in\n%s", text)
		}
		form := url.Values{"queue": {"mail"}, "do": {do}}
		if response, _ := b.send(http.MethodPost, "/console/queue", form, "Sec-Fetch-Site", "same-origin"); response.StatusCode != http.StatusSeeOther || response.Header.Get("Location") != "/console/" {
			t.Errorf("%s: %s", do, response.Status)
		}
		if n := r.count("paused_queues WHERE queue = 'mail'"); (n == 1) != (do == "pause") || !strings.Contains(r.log.String(), "by=ann do="+do+" queue=mail") {
			t.Errorf("after %s: %d are paused; logged %s", do, n, r.log)
		}
	}
	if response, _ := b.send(http.MethodPost, "/console/queue", url.Values{"queue": {"mail"}, "do": {"burn"}}); response.StatusCode != http.StatusBadRequest {
		t.Errorf("another deed: %s", response.Status)
	}
}

// Only the files of the page may be used by it, whatever is on it, and no cache keeps it.
func TestTheHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.browser()
	for _, path := range []string{"/console/", "/console/style.css", "/console/none"} {
		response, _ := b.send(http.MethodGet, path, nil)
		policy := response.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") ||
			response.Header.Get("X-Content-Type-Options") != "nosniff" || response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, response.Header)
		}
	}
}

// Where MySQL does not answer, the page says so in time, and asks again for the next page.
func TestASlowMySQL(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill()
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES tasks WRITE"); err != nil {
		t.Fatal(err)
	}
	b := r.browser()
	for _, path := range []string{"/console/tasks", "/console/"} {
		if response, text := b.send(http.MethodGet, path, nil); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "takes too long") {
			t.Errorf("%s: %s\n%s", path, response.Status, text)
		}
	}
	if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	b.page("/console/tasks")
}

// A page is shown while foreign transactions have locked all its rows.
func TestAPageWaitsForNoLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill()
	tx, err := r.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, table := range []string{"tasks", "push_events"} {
		if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM "+table+" FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
	}
	b := r.browser()
	for _, path := range []string{"/console/", "/console/tasks", "/console/tasks/1", "/console/event?id=upload-901", "/console/tasks?type=upload&state=dead"} {
		b.page(path)
	}
}

// A change tells its numbers, and the log the caller.
func TestRetryAndDiscard(t *testing.T) {
	t.Parallel()
	one, secret := token(t, "ann", auth.Admin)
	r := newRig(t, one)
	r.fill()
	r.park("dead", "upload", "dial tcp 10.9.9.9:1: refused "+evil, 100, 600) // more than a batch
	b := r.browser()
	b.signIn(secret)
	link := regexp.MustCompile(`href="(/console/tasks\?[^"]*type=upload)">603 dead`).FindStringSubmatch(b.page("/console/"))
	if link == nil {
		t.Fatal("no link to the failures")
	}
	act := func(path, do, want string) {
		t.Helper()
		response, text := b.send(http.MethodPost, "/console/act", deed(b.page(path), do), "Sec-Fetch-Site", "same-origin")
		if response.StatusCode != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %q in\n%s", path, response.Status, want, text)
		}
	}
	act(html.UnescapeString(link[1]), "retry", "603 tasks were retried.")
	if n := r.count("tasks WHERE attempts = 0 AND run_at > 0"); n != 603 {
		t.Errorf("%d wait again", n)
	}
	act("/console/tasks?state=dead&error=timeout", "discard", "1 tasks were discarded.")
	act("/console/tasks/31", "discard", "1 tasks were discarded.")
	if n := r.parked(); n != 0 {
		t.Errorf("%d are parked", n)
	}
	if log := r.log.String(); strings.Count(log, `msg="tasks were changed by hand" by=ann`) != 3 || !strings.Contains(log, "do=retry tasks=603") || strings.Contains(log, secret) {
		t.Errorf("logged %s", log)
	}
}
