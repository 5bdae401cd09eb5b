package fcm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
	"github.com/activityd/activityd/internal/push/fcm"
	"github.com/activityd/activityd/internal/testing/fcmtest"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// start starts a fake, and a sender to it; both have the same clock.
func start(t *testing.T, log ...*logtest.Log) (*fcmtest.Server, *fcm.Sender, *clock) {
	t.Helper()
	server, err := fcmtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	sender, err := fcm.New(fcm.Options{
		Credentials: server.Credentials(), URL: server.URL(), RootCAs: server.RootCAs(), Log: append(log, &logtest.Log{})[0].Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.Close)
	c := newClock()
	server.SetClock(c.Now)
	sender.SetClock(c.Now)
	return server, sender, c
}

func message(token string) push.Message {
	return push.Message{
		ID:     "5ad1c2a8-0000-8000-8000-000000000000",
		Device: push.Device{ID: 3, Member: 7, Platform: fcm.Platform, Address: fcm.NewAddress(token)},
		Notification: push.Notification{
			Event: "e1", Type: "upload", Actor: 42, Title: "Ann", Body: "3 new photos", Count: 3, Collapse: "abcDEF_-09",
			Expires: time.Now().Add(24 * time.Hour),
		},
	}
}

func wantOutcome(t *testing.T, r push.Result, want push.Outcome, reason string) {
	t.Helper()
	if r.Outcome != want || r.Reason != reason {
		t.Errorf("%+v, want %s %q", r, want, reason)
	}
}

func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	server, sender, clock := start(t)
	plain, full := message("token:plain"), message("token:full")
	plain.Expires, full.Expires = clock.Now().Add(time.Hour), clock.Now().Add(100*24*time.Hour)
	full.Object, full.Data, full.Urgent = "photo:901", json.RawMessage(`{"page":"<3"}`), true
	late := message("token:late")
	late.Expires = clock.Now().Add(-time.Second)
	var ids []string
	for _, m := range []push.Message{plain, full, late} {
		r := sender.Send(t.Context(), m)
		wantOutcome(t, r, push.Accepted, "")
		ids = append(ids, r.ID)
	}
	if diff := cmp.Diff([]string{"0:1", "0:2", "0:3"}, ids); diff != "" {
		t.Error(diff)
	}
	want := func(token, priority, ttl string, data map[string]string) fcmtest.Message {
		m := fcmtest.Message{Token: token, Notification: fcmtest.Notification{Title: "Ann", Body: "3 new photos"}, Data: data}
		m.Android.CollapseKey, m.Android.Priority, m.Android.TTL, m.Android.Notification.Tag = "abcDEF_-09", priority, ttl, "abcDEF_-09"
		return m
	}
	usual := map[string]string{"event": "e1", "type": "upload", "actor": "42", "count": "3"}
	var got []fcmtest.Message
	for _, a := range server.Accepted() {
		got = append(got, a.Message)
	}
	if diff := cmp.Diff([]fcmtest.Message{
		want("token:plain", "NORMAL", "3600s", usual),
		want("token:full", "HIGH", "2419200s", map[string]string{
			"event": "e1", "type": "upload", "actor": "42", "count": "3", "object": "photo:901", "data": `{"page":"<3"}`,
		}),
		want("token:late", "NORMAL", "0s", usual),
	}, got); diff != "" {
		t.Error(diff)
	}
}

// The fields beside the texts have the form of FCM, and the event's own object is merged into it.
func TestStyles(t *testing.T) {
	t.Parallel()
	server, sender, _ := start(t)
	badge := 3
	rich, silent := message("token:rich"), message("token:silent")
	rich.Style = push.Style{
		Badge: &badge, Sound: "ding", Image: "https://a.example/1",
		TitleLocKey: "t", TitleLocArgs: []string{"x"}, BodyLocKey: "b",
	}
	rich.Override = json.RawMessage(`{"token":"token:other","data":{"mine":"1"},"android":{"notification":{"channel_id":"c","click_action":"OPEN","sound":null}}}`)
	silent.Title, silent.Body, silent.Style = "", "", push.Style{Silent: true, Badge: &badge}
	quiet := message("token:quiet")
	quiet.Sound = push.SoundNone
	for _, m := range []push.Message{rich, silent, quiet} {
		wantOutcome(t, sender.Send(t.Context(), m), push.Accepted, "")
	}
	got := server.Accepted()
	if token := got[0].Token; token != "token:rich" {
		t.Errorf("the override changed the address to %s", token)
	}
	var want fcmtest.Message
	want.Notification.Image = "https://a.example/1"
	want.Android.Notification.Tag, want.Android.Notification.ClickAction, want.Android.Notification.Count = "abcDEF_-09", "OPEN", &badge
	want.Android.Notification.TitleLocKey, want.Android.Notification.TitleLocArgs, want.Android.Notification.BodyLocKey = "t", []string{"x"}, "b"
	want.Android.Notification.ChannelID = "c"
	if diff := cmp.Diff(want.Android.Notification, got[0].Android.Notification); diff != "" || got[0].Notification != want.Notification {
		t.Errorf("%+v %s", got[0].Notification, diff)
	}
	if data := got[0].Data; data["mine"] != "1" || data["event"] != "e1" {
		t.Errorf("data %q", data)
	}
	if m := got[1].Message; m.Notification != (fcmtest.Notification{}) || m.Android.Notification.Tag != "" || m.Android.CollapseKey != "" || m.Data["badge"] != "3" || m.Data["event"] != "e1" {
		t.Errorf("a silent one is %+v", m)
	}
	if m := got[2].Message; m.Android.Notification.Sound != "" || m.Notification.Title != "Ann" {
		t.Errorf("one without a sound is %+v", m)
	}
}

// Many messages at once need a single access token, and few connections, the token endpoint's among them.
func TestManyAtOnceTakeOneToken(t *testing.T) {
	t.Parallel()
	server, sender, _ := start(t)
	var all sync.WaitGroup
	for range 600 {
		all.Go(func() {
			if r := sender.Send(t.Context(), message("x")); r.Outcome != push.Accepted {
				t.Error(r)
			}
		})
	}
	all.Wait()
	if asked, made := server.TokensAsked(), server.Connections(); asked != 1 || made > 8 || len(server.Accepted()) != 600 {
		t.Errorf("%d tokens, %d connections, %d accepted", asked, made, len(server.Accepted()))
	}
}

func TestTheTokenIsRenewedBeforeItsEnd(t *testing.T) {
	t.Parallel()
	server, sender, clock := start(t)
	send := func() {
		t.Helper()
		wantOutcome(t, sender.Send(t.Context(), message("x")), push.Accepted, "")
	}
	send()
	clock.advance(54 * time.Minute)
	send()
	if asked := server.TokensAsked(); asked != 1 {
		t.Errorf("%d tokens before it was time", asked)
	}
	clock.advance(2 * time.Minute)
	send() // with the old token, or the new
	sender.AwaitToken()
	if asked := server.TokensAsked(); asked != 2 {
		t.Errorf("%d tokens when it was time", asked)
	}
	clock.advance(2 * time.Hour)
	send()
	if asked := server.TokensAsked(); asked != 3 {
		t.Errorf("%d tokens after its end", asked)
	}
}

// While the token endpoint is away, the token is used until its end.
func TestAFailedRenewalHarmsNothing(t *testing.T) {
	t.Parallel()
	server, sender, clock := start(t)
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Accepted, "")
	server.SetTokenScript(func() fcmtest.Reply { return fcmtest.Reply{Status: http.StatusServiceUnavailable, RetryAfter: "60"} })
	clock.advance(56 * time.Minute)
	for range 3 {
		wantOutcome(t, sender.Send(t.Context(), message("x")), push.Accepted, "")
		sender.AwaitToken()
	}
	if asked := server.TokensAsked(); asked != 2 {
		t.Errorf("%d tokens were asked for: want one more, as it shall wait for a minute", asked)
	}
	clock.advance(5 * time.Minute)
	r := sender.Send(t.Context(), message("x"))
	if diff := cmp.Diff(push.Result{Outcome: push.Wait, Status: 503, Reason: "token_http_503", After: time.Minute, Origin: true}, r); diff != "" {
		t.Error(diff)
	}
	server.SetTokenScript(nil)
	clock.advance(2 * time.Minute)
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Accepted, "")
}

func TestAFailureStandsForAllThatWouldAskAgain(t *testing.T) {
	t.Parallel()
	var log logtest.Log
	server, sender, clock := start(t, &log)
	server.SetTokenScript(func() fcmtest.Reply {
		return fcmtest.Reply{Status: http.StatusBadRequest, Body: `{"error":"invalid_grant"}`}
	})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			wantOutcome(t, sender.Send(t.Context(), message("x")), push.Credentials, "token_invalid_grant")
		})
	}
	all.Wait()
	if asked := server.TokensAsked(); asked != 1 {
		t.Errorf("%d tokens were asked for", asked)
	}
	clock.advance(2 * time.Second)
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Credentials, "token_invalid_grant")
	if asked, text := server.TokensAsked(), log.String(); asked != 2 || strings.Count(text, "reason=token_invalid_grant") != 1 {
		t.Errorf("%d tokens were asked for, want 2, with one line in the log: %s", asked, text)
	}
	server.SetTokenScript(func() fcmtest.Reply { return fcmtest.Reply{Cut: true} })
	clock.advance(2 * time.Second)
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Wait, "token_unreachable")
	server.SetTokenScript(func() fcmtest.Reply {
		return fcmtest.Reply{Status: http.StatusOK, Body: `{"access_token":"t","expires_in":1}`}
	})
	clock.advance(2 * time.Second)
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Wait, "token_http_200")
	server.SetTokenScript(nil)
	clock.advance(2 * time.Second)
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Accepted, "")
}

// A 401 may mean that the access token ended early, or that no token of these credentials is
// good: a new token is tried, but not again and again.
func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	server, sender, clock := start(t)
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Accepted, "")
	clock.advance(10 * time.Minute)
	server.RevokeTokens()
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Wait, "UNAUTHENTICATED")
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Accepted, "")
	server.SetScript(func(fcmtest.Message) fcmtest.Reply {
		return fcmtest.Reply{Status: http.StatusUnauthorized, Canonical: "UNAUTHENTICATED"}
	})
	for range 3 {
		wantOutcome(t, sender.Send(t.Context(), message("x")), push.Credentials, "UNAUTHENTICATED")
	}
	if asked := server.TokensAsked(); asked != 2 {
		t.Errorf("%d tokens were asked for", asked)
	}
}

func TestCredentialsAreReplaced(t *testing.T) {
	t.Parallel()
	server, sender, clock := start(t)
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Accepted, "")
	if err := server.Rotate(); err != nil {
		t.Fatal(err)
	}
	server.Revoke()
	clock.advance(2 * time.Minute)
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Wait, "UNAUTHENTICATED")
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Credentials, "token_invalid_grant")
	if err := sender.SetCredentials([]byte(`{}`)); err == nil {
		t.Error("empty credentials were taken")
	}
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Credentials, "token_invalid_grant")
	if err := sender.SetCredentials(server.Credentials()); err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, sender.Send(t.Context(), message("x")), push.Accepted, "")
}

// Messages that may have been taken are told from messages that were not.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	server, sender, _ := start(t)
	wantOutcome(t, sender.Send(t.Context(), message("before")), push.Accepted, "")
	server.SetScript(func(fcmtest.Message) fcmtest.Reply { return fcmtest.Reply{Accept: true, Cut: true} })
	wantOutcome(t, sender.Send(t.Context(), message("cut")), push.Ambiguous, conn.ReasonLost)
	if n := len(server.Accepted()); n != 2 {
		t.Errorf("%d were accepted: want 2, as nothing sends one again by itself", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	server.SetScript(func(fcmtest.Message) fcmtest.Reply {
		cancel()
		return fcmtest.Reply{Delay: time.Minute, Cut: true}
	})
	wantOutcome(t, sender.Send(ctx, message("hangs")), push.Ambiguous, conn.ReasonTimeout)
	wantOutcome(t, sender.Send(ctx, message("late")), push.Wait, conn.ReasonTimeout)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	r := sender.Send(t.Context(), message("away"))
	if r.Outcome == push.Ambiguous { // the first request may meet the end of the connection
		r = sender.Send(t.Context(), message("away"))
	}
	if r.Reason == conn.ReasonNotSent { // or begin over it
		r.Reason = conn.ReasonDial
	}
	wantOutcome(t, r, push.Wait, conn.ReasonDial)
}

// A device is gone when FCM says so, by the whole way.
func TestUnregistered(t *testing.T) {
	t.Parallel()
	server, sender, _ := start(t)
	server.Unregister("gone")
	r := sender.Send(t.Context(), message("gone"))
	if diff := cmp.Diff(push.Result{Outcome: push.Gone, Status: 404, Reason: "UNREGISTERED"}, r); diff != "" {
		t.Error(diff)
	}
	wantOutcome(t, sender.Send(t.Context(), message("here")), push.Accepted, "")
}

// The bounds of an event leave room for the rest.
func TestTheLargestPayloadFits(t *testing.T) {
	t.Parallel()
	const limit = 4096
	m := message(strings.Repeat("t", 4096))
	m.Event, m.Type = strings.Repeat("e", 100), strings.Repeat("t", push.MaxType) // 100: the column's, as ids are also made here
	m.Actor, m.Count = 18446744073709551615, 1000000
	m.Object = strings.Repeat("o", push.MaxObject)
	m.Title, m.Body = strings.Repeat("<", push.MaxTitle), strings.Repeat("ä", push.MaxBody/2)
	m.Data = json.RawMessage(`{"x":"` + strings.Repeat(`\"`, (push.MaxData-8)/2) + `"}`)
	m.Collapse = strings.Repeat("c", 32)
	size, raw := fcm.Counted(m, time.Now())
	if size > limit-500 { // FCM does not say exactly how it counts
		t.Errorf("%d bytes of keys and values, want at most %d with some room", size, limit)
	}
	if !json.Valid(raw) || bytes.Contains(raw, []byte(`\u003c`)) {
		t.Errorf("it is no JSON, or longer than need be: %s", raw)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for token, fine := range map[string]bool{
		"dXk3:APA91bH-_x": true, strings.Repeat("x", 4096): true,
		"": false, strings.Repeat("x", 4097): false, "a b": false, "ä": false, "a\nb": false, `a"b`: false, "a\x7f": false,
	} {
		err := fcm.Kind().Check(nil, fcm.NewAddress(token))
		if (err == nil) != fine || err != nil && token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("%.20q: %v", token, err)
		}
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	server, err := fcmtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for url, want := range map[string]string{
		"": "https://fcm.googleapis.com:443", "https://[::1]:9/": "https://[::1]:9", "https://fcm.example": "https://fcm.example:443",
		"http://fcm.example": "", "fcm.example": "", "https://user@fcm.example": "", "https://fcm.example/v1": "", "https://": "",
	} {
		s, err := fcm.New(fcm.Options{Credentials: server.Credentials(), URL: url})
		if (err == nil) != (want != "") {
			t.Errorf("%q: %v", url, err)
		}
		if err == nil {
			if s.Origin(push.Device{}) != want {
				t.Errorf("%q: %s, want %s", url, s.Origin(push.Device{}), want)
			}
			s.Close()
		}
	}
}

func TestBadCredentials(t *testing.T) {
	t.Parallel()
	server, err := fcmtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for want, change := range map[string]func(map[string]string){
		"":             func(map[string]string) {},
		"type":         func(m map[string]string) { m["type"] = "authorized_user" },
		"project_id":   func(m map[string]string) { m["project_id"] = "../other" },
		"client_email": func(m map[string]string) { delete(m, "client_email") },
		"token_uri":    func(m map[string]string) { m["token_uri"] = "http://oauth2.example/token" },
		"private_key":  func(m map[string]string) { m["private_key"] = "s3cret" },
	} {
		var file map[string]string
		if err := json.Unmarshal(server.Credentials(), &file); err != nil {
			t.Fatal(err)
		}
		change(file)
		text, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := fcm.New(fcm.Options{Credentials: text})
		if err == nil {
			s.Close()
		}
		if (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(err.Error(), want+": ") || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if _, err := fcm.New(fcm.Options{Credentials: []byte("-----BEGIN")}); err == nil {
		t.Error("no JSON was taken")
	}
}
