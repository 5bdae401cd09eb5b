package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

const (
	mailSecret   = "act_mail"
	thumbsSecret = "act_thumbs"
)

// desk is a server that leases the tasks of a real database.
type desk struct {
	*bundle

	queue *queue.Queue
	exec  func(statement string)
}

func newDesk(t *testing.T, configure ...func(*api.Config)) desk {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	notifier := &notify.Notifier{}
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: notifier})
	b := setup(t, append([]func(*api.Config){func(c *api.Config) {
		c.Leaser, c.Notifier, c.OwnQueues = q, notifier, tasks.Kinds().Queues()
		c.RequestTimeout = time.Minute // of a busy machine
		c.Auth = auth.NewTokens([]auth.Token{
			{Name: "mailer", Scopes: auth.Work, Hash: auth.HashOf(mailSecret), Queues: []string{"mail", "default"}},
			{Name: "thumbs", Scopes: auth.Work, Hash: auth.HashOf(thumbsSecret), Queues: []string{"thumbs"}},
			{Name: "boss", Scopes: auth.Admin, Hash: auth.HashOf(adminSecret)},
		})
	}}, configure...)...)
	return desk{b, q, func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}}
}

// ask sends a body as the mailer.
func (d desk) ask(t testing.TB, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	return d.as(t, mailSecret, path, body)
}

func (d desk) as(t testing.TB, secret, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := newJSON(t.Context(), http.MethodPost, path, body)
	r.Header.Set("Authorization", "Bearer "+secret)
	return d.do(t, r)
}

type claimed struct {
	Token string `json:"lease_token"`
	Until int64  `json:"lease_until_ms"`
	Tasks []struct {
		ID, Type, Key string
		Args          json.RawMessage
		Attempt       int
		MaxAttempts   int   `json:"max_attempts"`
		Enqueued      int64 `json:"enqueued_ms"`
	}
}

func (d desk) claim(t testing.TB, body string) (c claimed) {
	t.Helper()
	w := d.ask(t, "/v1/queues/mail/claim", body)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", body, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// insert inserts as a site does.
func (d desk) insert(n int) {
	for i := range n {
		d.exec(fmt.Sprintf(`INSERT INTO tasks (queue, type, subject, args) VALUES ('mail', 'letter', %d, '{"n":%d}')`, 7+i, i+1))
	}
}

// open are the tasks that are not done, by state.
func (d desk) open(t testing.TB) (list []queue.Record) {
	t.Helper()
	list, err := d.queue.List(t.Context(), queue.Filter{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestWorkByHTTP(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.insert(4)
	before := time.Now().Add(-time.Hour).UnixMilli()
	c := d.claim(t, `{"max":3,"lease":"10m"}`)
	if len(c.Tasks) != 3 || !strings.HasPrefix(c.Token, "mailer/") || len(c.Token) < len("mailer/")+16 || c.Until < before+65*60_000 || c.Until > before+75*60_000 {
		t.Fatalf("claimed %+v", c)
	}
	if one := c.Tasks[0]; one.Type != "letter" || one.Key != "7" || string(one.Args) != `{"n": 1}` && string(one.Args) != `{"n":1}` || one.Attempt != 1 || one.MaxAttempts != 25 || one.Enqueued < before {
		t.Errorf("claimed %+v", one)
	}
	w := d.ask(t, "/v1/queues/mail/extend", fmt.Sprintf(`{"lease_token":%q,"lease":"1h"}`, c.Token))
	var extended struct {
		Until int64 `json:"lease_until_ms"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &extended); err != nil || w.Code != http.StatusOK || extended.Until < c.Until+40*60_000 {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
	finish := fmt.Sprintf(`{"lease_token":%q,"done":[%q],"failed":[{"id":%s,"error":"no post","retry_after":"2h"}]}`, c.Token, c.Tasks[0].ID, c.Tasks[1].ID)
	for range 2 { // a repetition says the same
		if w := d.ask(t, "/v1/queues/mail/finish", finish); w.Code != http.StatusOK || w.Body.String() != `{"open":1}` {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	last := fmt.Sprintf(`{"lease_token":%q,"failed":[{"id":%q,"error":"no such street","permanent":true}]}`, c.Token, c.Tasks[2].ID)
	if w := d.ask(t, "/v1/queues/mail/finish", last); w.Code != http.StatusOK || w.Body.String() != `{"open":0}` {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	wantProblem(t, d.ask(t, "/v1/queues/mail/finish", last), http.StatusConflict, "lease-lost")
	list := d.open(t)
	if len(list) != 3 || list[0].LastError != "no post" || list[0].Attempts != 1 || time.Until(list[0].RunAt) < time.Hour ||
		list[1].State != queue.Dead || list[1].LastError != "no such street" || list[2].State != queue.Waiting {
		t.Errorf("left %+v", list)
	}
	for range 2 {
		c := d.claim(t, `{}`)
		if len(c.Tasks) != 1 || c.Tasks[0].Attempt != 1 {
			t.Fatalf("claimed %+v", c)
		}
		back := fmt.Sprintf(`{"lease_token":%q,"released":[%q]}`, c.Token, c.Tasks[0].ID)
		if w := d.ask(t, "/v1/queues/mail/finish", back); w.Code != http.StatusOK || w.Body.String() != `{"open":0}` {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if c := d.claim(t, `{}`); len(c.Tasks) != 1 {
		t.Errorf("claimed %+v", c)
	}
	if w := d.ask(t, "/v1/queues/mail/claim", `{}`); w.Body.String() != `{"tasks":[]}` {
		t.Errorf("%s", w.Body)
	}
}

// A refusal names the fault, and changes nothing.
func TestBadRequestsOfWorkers(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.insert(2)
	d.exec("INSERT INTO tasks (type, subject) VALUES ('upload', 1)")
	c := d.claim(t, `{}`)
	before := fmt.Sprintf("%+v", d.open(t))
	for _, test := range []struct{ action, body, field string }{
		{"claim", `{"lease":"0s"}`, "lease"},
		{"claim", `{"lease":"24h"}`, "lease"},
		{"claim", `{"lease":60}`, "lease"},
		{"claim", `{"lease":"a minute"}`, "lease"},
		{"claim", `{"max":10000}`, "max"},
		{"claim", `{"max":0}`, "max"},
		{"claim", `{"max":"1"}`, "max"},
		{"claim", `{"wait":"1h"}`, "wait"},
		{"claim", `{"wait":"-1s"}`, "wait"},
		{"claim", `{"most":1}`, "most"},
		{"claim", `{"max":1,"max":2}`, "max"},
		{"claim", `[]`, "body"},
		{"extend", `{"lease":"1m"}`, "lease_token"},
		{"extend", `{"lease_token":"LEASE","lease":"0s"}`, "lease"},
		{"extend", `{"lease_token":"LEASE","lease":"25h"}`, "lease"},
		{"extend", `{"lease_token":5}`, "lease_token"},
		{"finish", `{"lease_token":"LEASE"}`, "body"},
		{"finish", `{"lease_token":"LEASE","done":[]}`, "body"},
		{"finish", `{"lease_token":"LEASE","done":["ID","x"]}`, "done[1]"},
		{"finish", `{"lease_token":"LEASE","done":["ID","ID"]}`, "done[1]"},
		{"finish", `{"lease_token":"LEASE","done":["ID"],"failed":[{"id":"ID","error":"x"}]}`, "failed[0].id"},
		{"finish", `{"lease_token":"LEASE","failed":[{"id":"ID"}]}`, "failed[0].error"},
		{"finish", `{"lease_token":"LEASE","failed":[{"error":"x"}]}`, "failed[0].id"},
		{"finish", `{"lease_token":"LEASE","failed":[{"id":"ID","error":""}]}`, "failed[0].error"},
		{"finish", `{"lease_token":"LEASE","failed":[{"id":"ID","error":"x","retry_after":"8h","permanent":true}]}`, "failed[0].retry_after"},
		{"finish", `{"lease_token":"LEASE","failed":[{"id":"ID","error":"x","retry_after":"169h"}]}`, "failed[0].retry_after"},
		{"finish", `{"lease_token":"LEASE","failed":[{"id":"ID","error":"x","args":{}}]}`, "failed[0].args"},
		{"finish", `{"lease_token":"LEASE","done":["ID"],"back":[]}`, "back"},
		{"finish", `{"lease_token":"LEASE","done":[` + strings.TrimSuffix(strings.Repeat(`"1",`, 10_000), ",") + `]}`, "done"},
	} {
		body := strings.NewReplacer("LEASE", c.Token, "ID", c.Tasks[0].ID).Replace(test.body)
		p := wantProblem(t, d.ask(t, "/v1/queues/mail/"+test.action, body), http.StatusBadRequest, "invalid-body")
		if p.Field != test.field || p.Detail == "" {
			t.Errorf("%s %.200s: field %q: %s; want %s", test.action, test.body, p.Field, p.Detail, test.field)
		}
	}
	for _, action := range []string{"claim", "finish", "extend"} {
		good := fmt.Sprintf(`{"lease_token":%q,"done":[%q]}`, c.Token, c.Tasks[0].ID)
		if action != "finish" {
			good = map[string]string{"claim": "{}", "extend": fmt.Sprintf(`{"lease_token":%q}`, c.Token)}[action]
		}
		for _, foreign := range []struct {
			secret, queue string
			status        int
			slug          string
		}{
			{thumbsSecret, "mail", http.StatusForbidden, "insufficient-scope"},
			{mailSecret, "thumbs", http.StatusForbidden, "insufficient-scope"},
			{mailSecret, "default", http.StatusForbidden, "insufficient-scope"}, // activityd's own, whatever the token says
			{mailSecret, "notify", http.StatusForbidden, "insufficient-scope"},
			{adminSecret, "mail", http.StatusForbidden, "insufficient-scope"},
			{"act_other", "mail", http.StatusUnauthorized, "unauthorized"},
			{mailSecret, "MAIL", http.StatusBadRequest, "invalid-parameter"},
			{mailSecret, "Default", http.StatusBadRequest, "invalid-parameter"},
			{mailSecret, strings.Repeat("m", 33), http.StatusBadRequest, "invalid-parameter"},
		} {
			wantProblem(t, d.as(t, foreign.secret, "/v1/queues/"+foreign.queue+"/"+action, good), foreign.status, foreign.slug)
		}
		wantProblem(t, d.ask(t, "/v1/queues/mail/"+action, "{"), http.StatusBadRequest, "malformed-body")
		wantProblem(t, d.ask(t, "/v1/queues/mail/"+action+"?a=b", good), http.StatusBadRequest, "invalid-parameter")
		large := `{"a":"` + strings.Repeat("a", api.DefaultMaxBody) + `"}`
		wantProblem(t, d.ask(t, "/v1/queues/mail/"+action, large), http.StatusRequestEntityTooLarge, "body-too-large")
	}
	lost := []string{`{"lease_token":"no-such-lease","done":["1"]}`, `{"lease_token":"no-such-lease"}`}
	wantProblem(t, d.ask(t, "/v1/queues/mail/finish", lost[0]), http.StatusConflict, "lease-lost")
	wantProblem(t, d.ask(t, "/v1/queues/mail/extend", lost[1]), http.StatusConflict, "lease-lost")
	// The token of another queue's worker, with a lease that it somehow knows.
	of := fmt.Sprintf(`{"lease_token":%q,"done":[%q]}`, c.Token, c.Tasks[0].ID)
	wantProblem(t, d.as(t, thumbsSecret, "/v1/queues/thumbs/finish", of), http.StatusConflict, "lease-lost")
	if after := fmt.Sprintf("%+v", d.open(t)); after != before {
		t.Errorf("changed\n%s\nto\n%s", before, after)
	}
	d.exec("UPDATE tasks SET run_at = 1 WHERE state = 'running'")
	wantProblem(t, d.ask(t, "/v1/queues/mail/finish", of), http.StatusConflict, "lease-lost")
	if list := d.open(t); len(list) != 3 || list[0].State != queue.Running {
		t.Errorf("a late finish left %+v", list)
	}
}

// fakeLeaser leases its tasks, and counts the claims.
type fakeLeaser struct {
	mu     sync.Mutex
	tasks  []queue.Task
	claims int
}

func (f *fakeLeaser) ClaimAs(ctx context.Context, _, _ string, n int, _ time.Duration) ([]queue.Task, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims++
	n = min(n, len(f.tasks))
	claimed := f.tasks[:n:n]
	f.tasks = f.tasks[n:]
	return claimed, ctx.Err()
}

func (f *fakeLeaser) FinishLease(context.Context, string, string, []queue.Result) (int, error) {
	return 0, nil
}

func (f *fakeLeaser) ExtendLease(context.Context, string, string, time.Duration) (time.Time, error) {
	return time.Time{}, nil
}

func (f *fakeLeaser) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.tasks = append(f.tasks, queue.Task{ID: 1, Kind: "letter", Lease: "a/b", Payload: json.RawMessage("{}")})
	}
}

func (f *fakeLeaser) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claims
}

// waitFor sends a claim that waits, and returns the answer when it is there.
func waitFor(t *testing.T, b *bundle, wait string) <-chan *httptest.ResponseRecorder {
	t.Helper()
	return waitWith(t.Context(), t, b, httptest.NewRecorder(), wait)
}

func waitWith(ctx context.Context, t *testing.T, b *bundle, w *httptest.ResponseRecorder, wait string) <-chan *httptest.ResponseRecorder {
	t.Helper()
	answer := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		r := newJSON(ctx, http.MethodPost, "/v1/queues/mail/claim", fmt.Sprintf(`{"wait":%q}`, wait))
		b.server.Handler().ServeHTTP(w, r)
		answer <- w
	}()
	return answer
}

func leasing(f *fakeLeaser, n *notify.Notifier) func(*api.Config) {
	return func(c *api.Config) { c.Leaser, c.Notifier, c.OwnQueues = f, n, []string{"default"} }
}

func answered(c <-chan *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	synctest.Wait()
	select {
	case w := <-c:
		return w
	default:
		return nil
	}
}

// However many claims wait, a single claim looks; a notification wakes it at once, and the next claim takes its turn.
func TestOneOfThoseThatWaitLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, n := &fakeLeaser{}, &notify.Notifier{}
		b := setup(t, leasing(f, n))
		var answers []<-chan *httptest.ResponseRecorder
		const many = 50
		for range many {
			answers = append(answers, waitFor(t, b, "30s"))
			synctest.Wait()
		}
		began := f.count()
		pass(10 * time.Second)
		if claims := f.count(); began != 1 || claims-began < 5 || claims-began > 20 {
			t.Errorf("%d claims at once, and %d in ten seconds", began, claims-began)
		}
		f.add(1)
		n.Notify("mail")
		if w := answered(answers[0]); w == nil || !strings.Contains(w.Body.String(), "letter") {
			t.Errorf("the first one was answered %v", w)
		}
		f.add(1)
		n.Notify("mail")
		if w := answered(answers[1]); w == nil || !strings.Contains(w.Body.String(), "letter") {
			t.Errorf("the second one was answered %v", w)
		}
		f.add(1) // without a notification: the poll finds it
		pass(2 * time.Second)
		if w := answered(answers[2]); w == nil || !strings.Contains(w.Body.String(), "letter") {
			t.Errorf("the third one was answered %v", w)
		}
		pass(20 * time.Second)
		for _, one := range answers[3:] {
			if w := answered(one); w == nil || w.Body.String() != `{"tasks":[]}` {
				t.Errorf("one of the others was answered %v", w)
			}
		}
	})
}

// pass lets time pass within a synctest bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the time of the bubble, without cost
	synctest.Wait()
}

// A worker that left claims nothing.
func TestOneThatLeftClaimsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, n := &fakeLeaser{}, &notify.Notifier{}
		b := setup(t, leasing(f, n))
		ctx, leave := context.WithCancel(t.Context())
		answer := waitWith(ctx, t, b, httptest.NewRecorder(), "30s")
		synctest.Wait()
		leave()
		if w := answered(answer); w == nil || w.Code != 499 {
			t.Errorf("answered %v", w)
		}
		before := f.count()
		f.add(1)
		n.Notify("mail")
		pass(5 * time.Second)
		if claims := f.count(); claims != before {
			t.Errorf("%d claims for nobody", claims-before)
		}
	})
}

// More claims than there may be are told to come later, and hold up no further claim.
func TestTooManyClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, n := &fakeLeaser{}, &notify.Notifier{}
		b := setup(t, leasing(f, n))
		for range 1000 {
			waitFor(t, b, "30s")
		}
		synctest.Wait()
		if n := b.server.Turns(); n != 1 {
			t.Errorf("the claims of a queue take %d turns", n)
		}
		w := b.send(t, http.MethodPost, "/v1/queues/mail/claim", `{"wait":"1s"}`)
		wantProblem(t, w, http.StatusServiceUnavailable, "busy")
		if w.Header().Get("Retry-After") == "" {
			t.Error("without Retry-After")
		}
		pass(31 * time.Second)
		if n := b.server.Turns(); n != 0 {
			t.Errorf("%d turns stay when no claim waits", n)
		}
		if w := b.send(t, http.MethodPost, "/v1/queues/mail/claim", `{}`); w.Code != http.StatusOK {
			t.Errorf("after them: %d %s", w.Code, w.Body)
		}
	})
}

// A server that stops answers claims that wait at once; over a connection, with longer waits than most requests may
// take to be read and written.
func TestClaimsOverConnections(t *testing.T) {
	t.Parallel()
	f, n := &fakeLeaser{}, &notify.Notifier{}
	b := setup(t, leasing(f, n), func(c *api.Config) { c.ReadTimeout, c.RequestTimeout = time.Second, time.Minute })
	if err := b.server.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.server.Serve() }()
	claim := func(wait string) (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.server.Addr().String()+"/v1/queues/mail/claim", strings.NewReader(`{"wait":"`+wait+`"}`))
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", "application/json")
		w, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer func() { _ = w.Body.Close() }()
		var body strings.Builder
		_, err = fmt.Fprint(&body, w.StatusCode, " ")
		if err == nil {
			err = w.Write(&body)
		}
		text := body.String()
		return text[strings.LastIndex(text, "\r\n\r\n")+4:], err
	}
	if body, err := claim("3s"); err != nil || body != `{"tasks":[]}` { // three times as long as a request may take to be read
		t.Errorf("%q, %v", body, err)
	}
	before := f.count()
	waits := make(chan string, 1)
	go func() {
		body, err := claim("30s")
		waits <- fmt.Sprint(body, err)
	}()
	servertest.Eventually(t, "a claim that waits", func() bool { return f.count() > before })
	began := time.Now()
	if err := b.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if body := <-waits; body != `{"tasks":[]}<nil>` {
		t.Errorf("%q", body)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it waited for %v", took)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Without a database nothing is leased; without tokens tasks of any queue but activityd's own are.
func TestLeasingWithoutTokens(t *testing.T) {
	t.Parallel()
	wantProblem(t, setup(t).send(t, http.MethodPost, "/v1/queues/mail/claim", "{}"), http.StatusNotFound, "not-found")
	b := setup(t, leasing(&fakeLeaser{}, nil), func(c *api.Config) { c.OwnQueues = append(c.OwnQueues, "Reports") })
	for _, own := range []string{"default", "reports"} { // MySQL finds the tasks of a queue in any case of letters
		wantProblem(t, b.send(t, http.MethodPost, "/v1/queues/"+own+"/claim", "{}"), http.StatusForbidden, "insufficient-scope")
	}
	if w := b.send(t, http.MethodPost, "/v1/queues/mail/claim", "{}"); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
