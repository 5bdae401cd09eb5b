package webpush

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/webpushtest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// patience is how long a message may take that is to arrive.
const patience = 60 * time.Second

func startService(t testing.TB, o webpushtest.Options) *webpushtest.Server {
	t.Helper()
	service, err := webpushtest.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	return service
}

var loopback = hosts{"127.0.0.1"}

func newSender(t testing.TB, service *webpushtest.Server, others hosts) *Sender {
	t.Helper()
	s, err := New(Options{Key: newPair(t).PEM, Subject: subject, Hosts: others, RootCAs: service.RootCAs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func subscribe(t testing.TB, service *webpushtest.Server, key string) (*webpushtest.Subscription, push.Device) {
	t.Helper()
	u, err := service.Subscribe(key)
	if err != nil {
		t.Fatal(err)
	}
	return u, push.Device{ID: 7, Member: 123, Platform: Platform, Address: NewAddress(u.Endpoint(), u.P256DH(), u.Auth())}
}

func message(d push.Device) push.Message {
	return push.Message{ID: "5ad5bbf0-8d38-8c1c-a8d4-0f2a4b7a3c11", Device: d, Notification: push.Notification{
		Event: "e1", Type: "upload", Actor: 98765, Object: "photo:901", Title: "maya", Body: "A new photo <b>&</b>",
		Data: json.RawMessage(`{"url":"/photos/901"}`), Count: 2, Collapse: "dXBsb2Fk", Expires: time.Now().Add(time.Hour + 30*time.Second),
	}}
}

func send(t testing.TB, s *Sender, m push.Message) push.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return s.Send(ctx, m)
}

func TestAMessageArrives(t *testing.T) {
	t.Parallel()
	for _, o := range []webpushtest.Options{{}, {HTTP1: true}} {
		service := startService(t, o)
		s := newSender(t, service, loopback)
		u, device := subscribe(t, service, s.PublicKey())
		subscription := subscriptionOf(device.Address)
		if err := check(func(string) string { return "127.0.0.1" }, device.Address); err != nil || strings.Contains(fmt.Sprintf("%v %+v %#v", subscription, &subscription, subscription), u.Endpoint()) {
			t.Fatalf("%v, printed as %v", err, subscription)
		}
		m := message(device)
		expires := float64(m.Expires.Unix())
		for range 3 {
			if got, want := send(t, s, m), (push.Result{Outcome: push.Accepted, Status: 201}); got != want {
				t.Fatalf("%+v, want %+v; the push service says %q", got, want, service.Refused())
			}
		}
		m.Urgent, m.Expires = true, time.Now().Add(-time.Hour)
		if got := send(t, s, m); got.Outcome != push.Accepted {
			t.Fatalf("%+v", got)
		}
		received := u.Received()
		if len(received) != 4 || len(service.Accepted()) != 4 {
			t.Fatalf("%d messages of 4 arrived", len(received))
		}
		first, last := received[0], received[3]
		if first.Topic != "dXBsb2Fk" || first.Urgency != "normal" || first.TTL < 50*time.Minute || first.TTL > time.Hour+30*time.Second {
			t.Errorf("the message has %+v", first)
		}
		if last.Urgency != "high" || last.TTL != 0 {
			t.Errorf("the urgent one, which has expired, has %+v", last)
		}
		reused := 0
		for i := range len(received) - 1 {
			if received[i].Remote == received[i+1].Remote {
				reused++
			}
		}
		// A connection of HTTP/1.1 is closed when the answer comes before the request was
		// written, now and then.
		if all := len(received) - 1; reused < all && !o.HTTP1 || reused == 0 {
			t.Errorf("a connection was used again for %d messages of %d", reused, all)
		}
		if want := "HTTP/2.0"; !o.HTTP1 && first.Proto != want {
			t.Errorf("it went over %s, want %s", first.Proto, want)
		}
		var shown map[string]any
		if err := json.Unmarshal(first.Payload, &shown); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{
			"title": "maya", "body": "A new photo <b>&</b>", "event": "e1", "type": "upload", "object": "photo:901", "actor": "98765", "count": 2.0,
			"data": map[string]any{"url": "/photos/901"}, "tag": "dXBsb2Fk", "urgent": false, "expires": expires,
		}, shown); diff != "" {
			t.Errorf("payload (-want +got):\n%s", diff)
		}
	}
}

func TestColdStartOpensFewConnections(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, loopback)
	_, device := subscribe(t, service, "")
	var sent sync.WaitGroup
	for range 500 {
		sent.Go(func() {
			if result := send(t, s, message(device)); result.Outcome != push.Accepted {
				t.Errorf("%+v", result)
			}
		})
	}
	sent.Wait()
	connections := make(map[string]bool)
	for _, a := range service.Accepted() {
		connections[a.Remote] = true
	}
	if len(connections) > 8 || service.Taken() != 500 {
		t.Errorf("%d messages went over %d connections", service.Taken(), len(connections))
	}
}

func TestAnswersOfAPushService(t *testing.T) {
	t.Parallel()
	elsewhere := startService(t, webpushtest.Options{})
	_, other := subscribe(t, elsewhere, "")
	for name, c := range map[string]struct {
		answer webpushtest.Answer
		want   push.Result
	}{
		"not found":   {webpushtest.Answer{Status: 404}, push.Result{Outcome: push.Gone, Status: 404, Reason: "not_found"}},
		"gone":        {webpushtest.Answer{Status: 410, Body: `{"errno":106}`}, push.Result{Outcome: push.Gone, Status: 410, Reason: "user_gone"}},
		"too many":    {webpushtest.Answer{Status: 429, Header: http.Header{"Retry-After": {"90"}}}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Pause: 90 * time.Second, Origin: true}},
		"unavailable": {webpushtest.Answer{Status: 503}, push.Result{Outcome: push.Wait, Status: 503, Reason: "unavailable", Origin: true}},
		"redirect":    {webpushtest.Answer{Status: 301, Header: http.Header{"Location": {subscriptionOf(other.Address).Endpoint}}}, push.Result{Outcome: push.Rejected, Status: 301, Reason: "redirect"}},
		"redirect307": {webpushtest.Answer{Status: 307, Header: http.Header{"Location": {subscriptionOf(other.Address).Endpoint}}}, push.Result{Outcome: push.Wait, Status: 307, Reason: "redirect"}},
		"cut":         {webpushtest.Answer{Cut: true}, push.Result{Outcome: push.Ambiguous, Reason: conn.ReasonLost}},
		"long answer": {webpushtest.Answer{Status: 400, Body: strings.Repeat(" ", 1<<20)}, push.Result{Outcome: push.Rejected, Status: 400, Reason: "bad_request"}},
		"long header": {webpushtest.Answer{Status: 201, Header: http.Header{"X": {strings.Repeat("x", 1<<20)}}}, push.Result{Outcome: push.Ambiguous, Reason: conn.ReasonLost}},
		"long accept": {webpushtest.Answer{Status: 200, Body: strings.Repeat(" ", 1<<20)}, push.Result{Outcome: push.Accepted, Status: 200}},
	} {
		for _, http1 := range []bool{false, true} {
			service := startService(t, webpushtest.Options{HTTP1: http1})
			s := newSender(t, service, loopback)
			_, device := subscribe(t, service, s.PublicKey())
			service.Script(webpushtest.Sequence(c.answer))
			if got := send(t, s, message(device)); got != c.want {
				t.Errorf("%s, HTTP/1.1 %t: %+v, want %+v", name, http1, got, c.want)
			}
			if taken := service.Taken(); (taken == 1) != c.answer.Cut {
				t.Errorf("%s: the push service took %d messages", name, taken)
			}
			// The next message is none the worse for it.
			if got := send(t, s, message(device)); got.Outcome != push.Accepted {
				t.Errorf("%s, HTTP/1.1 %t: the next message: %+v", name, http1, got)
			}
		}
	}
	if n := elsewhere.Taken() + len(elsewhere.Refused()); n > 0 {
		t.Errorf("%d requests followed a redirect", n)
	}
}

func TestNoAnswerInTime(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, loopback)
	_, device := subscribe(t, service, s.PublicKey())
	asked := make(chan struct{})
	service.Script(func(r webpushtest.Request) webpushtest.Answer {
		if r.N == 0 {
			close(asked)
			return webpushtest.Answer{Hang: true}
		}
		return webpushtest.Answer{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if got, want := s.Send(ctx, message(device)), (push.Result{Outcome: push.Ambiguous, Reason: "timeout"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := s.Send(ctx, message(device)), (push.Result{Outcome: push.Wait, Reason: "timeout"}); got != want {
		t.Errorf("without any time: %+v, want %+v", got, want)
	}
	if got := send(t, s, message(device)); got.Outcome != push.Accepted {
		t.Errorf("the next message: %+v", got)
	}
}

func TestAWrongCertificate(t *testing.T) {
	t.Parallel()
	service, other := startService(t, webpushtest.Options{}), startService(t, webpushtest.Options{})
	s := newSender(t, other, loopback)
	_, device := subscribe(t, service, s.PublicKey())
	if got := send(t, s, message(device)); got.Outcome != push.Wait || got.Reason != "tls" {
		t.Errorf("%+v", got)
	}
}

func TestNoPushService(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, loopback)
	_, device := subscribe(t, service, s.PublicKey())
	service.Close()
	if got := send(t, s, message(device)); got.Outcome != push.Wait || got.Reason != "dial" {
		t.Errorf("%+v", got)
	}
}

func TestNothingIsSentAfterClose(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, loopback)
	_, device := subscribe(t, service, s.PublicKey())
	if got := send(t, s, message(device)); got.Outcome != push.Accepted {
		t.Fatalf("%+v", got)
	}
	s.Close()
	if got := send(t, s, message(device)); got.Outcome != push.Wait || got.Reason != conn.ReasonDial || service.Taken() != 1 {
		t.Errorf("%+v; %d were taken", got, service.Taken())
	}
}

func TestASubscriptionForAnotherKeyHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, loopback)
	_, good := subscribe(t, service, s.PublicKey())
	_, foreign := subscribe(t, service, newPair(t).Public)
	want := push.Result{Outcome: push.Credentials, Status: 403, Reason: "forbidden", Origin: true}
	if got := send(t, s, message(foreign)); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := send(t, s, message(good)); got.Outcome != push.Accepted {
		t.Fatalf("%+v", got)
	}
	want.Origin = false
	if got := send(t, s, message(foreign)); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	now := time.Now()
	s.now = func() time.Time { return now.Add(2 * provenFor) }
	want.Origin = true
	if got := send(t, s, message(foreign)); got != want {
		t.Errorf("a long time after: %+v, want %+v", got, want)
	}
}

func TestMessagesThatCannotBe(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, loopback)
	_, device := subscribe(t, service, s.PublicKey())
	for reason, change := range map[string]func(*push.Message){
		"endpoint": func(m *push.Message) { m.Device.Address = NewAddress("http://127.0.0.1/", nil, nil) },
		"bad_key":  func(m *push.Message) { m.Device.Address = NewAddress(service.URL(), make([]byte, pointSize), nil) },
		"payload":  func(m *push.Message) { m.Body = strings.Repeat("x", maxPayload) },
	} {
		m := message(device)
		change(&m)
		if got, want := send(t, s, m), (push.Result{Outcome: push.Rejected, Reason: reason}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if origin := s.Origin(device); origin != service.URL() {
		t.Errorf("the origin is %s, want %s", origin, service.URL())
	}
}

func TestTheWorstCaseFits(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, loopback)
	u, device := subscribe(t, service, s.PublicKey())
	m := message(device)
	m.Event = strings.Repeat(`"`, 100) // as push_events can hold
	m.Type = strings.Repeat("t", push.MaxType)
	m.Object = strings.Repeat(`\`, push.MaxObject)
	m.Actor = ^member.ID(0)
	m.Title = strings.Repeat("\x01", push.MaxTitle/6) + strings.Repeat("<", push.MaxTitle%6) + " (1000000)"
	m.Body = strings.Repeat(`"`, push.MaxBody/2)
	m.Data = json.RawMessage(`{"a":"` + strings.Repeat("x", push.MaxData-8) + `"}`)
	m.Count = 1000000
	m.Collapse = strings.Repeat("c", 32)
	text, err := Payload(&m.Notification)
	if err != nil || len(text) > maxPayload {
		t.Errorf("the payload has %d bytes, more than %d: %v", len(text), maxPayload, err)
	}
	t.Logf("%d bytes of %d", len(text), maxPayload)
	if got := send(t, s, m); got.Outcome != push.Accepted {
		t.Fatalf("%+v; the push service says %q", got, service.Refused())
	}
	if !bytes.Equal(u.Received()[0].Payload, text) {
		t.Error("another text arrived")
	}
}

func TestTheKeyIsReplaced(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{Subject: subject}); err == nil {
		t.Error("there is a sender without a key")
	}
	first, second := newPair(t), newPair(t)
	var log bytes.Buffer
	s, err := New(Options{Key: first.PEM, Subject: subject, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetKey([]byte("nonsense")); err == nil || s.PublicKey() != first.Public {
		t.Errorf("a bad key: %v; the key is %s", err, s.PublicKey())
	}
	if err := s.SetKey(second.PEM); err != nil || s.PublicKey() != second.Public || !strings.Contains(log.String(), second.Public) {
		t.Errorf("a good key: %v; the key is %s; the log says %s", err, s.PublicKey(), log.String())
	}
	if _, err := New(Options{Key: first.PEM, Subject: "me"}); err == nil {
		t.Error("there is a sender without a subject")
	}
}

// The push service keeps a message for a browser that is away, and the last of a topic.
func TestMessagesWaitForTheBrowser(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, loopback)
	u, device := subscribe(t, service, s.PublicKey())
	u.SetOnline(false)
	for i, topic := range []string{"a", "b", "a"} {
		m := message(device)
		m.Collapse, m.Count = topic, i
		if got := send(t, s, m); got.Outcome != push.Accepted {
			t.Fatalf("%+v", got)
		}
	}
	expired := message(device)
	expired.Collapse, expired.Expires = "c", time.Now()
	if got := send(t, s, expired); got.Outcome != push.Accepted {
		t.Fatalf("%+v", got)
	}
	if len(u.Received()) != 0 {
		t.Error("a browser that is away receives")
	}
	u.SetOnline(true)
	var topics []string
	for _, a := range u.Received() {
		topics = append(topics, a.Topic)
	}
	if diff := cmp.Diff([]string{"b", "a"}, topics); diff != "" {
		t.Errorf("topics (-want +got):\n%s", diff)
	}
	u.Unsubscribe()
	if got, want := send(t, s, message(device)), (push.Result{Outcome: push.Gone, Status: 410, Reason: "gone"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A push service that is named no more is sent nothing, and the device stays.
func TestNothingIsSentElsewhere(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, nil)
	_, device := subscribe(t, service, s.PublicKey())
	if err := check(func(string) string { return "" }, device.Address); err == nil || strings.Contains(err.Error(), service.URL()) {
		t.Errorf("it can be registered: %v", err)
	}
	if got, want := send(t, s, message(device)), (push.Result{Outcome: push.Rejected, Reason: "endpoint"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if n := service.Taken() + len(service.Refused()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// The first 429 is about its subscription, and the next about all, unless a message was taken in between.
func TestThrottling(t *testing.T) {
	t.Parallel()
	service := startService(t, webpushtest.Options{})
	s := newSender(t, service, loopback)
	_, device := subscribe(t, service, s.PublicKey())
	tooMany := webpushtest.Answer{Status: 429, Header: http.Header{"Retry-After": {"5"}}}
	service.Script(webpushtest.Sequence(tooMany, webpushtest.Answer{}, tooMany, tooMany))
	for i, isAsked := range []bool{false, false, false, true, false} {
		if got := send(t, s, message(device)); (got.After > 0) != isAsked {
			t.Errorf("answer %d: %+v", i, got)
		}
	}
}

func BenchmarkSend(b *testing.B) {
	service := startService(b, webpushtest.Options{Forget: true})
	s := newSender(b, service, loopback)
	_, device := subscribe(b, service, s.PublicKey())
	b.SetParallelism(100)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if result := s.Send(b.Context(), message(device)); result.Outcome != push.Accepted {
				b.Errorf("%+v", result)
			}
		}
	})
}
