package console_test

import (
	"context"
	"database/sql"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/console"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// evil is a text that a stranger would like a page to run.
const evil = `<script>alert(1)</script>"><img src=x onerror=alert(2)>`

// rig is a page over a database.
type rig struct {
	*testing.T

	db     *sql.DB
	url    string
	tokens *auth.Tokens // nil: none
	log    *logtest.Log
}

func newRig(t *testing.T, list ...auth.Token) *rig {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r := &rig{T: t, db: db, log: &logtest.Log{}}
	if list != nil {
		r.tokens = auth.NewTokens(list)
	}
	server := httptest.NewServer(console.New(console.Options{
		Kinds: tasks.Kinds().Names(), Tokens: r.tokens,
		Queue: queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), Push: push.NewMySQL(db),
		Explain: func(_ context.Context, id member.ID) (recent.Explanation, error) {
			if id == 404 {
				return recent.Explanation{}, contacts.ErrNoMember
			}
			return recent.Explanation{
				Headline: id.String() + " sees 5 (" + evil + ")", Facts: [][2]string{{"proof", evil}},
				Head: []string{"CONTACT", "VERDICT", "GRANTS"}, Candidates: [][]string{{evil, "chosen", evil}},
			}, nil
		},
		Knows: func(host string) bool { return strings.HasPrefix(host, "127.0.0.1:") },
		Log:   r.log.Logger(),
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *rig) exec(statement string, args ...any) {
	r.Helper()
	if _, err := r.db.ExecContext(r.Context(), statement, args...); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) count(where string) (n int) {
	r.Helper()
	if err := r.db.QueryRowContext(r.Context(), "SELECT COUNT(*) FROM "+where).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n
}

// parked counts the tasks that do not wait.
func (r *rig) parked() int { r.Helper(); return r.count("tasks WHERE state <> 'waiting'") }

// park parks tasks with the ids from first on.
func (r *rig) park(state, kind, lastError string, first, number int) {
	r.Helper()
	for i := range number {
		r.exec("INSERT INTO tasks (id, state, queue, type, subject, args, priority, attempts, max_attempts, run_at, last_error, created_at)"+
			" VALUES (?, ?, 'default', ?, ?, '{}', 0, 3, 25, IF(? = 'dead', 1, 99999999999999), ?, 1700000000000)", first+i, state, kind, first+i, state, lastError)
	}
}

// token returns a token and its secret.
func token(t *testing.T, name string, scopes auth.Scope) (auth.Token, string) {
	t.Helper()
	one, secret, err := auth.Issue(name, scopes, auth.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	return one, secret
}

// browser is a client that keeps cookies and does not follow redirects.
type browser struct {
	*rig

	client *http.Client
}

func (r *rig) browser() *browser {
	r.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.Fatal(err)
	}
	return &browser{r, &http.Client{
		Jar: jar, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// send sends a request, with headers in pairs.
func (b *browser) send(method, path string, form url.Values, header ...string) (*http.Response, string) {
	b.Helper()
	body := io.Reader(http.NoBody)
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	request, err := http.NewRequestWithContext(b.Context(), method, b.url+path, body)
	if err != nil {
		b.Fatal(err)
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			request.Host = header[i+1]
		}
		request.Header.Set(header[i], header[i+1])
	}
	response, err := b.client.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	return response, string(text)
}

// page returns a page that must be there.
func (b *browser) page(path string) string {
	b.Helper()
	response, text := b.send(http.MethodGet, path, nil)
	if response.StatusCode != http.StatusOK {
		b.Fatalf("%s: %s\n%s", path, response.Status, text)
	}
	return text
}

var hidden = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// fields returns the hidden fields of the last form of a page.
func fields(page string) url.Values {
	v := url.Values{}
	at := strings.LastIndex(page, "<form")
	for _, m := range hidden.FindAllStringSubmatch(page[max(at, 0):], -1) {
		v.Set(m[1], html.UnescapeString(m[2]))
	}
	return v
}

// deed returns the form of a page that changes tasks, as its button sends it.
func deed(page, do string) url.Values {
	form := fields(page)
	form.Set("do", do)
	if do == "discard" {
		form.Set("sure", "on")
	}
	return form
}

// signIn signs in with a secret.
func (b *browser) signIn(secret string) *http.Response {
	b.Helper()
	_, text := b.send(http.MethodGet, "/console/", nil)
	form := fields(text)
	form.Set("token", secret)
	response, _ := b.send(http.MethodPost, "/console/signin", form, "Sec-Fetch-Site", "same-origin")
	return response
}
