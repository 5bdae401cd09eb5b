package main

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/testing/site"
)

var (
	markedJSON   = regexp.MustCompile("(?s)```json (\\w+)\n(.*?)```")
	helloRequest = regexp.MustCompile(`-d '(\{"events":\[\{"id":"hello-1".*)'`)
	helloShown   = regexp.MustCompile("(?s)event hello-1\n.*?\n {2}created ") // the rest differs each time
)

// Devices of each platform get the payload that docs/push.md shows for its event; and the first event of the page is
// shown as there, among the members that the page makes.
func TestTheNotificationsOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/push.md")
	must(t, err)
	blocks := make(map[string]string)
	for _, block := range markedJSON.FindAllStringSubmatch(string(page), -1) {
		blocks[block[1]] = block[2]
	}
	p := startPushServices(t)
	r := startAllWith(t, p.trust, p.settings...)
	try, _ := story(t, "3-try.sql", regexp.MustCompile("INSERT INTO tasks"))
	execOn(t, r.db, statements(try))
	execOn(t, r.db, pageSQL(t, "docs/push.md")["members"])
	p.registerFor(t, r, 123)
	if status, text := r.request(t, http.MethodPost, "/v1/events", `{"events":[`+blocks["event"]+`]}`); status != 202 {
		t.Fatalf("%d %s", status, text)
	}
	r.awaitTasks(t)
	phones, browsers, androids := p.apns.Accepted(), p.web.Accepted(), p.fcm.Accepted()
	if len(phones) != 1 || len(browsers) != 1 || len(androids) != 1 {
		t.Fatalf("accepted are %d, %d and %d", len(phones), len(browsers), len(androids))
	}
	android, err := json.Marshal(androids[0].Message)
	must(t, err)
	for name, got := range map[string]map[string]any{
		"apns": object(t, phones[0].Payload), "webpush": object(t, browsers[0].Payload), "fcm": object(t, android),
	} {
		want := object(t, []byte(blocks[name]))
		switch name {
		case "webpush":
			want["expires"] = got["expires"]
		case "fcm": // the remaining platforms are named below the block
			delete(got, "token")
			got["android"] = map[string]any{"priority": androids[0].Android.Priority}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s gets (-the page +sent):\n%s", name, diff)
		}
	}

	hello := helloRequest.FindSubmatch(page)
	shown := helloShown.Find(page)
	if hello == nil || shown == nil {
		t.Fatal("the page sends no event hello-1, or does not show it")
	}
	if status, text := r.request(t, http.MethodPost, "/v1/events", string(hello[1])); status != 202 {
		t.Fatalf("%d %s", status, text)
	}
	r.awaitTasks(t)
	if out := succeed(t, "push", "show", "hello-1", "--mysql-dsn="+r.config.mysqlDSN); !strings.HasPrefix(out, string(shown)) {
		t.Errorf("push show has no such beginning:\n%s\nbut:\n%s", shown, out)
	}
}

// A follower sees an upload that is reported as in docs/setup.md, and the database has the answers to the questions of
// docs/operate.md.
func TestTheEventOfThePage(t *testing.T) {
	t.Parallel()
	p := startPushServices(t)
	r := startAllWith(t, p.trust, p.settings...)
	must(t, r.site.LoadMembers(t.Context(), []site.Member{{ID: 123, Username: "carol"}, {ID: 98765, Username: "ann"}}))
	_, err := r.db.ExecContext(t.Context(), "INSERT INTO contacts (user_id, contact_id) VALUES (123, 98765)")
	must(t, err)
	p.registerFor(t, r, 123)
	execOn(t, r.db, pageSQL(t, "docs/setup.md")["upload_event"])
	r.awaitTasks(t)
	phones := p.apns.Accepted()
	if len(phones) != 1 || len(p.web.Accepted()) != 1 || len(p.fcm.Accepted()) != 1 {
		t.Fatalf("accepted are %d, %d and %d", len(phones), len(p.web.Accepted()), len(p.fcm.Accepted()))
	}
	got := object(t, phones[0].Payload)
	if diff := cmp.Diff(map[string]any{"title": "ann", "body": "upload"}, got["aps"].(map[string]any)["alert"]); diff != "" {
		t.Errorf("it shows (-want +got):\n%s", diff)
	}

	page := pageSQL(t, "docs/operate.md")
	var found []int
	for _, statement := range page["why_nothing"] {
		found = append(found, countRows(t, r, statement))
	}
	if diff := cmp.Diff([]int{3, 0, 0, 3}, found); diff != "" {
		t.Errorf("about the member there are (-want +got):\n%s", diff)
	}
	_, err = r.db.ExecContext(t.Context(), "UPDATE push_devices SET gone_at = UNIX_TIMESTAMP() * 1000, gone_reason = 'Unregistered' WHERE platform = 'apns'")
	must(t, err)
	if n := countRows(t, r, pageSQL(t, "docs/operate.md")["gone_reasons"][0]); n != 1 {
		t.Errorf("devices are gone for %d reasons", n)
	}
}

func countRows(t *testing.T, r *running, statement string) (n int) {
	t.Helper()
	rows, err := r.db.QueryContext(t.Context(), statement)
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		n++
	}
	must(t, rows.Err())
	return n
}

func object(t *testing.T, text []byte) (o map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}
