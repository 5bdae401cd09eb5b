package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

// The secrets of the tokens of [guard].
const (
	readSecret    = "act_READ"
	writeSecret   = "act_WRITE"
	adminSecret   = "act_ADMIN"
	workSecret    = "act_WORK" // of the queue mail
	inspectSecret = "act_INSPECT"
	limitedSecret = "act_LIMITED" // reads and writes, two requests an hour
)

// guarded is a server with tokens.
type guarded struct {
	*bundle
	tokens *auth.Tokens
	asked  []contacts.Viewer // of the reader
}

func guard(t testing.TB, configure ...func(*api.Config)) *guarded {
	t.Helper()
	g := &guarded{tokens: auth.NewTokens([]auth.Token{
		{Name: "reader", Scopes: auth.Read, Hash: auth.HashOf(readSecret)},
		{Name: "writer", Scopes: auth.Write, Hash: auth.HashOf(writeSecret)},
		{Name: "inspector", Scopes: auth.Inspect, Hash: auth.HashOf(inspectSecret)},
		{Name: "boss", Scopes: auth.Admin, Hash: auth.HashOf(adminSecret)},
		{Name: "worker", Scopes: auth.Work, Hash: auth.HashOf(workSecret), Queues: []string{"mail"}},
		{
			Name: "limited", Scopes: auth.Read | auth.Write, Hash: auth.HashOf(limitedSecret),
			Limit: auth.Limit{PerSecond: 2.0 / 3600, Burst: 2},
		},
	})}
	g.bundle = setup(t, append(configure, func(c *api.Config) {
		c.Auth, c.MaxBatch, c.MaxBody = g.tokens, 4, 1<<10
		c.Viewers = auth.NewViewers([]auth.ViewerKey{viewerKey}, auth.ViewerOptions{})
	})...)
	g.reader.read = func(_ context.Context, v contacts.Viewer, _ int) (recent.Answer, error) {
		g.asked = append(g.asked, v)
		return recent.Answer{Source: recent.FromIndex}, nil
	}
	return g
}

// as sends a request with the values of the Authorization header.
func (g *guarded) as(t testing.TB, r *http.Request, authorization ...string) *httptest.ResponseRecorder {
	t.Helper()
	r.Header["Authorization"] = authorization
	return g.do(t, r)
}

func newRead(t testing.TB) *http.Request {
	t.Helper()
	return newRequest(t.Context(), http.MethodGet, readPath, http.NoBody)
}

func newUpload(t testing.TB) *http.Request {
	t.Helper()
	return postTasks(t.Context(), strings.NewReader(`{"type":"upload","user_id":"1"}`))
}

// nothingDone fails the test when a refused request was worked on.
func (g *guarded) nothingDone(t testing.TB) {
	t.Helper()
	if len(g.asked) > 0 || len(g.enqueuer.calls()) > 0 {
		t.Errorf("asked for %v, enqueued %v", g.asked, g.enqueuer.calls())
	}
}

func TestEveryScopeOpensItsRoutes(t *testing.T) {
	t.Parallel()
	g := guard(t)
	for _, test := range []struct {
		secret       string
		reads, posts int
	}{{readSecret, 200, 403}, {writeSecret, 403, 202}, {adminSecret, 200, 202}} {
		if w := g.as(t, newRead(t), "Bearer "+test.secret); w.Code != test.reads {
			t.Errorf("read: %d %s, want %d", w.Code, w.Body, test.reads)
		}
		if w := g.as(t, newUpload(t), "bearer  "+test.secret); w.Code != test.posts {
			t.Errorf("write: %d %s, want %d", w.Code, w.Body, test.posts)
		}
	}
}

// Whatever is not one header with the secret of a token lets nobody in. A stranger's body is not read, and no secret is logged.
func TestWithoutAKnownToken(t *testing.T) {
	t.Parallel()
	g := guard(t)
	const plain, invalid = `Bearer realm="activityd"`, `Bearer realm="activityd", error="invalid_token"`
	for _, test := range []struct {
		header    []string
		challenge string
	}{
		{nil, plain},
		{[]string{"Bearer  "}, plain},
		{[]string{adminSecret}, plain},
		{[]string{"Basic " + adminSecret}, plain},
		{[]string{"Bearer\t" + adminSecret}, plain},
		{[]string{"Bearer " + adminSecret, "Bearer " + adminSecret}, plain},
		{[]string{"Bearer " + adminSecret + "x"}, invalid},
		{[]string{"Bearer " + adminSecret + ", Bearer " + adminSecret}, invalid},
	} {
		unread := &countedBody{}
		for _, r := range []*http.Request{newRead(t), postTasks(t.Context(), unread)} {
			w := g.as(t, r, test.header...)
			wantProblem(t, w, http.StatusUnauthorized, "unauthorized")
			if got := w.Header().Get("WWW-Authenticate"); got != test.challenge {
				t.Errorf("%q: WWW-Authenticate: %s, want %s", test.header, got, test.challenge)
			}
			if line := g.log.last(t); line["level"] != "DEBUG" || line["caller"] != nil {
				t.Errorf("%q: logged %v", test.header, line)
			}
		}
		if unread.reads > 0 {
			t.Errorf("%q: the body was read %d times", test.header, unread.reads)
		}
	}
	g.nothingDone(t)
	if strings.Contains(g.log.String(), adminSecret) {
		t.Errorf("the log shows a secret:\n%s", g.log)
	}
}

// A stranger learns of no fault but the token.
func TestTheTokenComesFirst(t *testing.T) {
	t.Parallel()
	g := guard(t)
	unread := &countedBody{}
	r := postTasks(t.Context(), unread)
	r.URL.RawQuery, r.Header["Content-Type"] = "unknown=1", []string{"text/plain"}
	wantProblem(t, g.as(t, r, "Bearer x"), http.StatusUnauthorized, "unauthorized")
	bad := newRequest(t.Context(), http.MethodGet, "/v1/users/x/recent-contact-photos?limit=0", http.NoBody)
	wantProblem(t, g.as(t, bad), http.StatusUnauthorized, "unauthorized")
	if unread.reads > 0 {
		t.Errorf("the body was read %d times", unread.reads)
	}
}

func TestWrongScope(t *testing.T) {
	t.Parallel()
	g := guard(t)
	w := g.as(t, newUpload(t), "Bearer "+readSecret)
	p := wantProblem(t, w, http.StatusForbidden, "insufficient-scope")
	if !strings.Contains(p.Detail, "needs write") {
		t.Errorf("detail: %s", p.Detail)
	}
	if got, want := w.Header().Get("WWW-Authenticate"), `Bearer realm="activityd", error="insufficient_scope", scope="write"`; got != want {
		t.Errorf("WWW-Authenticate: %s, want %s", got, want)
	}
	g.nothingDone(t)
	if line := g.log.last(t); line["caller"] != "reader" {
		t.Errorf("logged %v", line)
	}
}

// A batch is a single request: its size has limits of its own.
func TestLimitOfAToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := guard(t)
		body := `{"tasks":[{"type":"upload","user_id":"1"},{"type":"upload","user_id":"2"},{"type":"upload","user_id":"3"}]}`
		if w := g.as(t, postTasks(t.Context(), strings.NewReader(body)), "Bearer "+limitedSecret); w.Code != http.StatusAccepted {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w := g.as(t, newRead(t), "Bearer "+limitedSecret); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		for _, r := range []*http.Request{newRead(t), newUpload(t)} {
			w := g.as(t, r, "Bearer "+limitedSecret)
			wantProblem(t, w, http.StatusTooManyRequests, "rate-limited")
			if got := w.Header().Get("Retry-After"); got != "1800" {
				t.Errorf("Retry-After: %s, want half an hour", got)
			}
		}
		if line := g.log.last(t); line["caller"] != "limited" || line["level"] != "DEBUG" {
			t.Errorf("logged %v", line)
		}
		if got := len(g.enqueuer.calls()); got != 1 {
			t.Errorf("%d batches were enqueued", got)
		}
		if w := g.as(t, newRead(t), "Bearer "+readSecret); w.Code != http.StatusOK {
			t.Errorf("another's limit: %d", w.Code)
		}
		<-time.After(30 * time.Minute)
		if w := g.as(t, newRead(t), "Bearer "+limitedSecret); w.Code != http.StatusOK {
			t.Errorf("half an hour later: %d", w.Code)
		}
	})
}

// The document says of each route whether it is open and its scope.
func TestEveryRouteWantsWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	g := guard(t)
	for path, item := range theContract(t).doc.Paths.Map() {
		for method, operation := range item.Operations() {
			request := func() *http.Request {
				return newRequest(t.Context(), method, strings.NewReplacer("{id}", "1", "{queue}", "mail").Replace(path), http.NoBody)
			}
			without := g.as(t, request())
			if operation.Security == nil {
				if preflight := method == http.MethodOptions; !preflight && (without.Code != http.StatusOK || strings.HasPrefix(path, "/v1/")) || preflight && without.Code != http.StatusNoContent {
					t.Errorf("%s %s is open by the document: %d", method, path, without.Code)
				}
				continue
			}
			if without.Code != http.StatusUnauthorized {
				t.Errorf("%s %s without a token: %d", method, path, without.Code)
			}
			if (*operation.Security)[0]["viewer"] != nil {
				g.wantForViewers(t, operation, request)
				continue
			}
			need, _ := operation.Extensions["x-scope"].(string)
			for scope, secret := range map[string]string{"read": readSecret, "write": writeSecret, "admin": adminSecret, "work": workSecret, "inspect": inspectSecret} {
				allowed := scope == need || scope == "admin" && need != "work"
				if w := g.as(t, request(), "Bearer "+secret); (w.Code != http.StatusForbidden) != allowed {
					t.Errorf("%s %s with the scope %s: %d, want allowed = %t", method, path, scope, w.Code, allowed)
				}
			}
			for _, status := range []int{401, 403, 429} {
				if operation.Responses.Status(status) == nil {
					t.Errorf("%s %s: %d is not documented", method, path, status)
				}
			}
		}
	}
}

// wantForViewers fails the test unless a request is for viewers and for no client.
func (g *guarded) wantForViewers(t *testing.T, operation *openapi3.Operation, request func() *http.Request) {
	t.Helper()
	for _, secret := range []string{readSecret, writeSecret, adminSecret} {
		if w := g.as(t, request(), "Bearer "+secret); w.Code != http.StatusUnauthorized {
			t.Errorf("%s with the token of a client: %d", operation.OperationID, w.Code)
		}
	}
	if w := g.as(t, request(), "Bearer "+tokenOf(t, 1)); w.Code == http.StatusUnauthorized || w.Code >= http.StatusInternalServerError {
		t.Errorf("%s with that of a viewer: %d", operation.OperationID, w.Code)
	}
	for _, status := range []int{401, 404, 429} {
		if operation.Responses.Status(status) == nil {
			t.Errorf("%s: %d is not documented", operation.OperationID, status)
		}
	}
}

// The metric counts the name of each request, or why it was refused; of a
// stranger nothing that the stranger chose, and of no open route.
func TestCallersAreCounted(t *testing.T) {
	g, expect := guard(t), counting(t, "activityd_access_requests_total")
	for _, test := range []struct {
		authorization []string
		want          string
	}{
		{[]string{"Bearer " + readSecret}, judged("reader", auth.Allowed)},
		{[]string{"Bearer " + adminSecret}, judged("boss", auth.Allowed)},
		{[]string{"Bearer " + writeSecret}, judged("writer", auth.WrongScope)},
		{[]string{"Bearer reader"}, judged("(unknown)", auth.UnknownToken)},
		{[]string{"Basic reader"}, judged("(none)", auth.NoToken)},
		{[]string{"Bearer " + readSecret, "Bearer " + readSecret}, judged("(none)", auth.NoToken)},
		{nil, judged("(none)", auth.NoToken)},
	} {
		g.as(t, newRead(t), test.authorization...)
		g.get(t, "/healthz")
		g.get(t, "/nonsense")
		expect(fmt.Sprintf("%q", test.authorization), metricstest.Samples{test.want: 1})
	}
	for range 3 {
		g.as(t, newRead(t), "Bearer "+limitedSecret)
	}
	expect("over the limit", metricstest.Samples{judged("limited", auth.Allowed): 2, judged("limited", auth.OverLimit): 1})
}

// brokenAuthorizer does not keep its word.
type brokenAuthorizer struct{}

func (brokenAuthorizer) Check(string, auth.Scope) (auth.Caller, error) {
	return auth.Caller{Name: "a", Scopes: auth.Admin}, errors.New("broken")
}

func TestAnAuthorizerThatFailsLetsNobodyIn(t *testing.T) {
	g, expect := guard(t), counting(t, "activityd_access_requests_total")
	g.bundle = setup(t, func(c *api.Config) { c.Auth = brokenAuthorizer{} })
	wantProblem(t, g.as(t, newUpload(t), "Bearer "+adminSecret), http.StatusInternalServerError, "internal")
	g.nothingDone(t)
	expect("broken", metricstest.Samples{judged("a", "other"): 1})
}

// A token with the scope admin makes an operator and, where there are no tokens, a
// request from this machine.
func TestOperators(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		secret string
		open   bool
		want   []bool // the handler's reports; empty: it is not reached
	}{
		"reader":    {readSecret, false, []bool{false}},
		"writer":    {writeSecret, false, nil},
		"admin":     {adminSecret, false, []bool{true}},
		"stranger":  {"x", false, nil},
		"no tokens": {"", true, []bool{true}},
	} {
		g := guard(t)
		if test.open {
			g.bundle = setup(t)
		}
		var told []bool
		g.server.Probe("/probe", auth.Read, func(operator bool) { told = append(told, operator) })
		r := newRequest(t.Context(), http.MethodGet, "/probe", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+test.secret)
		g.server.Handler().ServeHTTP(httptest.NewRecorder(), r)
		if !slices.Equal(told, test.want) {
			t.Errorf("%s: operator = %v, want %v", name, told, test.want)
		}
	}
}
