package browser

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/console"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// consoleTab is a browser at the console of a database, as narrow as a telephone.
type consoleTab struct {
	*browsertest.Tab

	db  *sql.DB
	url string
}

// strange is a script that a stranger would like a page to run.
const strange = `<script>alert(1)</script>"><img src=x onerror=alert(2)>`

// newConsole opens the console of a database with some tasks, names of once and an event.
func newConsole(t *testing.T, list ...auth.Token) consoleTab {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	o := console.Options{
		Kinds: tasks.Kinds().Names(),
		Queue: queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), Push: push.NewMySQL(db),
		Explain: func(_ context.Context, id member.ID) (recent.Explanation, error) {
			return recent.Explanation{
				Headline: id.String() + " sees 5 (" + strange + ")", Facts: [][2]string{{"proof", strange}},
				Head: []string{"CONTACT", "VERDICT", "GRANTS"}, Candidates: [][]string{{strange, "chosen", strange}},
			}, nil
		},
		Knows: func(host string) bool { return strings.HasPrefix(host, "127.0.0.1:") },
		Log:   slog.New(slog.DiscardHandler),
	}
	if list != nil {
		o.Tokens = auth.NewTokens(list)
	}
	server := httptest.NewServer(console.New(o))
	t.Cleanup(server.Close)
	for _, statement := range []string{
		"INSERT INTO tasks (id, type, subject, args) VALUES (1, 'upload', 7, '{}'), (2, 'upload', 8, '{}')",
		"INSERT INTO paused_queues (queue) VALUES ('<i>held</i>')",
		`INSERT INTO once_keys (name, phase, owner, attempt, max_attempts, fence, began, lease_ends, forget_at, reason)
			VALUES ('digest', 'exhausted', 'app1', 3, 3, 9, UNIX_TIMESTAMP() * 1000 - 5000, 0, UNIX_TIMESTAMP() * 1000 + 3600000, 'why')`,
		`INSERT INTO push_events (number, id, actor_id, event, created_at, expires_at, forget_at)
			VALUES (5, 'upload-901', 7, '{"id":"upload-901","type":"upload","recipients":"followers","object":"photo:901"}', 1700000000000, 99999999999999, 99999999999999)`,
		`INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES (3, 8, 'webpush', '', '{}', 1)`,
		"INSERT INTO push_receipts (event_number, member_id, device_id, state, reason, at) VALUES (5, 8, 3, 'failed', '<u>gone</u>', 1700000000000)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, parked := range []struct {
		id                     int
		state, kind, lastError string
	}{
		{11, "dead", "upload", "dial tcp 10.0.0.1:443: refused " + strange},
		{12, "dead", "upload", "dial tcp 10.0.0.1:443: refused " + strange},
		{13, "dead", "upload", "dial tcp 10.0.0.1:443: refused " + strange},
		{21, "dead", "<b>own</b>", "timeout"},
		{31, "scheduled", "deliver", "dial tcp 10.0.0.2:443: refused"},
	} {
		if _, err := db.ExecContext(t.Context(), "INSERT INTO tasks (id, state, queue, type, subject, args, priority, attempts, max_attempts, run_at, last_error, created_at)"+
			" VALUES (?, ?, 'default', ?, 7, '{}', 0, 3, 25, IF(? = 'dead', 1, 99999999999999), ?, 1700000000000)", parked.id, parked.state, parked.kind, parked.state, parked.lastError); err != nil {
			t.Fatal(err)
		}
	}
	b := consoleTab{browsertest.New(t), db, server.URL}
	b.Do(chromedp.EmulateViewport(375, 700))
	return b
}

// consoleToken returns a token and its secret.
func consoleToken(t *testing.T) (auth.Token, string) {
	t.Helper()
	made, secret, err := auth.Issue("ann", auth.Admin, auth.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	return made, secret
}

func (b consoleTab) open(path string) {
	b.Helper()
	b.Do(chromedp.Navigate(b.url + path))
}

func (b consoleTab) want(expression, want string) {
	b.Helper()
	if got := browsertest.Eval[string](b.Tab, "String("+expression+")"); got != want {
		b.Errorf("%s is %q, want %q", expression, got, want)
	}
}

var everyPage = []string{
	"/console/", "/console/tasks", "/console/tasks?error=nothing", "/console/tasks/12", "/console/event", "/console/event?id=upload-901",
	"/console/explain", "/console/explain?member=7", "/console/tasks?state=dead&type=upload", "/console/tasks/999",
}

// At the width of a telephone, light and dark, nothing is a barrier and nothing is cut off.
func TestTheConsole(t *testing.T) {
	t.Parallel()
	one, secret := consoleToken(t)
	for _, list := range [][]auth.Token{nil, {one}} {
		b := newConsole(t, list...)
		look := func(path string) {
			b.Helper()
			b.open(path)
			looksRight(b.Tab)
			b.want(`document.querySelectorAll("script, img, iframe, object").length`, "0")
			b.want(`[...document.querySelectorAll("main *")].filter((e) => e.checkVisibility() && !e.closest("thead") && (e.getBoundingClientRect().right > 375 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")).map((e) => e.outerHTML).join()`, "")
			b.want(`document.querySelectorAll("h1").length + document.title.replace(/.* – /, "")`, "1activityd")
		}
		if list != nil {
			look("/console/event")
			b.want(`document.querySelector("h1").textContent`, "Sign in")
			b.Do(chromedp.SendKeys(chromedp.CSS("[name=token]"), secret))
			b.Click("main button")
			until(b.Tab, `document.querySelector("h1")?.textContent`, "Event")
		}
		for _, path := range everyPage {
			look(path)
		}
		b.open("/console/event")
		browsertest.Eval[bool](b.Tab, `document.querySelector("h1").style.cssText = "color: #bbb; background: #fff"; true`)
		if found := b.Axe(); !strings.Contains(found, "color-contrast: ") {
			t.Errorf("axe-core does not find what is there:\n%s", found)
		}
	}
}

// All can be read and done without a script.
func TestTheConsoleWithoutAScript(t *testing.T) {
	t.Parallel()
	one, secret := consoleToken(t)
	b := newConsole(t, one)
	if _, err := chromedp.Call(b.Ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	says := func(text string) {
		b.Helper()
		until(b.Tab, fmt.Sprintf("document.body?.innerText.includes(%q)", text), "true")
	}
	// A new page may replace the nodes that a query has just found.
	click := func(selector string) {
		b.Helper()
		servertest.EventuallyWithin(b, browsertest.Patience, "a click on "+selector, func() bool {
			_, err := chromedp.Run(b.Ctx, chromedp.Click(chromedp.CSS(selector)))
			return err == nil
		})
	}
	b.open("/console/")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=token]"), secret))
	click("main button")
	says("Failures")
	click(`button[value=resume]`)
	until(b.Tab, `document.querySelectorAll("button[value=resume]").length`, "0")
	click(`a[href*="state=dead"][href*="type=upload"]`)
	says("Retry all that match")
	click("button[value=retry]")
	says("3 tasks were retried.")
	var parked int
	if err := b.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks WHERE state IN ('scheduled', 'dead')").Scan(&parked); err != nil || parked != 2 {
		t.Errorf("%d tasks are parked, %v", parked, err)
	}
	click(`nav a[href="/console/tasks"]`)
	says("Error contains")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=error]"), "timeout"))
	click("form[role=search] button")
	until(b.Tab, `document.querySelectorAll("tbody tr").length`, "1")
	says("<b>own</b>")
	click(`header form button`)
	says("Sign in")
}
