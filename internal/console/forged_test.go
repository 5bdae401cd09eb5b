package console_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/console"
)

// No request that a page elsewhere may have a browser send changes anything, nor does a request of a caller that may only look.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	admin, adminSecret := token(t, "admin", auth.Admin)
	looker, lookerSecret := token(t, "looker", auth.Inspect)
	r := newRig(t, admin, looker)
	r.park("dead", "upload", "boom", 1, 5)
	signedIn := func(secret string) (*browser, url.Values) {
		b := r.browser()
		if response := b.signIn(secret); response.StatusCode != http.StatusSeeOther {
			t.Fatalf("signing in: %s", response.Status)
		}
		return b, deed(b.page("/console/tasks?state=dead&type=upload"), "discard")
	}
	ours, form := signedIn(adminSecret)
	lookers, _ := signedIn(lookerSecret)
	for name, c := range map[string]struct {
		by     *browser
		method string
		form   url.Values
		header []string
		want   int
	}{
		"from another site":             {ours, http.MethodPost, form, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"from another port":             {ours, http.MethodPost, form, []string{"Sec-Fetch-Site", "same-site"}, 403},
		"from another origin":           {ours, http.MethodPost, form, []string{"Origin", "http://127.0.0.1:1"}, 403},
		"from no origin":                {ours, http.MethodPost, form, []string{"Origin", "null"}, 403},
		"by a browser without a cookie": {r.browser(), http.MethodPost, form, nil, 401},
		"by one that may look":          {lookers, http.MethodPost, form, nil, 403},
		"by GET":                        {ours, http.MethodGet, nil, nil, 405},
		"by HEAD":                       {ours, http.MethodHead, nil, nil, 405},
		"by PUT":                        {ours, http.MethodPut, form, nil, 405},
		"by DELETE":                     {ours, http.MethodDelete, nil, nil, 405},
	} {
		path := "/console/act"
		if c.form == nil {
			path += "?" + form.Encode()
		}
		response, text := c.by.send(c.method, path, c.form, c.header...)
		if response.StatusCode != c.want {
			t.Errorf("%s: %s, want %d\n%s", name, response.Status, c.want, text)
		}
		if n := r.parked(); n != 5 {
			t.Fatalf("%s: %d tasks are left", name, n)
		}
	}
	hold := url.Values{"do": {"pause"}, "queue": {"mail"}}
	for name, c := range map[string]struct {
		by     *browser
		header []string
	}{"from another site": {ours, []string{"Sec-Fetch-Site", "cross-site"}}, "by one that may look": {lookers, nil}} {
		if response, _ := c.by.send(http.MethodPost, "/console/queue", hold, c.header...); response.StatusCode != http.StatusForbidden || r.count("paused_queues") != 0 {
			t.Errorf("a pause %s: %s", name, response.Status)
		}
	}
	for _, path := range []string{"/console/", "/console/tasks?state=dead&type=upload", "/console/tasks/1"} {
		if text := lookers.page(path); strings.Contains(text, ` name="do"`) {
			t.Errorf("one that may look is offered more:\n%s", text)
		}
	}
	// The same as it should be.
	if response, text := ours.send(http.MethodPost, "/console/act", form, "Origin", r.url); response.StatusCode != http.StatusOK || r.parked() != 0 {
		t.Errorf("%s\n%s", response.Status, text)
	}
}

// Without tokens, only browsers on this machine may look or act, under its names.
func TestWithoutTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.park("dead", "upload", "boom", 1, 5)
	b := r.browser()
	const list = "/console/tasks?state=dead&type=upload"
	form := deed(b.page(list), "discard")
	for name, header := range map[string][]string{
		"forwarded": {"X-Forwarded-For", "10.1.2.3"}, "by a proxy": {"Via", "1.1 x"}, "to another name": {"Host", "attacker.example"},
	} {
		for method, path := range map[string]string{http.MethodGet: list, http.MethodPost: "/console/act"} {
			response, text := b.send(method, path, form, header...)
			if response.StatusCode != http.StatusForbidden || strings.Contains(text, "boom") {
				t.Errorf("%s %s: %s\n%s", method, name, response.Status, text)
			}
		}
	}
	if n := r.parked(); n != 5 {
		t.Fatalf("%d tasks are left", n)
	}
	if response, _ := b.send(http.MethodPost, "/console/act", form, "Sec-Fetch-Site", "same-origin"); response.StatusCode != http.StatusOK || r.parked() != 0 {
		t.Errorf("as it should be: %s", response.Status)
	}
	if response, text := b.send(http.MethodPost, "/console/signin", form); response.StatusCode != http.StatusForbidden || !strings.Contains(text, "There are no tokens") {
		t.Errorf("signing in: %s\n%s", response.Status, text)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	looker, secret := token(t, "looker", auth.Inspect)
	reader, readerSecret := token(t, "reader", auth.Read|auth.Write)
	r := newRig(t, looker, reader, auth.Token{Name: "nobody", Scopes: auth.Admin, Hash: auth.HashOf("")})
	r.park("dead", "upload", "boom", 1, 1)
	b := r.browser()
	for _, path := range []string{"/console/", "/console/tasks", "/console/tasks/1", "/console/event", "/console/explain?member=1"} {
		response, text := b.send(http.MethodGet, path, nil)
		if response.StatusCode != http.StatusUnauthorized || !strings.Contains(text, `name="token"`) || strings.Contains(text, "boom") {
			t.Errorf("%s before signing in: %s\n%s", path, response.Status, text)
		}
	}
	for name, wrong := range map[string]string{"of another scope": readerSecret, "of none": "act_nothing", "empty": ""} {
		if response := b.signIn(wrong); response.StatusCode != http.StatusForbidden || len(response.Cookies()) > 0 {
			t.Errorf("with a secret %s: %s, %v", name, response.Status, response.Cookies())
		}
	}
	// A foreign page cannot sign a browser in.
	_, text := b.send(http.MethodGet, "/console/tasks?state=dead", nil)
	form := fields(text)
	form.Set("token", secret)
	if response, _ := b.send(http.MethodPost, "/console/signin", form, "Sec-Fetch-Site", "cross-site"); response.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %s", response.Status)
	}
	response, _ := b.send(http.MethodPost, "/console/signin", form, "Sec-Fetch-Site", "same-origin")
	if response.StatusCode != http.StatusSeeOther || response.Header.Get("Location") != "/console/tasks?state=dead" {
		t.Errorf("signed in: %s, to %s", response.Status, response.Header.Get("Location"))
	}
	cookie := response.Header.Get("Set-Cookie")
	for _, want := range []string{"activityd_session=", "; Path=/console/", "; HttpOnly", "; SameSite=Strict"} {
		if !strings.Contains(cookie, want) || strings.Contains(cookie, secret) || strings.Contains(cookie, "Secure") {
			t.Errorf("the cookie is %q, without %q", cookie, want)
		}
	}
	b.page("/console/")
	form.Set("next", "https://attacker.example/console/")
	if response, _ := b.send(http.MethodPost, "/console/signin", form, "X-Forwarded-Proto", "https"); response.Header.Get("Location") != "/console/" || !strings.Contains(response.Header.Get("Set-Cookie"), "Secure") {
		t.Errorf("behind TLS: to %s, %s", response.Header.Get("Location"), response.Header.Get("Set-Cookie"))
	}
	// A process knows no session of a second process, and none that is made up.
	elsewhere := newRig(t, looker)
	for _, value := range []string{strings.TrimPrefix(strings.Split(cookie, ";")[0], "activityd_session="), secret, "", "AAAA"} {
		if response, _ := elsewhere.browser().send(http.MethodGet, "/console/", nil, "Cookie", "activityd_session="+value); response.StatusCode != http.StatusUnauthorized {
			t.Errorf("a session %q: %s", value, response.Status)
		}
	}
	// A token that is revoked ends its sessions.
	b.page("/console/event")
	r.tokens.Replace([]auth.Token{reader})
	if response, _ := b.send(http.MethodGet, "/console/event", nil); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the token: %s", response.Status)
	}
	r.tokens.Replace([]auth.Token{looker})
	b.page("/console/event")
	if response, _ := b.send(http.MethodPost, "/console/signout", url.Values{}, "Sec-Fetch-Site", "cross-site"); response.StatusCode != http.StatusForbidden {
		t.Errorf("signing out from another site: %s", response.Status)
	}
	b.page("/console/event")
	at, err := url.Parse(r.url + "/console/")
	if err != nil {
		t.Fatal(err)
	}
	copied := b.client.Jar.Cookies(at)[0].String()
	if response, _ := r.browser().send(http.MethodGet, "/console/event", nil, "Cookie", copied); response.StatusCode != http.StatusOK {
		t.Errorf("with the session of another browser: %s", response.Status)
	}
	b.send(http.MethodPost, "/console/signout", url.Values{})
	if response, _ := b.send(http.MethodGet, "/console/event", nil); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("signed out: %s", response.Status)
	}
	if response, _ := r.browser().send(http.MethodGet, "/console/event", nil, "Cookie", copied); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a copy of a session that was signed out: %s", response.Status)
	}
}

// A session ends after some hours, whether or not its browser does.
func TestASessionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, secret := token(t, "ann", auth.Inspect)
		k := console.New(console.Options{
			Tokens: auth.NewTokens([]auth.Token{one}), Log: slog.New(slog.DiscardHandler),
		})
		send := func(method, path string, form url.Values, cookies ...*http.Cookie) *http.Response {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for _, c := range cookies {
				r.AddCookie(c)
			}
			w := httptest.NewRecorder()
			k.ServeHTTP(w, r)
			return w.Result()
		}
		cookies := send(http.MethodPost, "/console/signin", url.Values{"token": {secret}}).Cookies()
		<-time.After(12*time.Hour - time.Second)
		if got := send(http.MethodGet, "/console/event", nil, cookies...).StatusCode; got != http.StatusOK {
			t.Errorf("before its end: %d", got)
		}
		<-time.After(time.Second)
		if got := send(http.MethodGet, "/console/event", nil, cookies...).StatusCode; got != http.StatusUnauthorized {
			t.Errorf("after its end: %d", got)
		}
	})
}
