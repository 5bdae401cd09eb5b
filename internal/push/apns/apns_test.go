package apns

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
	"github.com/activityd/activityd/internal/testing/apnstest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// patience is for events that must happen, on a machine that may stall.
const patience = time.Minute

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newSender returns a sender to a fake. change may change its options.
func newSender(t *testing.T, server *apnstest.Server, change ...func(*Options)) *Sender {
	t.Helper()
	o := Options{
		KeyPEM: server.Key(), KeyID: server.KeyID(), TeamID: server.TeamID(), Topic: server.Topic(),
		URL: server.URL(), RootCAs: server.RootCAs(),
		silence: patience,
	}
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// message returns the n-th message, to the n-th device.
func message(n int) push.Message {
	sum := sha256.Sum256(fmt.Append(nil, n))
	return push.Message{
		ID:     fmt.Sprintf("%08x-0000-8000-8000-%012x", n, n),
		Device: push.Device{ID: uint64(n), Platform: Platform, Address: NewAddress(hex.EncodeToString(sum[:]), false)},
		Notification: push.Notification{
			Event: fmt.Sprint("event-", n), Type: "upload", Actor: 7, Object: "photo:901", Title: "ann", Body: "has a new photo",
			Count: 1, Collapse: "collapse-" + fmt.Sprint(n), Expires: time.Unix(1795300000, 0),
		},
	}
}

// sendAll sends messages at once, and returns their results in the same order.
func sendAll(ctx context.Context, s *Sender, messages []push.Message) []push.Result {
	results := make([]push.Result, len(messages))
	var wg sync.WaitGroup
	for i, m := range messages {
		wg.Go(func() { results[i] = s.Send(ctx, m) })
	}
	wg.Wait()
	return results
}

func messages(from, to int) (all []push.Message) {
	for n := from; n < to; n++ {
		all = append(all, message(n))
	}
	return all
}

// acceptedIDs counts by apns-id how often the fake accepted a message.
func acceptedIDs(server *apnstest.Server) map[string]int {
	ids := map[string]int{}
	for _, r := range server.Accepted() {
		ids[r.ID]++
	}
	return ids
}

// warm sends a message, so that there is a connection with its full limit of streams.
func warm(t *testing.T, s *Sender) {
	t.Helper()
	if r := s.Send(patient(t), message(1_000_000)); r.Outcome != push.Accepted {
		t.Fatalf("the first message: %+v", r)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	s := newSender(t, server)
	m := message(1)
	if got := s.Send(patient(t), m); got != (push.Result{Outcome: push.Accepted, Status: 200, ID: m.ID}) {
		t.Errorf("result %+v", got)
	}
	m2 := message(2)
	m2.Expires, m2.Urgent = time.Time{}, true
	if got := s.Send(patient(t), m2); got.Outcome != push.Accepted {
		t.Errorf("result %+v", got)
	}
	log := server.Accepted()
	if len(log) != 2 {
		t.Fatalf("%d messages were accepted", len(log))
	}
	payload, err := Payload(&m)
	if err != nil {
		t.Fatal(err)
	}
	got := log[0]
	if got.ID != m.ID || got.Token != addressOf(m.Device.Address).Token || got.Collapse != m.Collapse || got.PushType != "alert" ||
		got.Priority != "10" || got.Expiration != "1795300000" || got.Topic != server.Topic() || got.KeyID != server.KeyID() ||
		!bytes.Equal(got.Payload, payload) {
		t.Errorf("accepted: %+v", got)
	}
	if log[1].Expiration != "0" {
		t.Errorf("without an end the expiration is %q, want 0", log[1].Expiration)
	}
	if conns := server.Stats().Conns; conns != 1 {
		t.Errorf("%d connections for two messages", conns)
	}
}

// APNs takes a single request on a new connection until it has verified a token. None is sent
// that would be refused, and few connections are opened.
func TestColdStart(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	server.Answer(func(apnstest.Request) apnstest.Answer { return apnstest.Answer{Delay: 10 * time.Millisecond} })
	s := newSender(t, server)
	for i, r := range sendAll(patient(t), s, messages(0, 500)) {
		if r.Outcome != push.Accepted {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	stats := server.Stats()
	if stats.Conns > 4 || stats.Refused > 0 || stats.Accepted != 500 || stats.MaxOpen < 2 {
		t.Errorf("want 500 messages over at most 4 connections, many at once and none refused: %+v", stats)
	}
}

// A message that was refused or not processed is sent again, as the queue does.
func sendUntilAccepted(t *testing.T, s *Sender, all []push.Message) (again int) {
	t.Helper()
	ctx := patient(t)
	for len(all) > 0 {
		var rest []push.Message
		for i, r := range sendAll(ctx, s, all) {
			switch {
			case r.Outcome == push.Accepted:
			case r.Outcome == push.Wait && !r.Origin && ctx.Err() == nil:
				rest = append(rest, all[i])
			default:
				t.Errorf("message %s: %+v", all[i].ID, r)
			}
		}
		all, again = rest, again+len(rest)
	}
	return again
}

// Whatever a connection may carry, no more is sent over it, and all is sent.
func TestLimitOfStreamsChanges(t *testing.T) {
	t.Parallel()
	server := apnstest.StartWith(t, apnstest.Options{MaxStreams: 40})
	s := newSender(t, server)
	warm(t, s)
	held := make(chan struct{})
	server.Answer(func(r apnstest.Request) apnstest.Answer {
		if r.Stream == 1 {
			return apnstest.Answer{}
		}
		return apnstest.Answer{Until: held}
	})
	all := messages(0, 90) // more than a connection may carry, and few for a link
	done := make(chan struct{})
	var results []push.Result
	go func() { defer close(done); results = sendAll(patient(t), s, all) }()
	await(t, server, func(s apnstest.Stats) bool { return s.Requests >= 41 })
	server.SetMaxStreams(1000)
	await(t, server, func(s apnstest.Stats) bool { return s.Requests == 91 })

	// The limit falls below the requests in flight.
	server.SetMaxStreams(10)
	close(held)
	<-done
	for i, r := range results {
		if r.Outcome != push.Accepted {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	server.Answer(nil)
	sendUntilAccepted(t, s, messages(90, 200))
	for id, n := range acceptedIDs(server) {
		if n != 1 {
			t.Errorf("%s was accepted %d times", id, n)
		}
	}
	if stats := server.Stats(); stats.Accepted != 201 || stats.Conns > 20 {
		t.Errorf("want 201 messages over few connections: %+v", stats)
	}
}

func await(t *testing.T, server *apnstest.Server, until func(apnstest.Stats) bool) {
	t.Helper()
	if err := server.Await(patient(t), until); err != nil {
		t.Fatal(err)
	}
}

// Of ten requests in flight, a GOAWAY names the lower half as received, and the connection
// is closed. Requests above go over the next connection, and requests below may have been accepted.
func TestGoAway(t *testing.T) {
	t.Parallel()
	for _, code := range []http2.ErrCode{http2.ErrCodeNo, http2.ErrCodeEnhanceYourCalm} {
		server := apnstest.Start(t)
		s := newSender(t, server)
		warm(t, s)
		// Stream 1 was the first; the ten have 3 to 21.
		const last = 11
		n := 0
		atFirst := make(map[string]bool)
		server.Answer(func(r apnstest.Request) apnstest.Answer {
			if r.Conn > 1 {
				return apnstest.Answer{}
			}
			n++
			a := apnstest.Answer{Ignore: true, Accept: r.Stream <= last}
			if a.Accept {
				atFirst[r.ID] = true
			}
			if n == 10 {
				a.GoAway = &apnstest.GoAway{Last: last, Code: code, Reason: "Shutdown", Close: true}
			}
			return a
		})
		all := messages(0, 10)
		accepted := 0
		results := sendAll(patient(t), s, all)
		for id, n := range acceptedIDs(server) {
			if n > 1 {
				t.Errorf("%v: %s was accepted %d times", code, id, n)
			}
		}
		for i, r := range results {
			want := push.Result{Outcome: push.Accepted, Status: 200, ID: all[i].ID}
			if atFirst[all[i].ID] {
				want = push.Result{Outcome: push.Ambiguous, Reason: conn.ReasonLost}
				accepted++
			}
			if r != want {
				t.Errorf("%v, message %d: %+v, want %+v", code, i, r, want)
			}
		}
		if accepted != 5 {
			t.Errorf("%v: %d were accepted, want 5", code, accepted)
		}
		server.Answer(nil)
		warm(t, s)
		if conns := server.Stats().Conns; conns < 2 || conns > 5 { // several may be dialled at once
			t.Errorf("%v: %d connections", code, conns)
		}
	}
}

// A server that refuses a new connection answers its first request by GOAWAY, with a reason: the library does not
// say that it was not processed.
func TestGoAwayAtFirst(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	s := newSender(t, server)
	server.Answer(func(apnstest.Request) apnstest.Answer {
		return apnstest.Answer{GoAway: &apnstest.GoAway{Code: http2.ErrCodeEnhanceYourCalm, Reason: "BadCertificate", Close: true}}
	})
	if got := s.Send(patient(t), message(1)); got != (push.Result{Outcome: push.Ambiguous, Reason: conn.ReasonLost}) {
		t.Errorf("%+v", got)
	}
	if stats := server.Stats(); stats.Accepted != 0 || stats.Conns != 1 {
		t.Errorf("nothing is accepted, and no other connection is tried: %+v", stats)
	}
	server.Answer(nil)
	warm(t, s)
}

// A request that no connection processes is given up after some, or when its time is over, and is known not to be sent.
func TestGoAwayAgainAndAgain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answer   apnstest.Answer
		time     time.Duration
		requests int
		reason   string
	}{
		{apnstest.Answer{GoAway: &apnstest.GoAway{Reason: "Shutdown", Close: true}}, patience, 4, conn.ReasonNotSent},
		{apnstest.Answer{Reset: http2.ErrCodeRefusedStream}, 800 * time.Millisecond, 2, conn.ReasonTimeout}, // the library waits a second before the third
	} {
		server := apnstest.Start(t)
		s := newSender(t, server)
		server.Answer(func(apnstest.Request) apnstest.Answer { return test.answer })
		ctx, cancel := context.WithTimeout(t.Context(), test.time)
		defer cancel()
		if got := s.Send(ctx, message(1)); got != (push.Result{Outcome: push.Wait, Reason: test.reason}) {
			t.Errorf("%+v", got)
		}
		if stats := server.Stats(); stats.Requests != test.requests || stats.Accepted != 0 {
			t.Errorf("want %d requests, none accepted: %+v", test.requests, stats)
		}
	}
}

// A server that goes away again and again under load, or changes its limit of streams,
// costs repetitions, and neither a message nor a double.
func TestTroubleUnderLoad(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*apnstest.Server){
		"go away": func(server *apnstest.Server) { server.GoAway("Shutdown") },
		"limit":   func(server *apnstest.Server) { server.SetMaxStreams(1); server.SetMaxStreams(1000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := apnstest.Start(t)
			s := newSender(t, server)
			ctx, stop := context.WithCancel(t.Context())
			var away, load sync.WaitGroup
			away.Go(func() {
				for n := 100; server.Await(ctx, func(s apnstest.Stats) bool { return s.Accepted >= n }) == nil; n += 100 {
					trouble(server)
				}
			})
			const senders, each = 40, 15
			var again atomic.Int64
			for i := range senders {
				load.Go(func() {
					for n := range each {
						again.Add(int64(sendUntilAccepted(t, s, messages(i*each+n, i*each+n+1))))
					}
				})
			}
			load.Wait()
			stop()
			away.Wait()
			ids := acceptedIDs(server)
			for id, n := range ids {
				if n != 1 {
					t.Errorf("%s was accepted %d times", id, n)
				}
			}
			stats := server.Stats()
			if len(ids) != senders*each {
				t.Errorf("%d messages were accepted: %+v", len(ids), stats)
			}
			t.Logf("%d connections, %d repetitions", stats.Conns, again.Load())
		})
	}
}

func TestResets(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	s := newSender(t, server)
	warm(t, s)
	for i, test := range []struct {
		code http2.ErrCode
		want push.Result
	}{
		{http2.ErrCodeInternal, push.Result{Outcome: push.Ambiguous, Reason: conn.ReasonLost}},
		{http2.ErrCodeCancel, push.Result{Outcome: push.Ambiguous, Reason: conn.ReasonLost}},
		{http2.ErrCodeEnhanceYourCalm, push.Result{Outcome: push.Ambiguous, Reason: conn.ReasonLost}},
	} {
		server.Answer(func(apnstest.Request) apnstest.Answer { return apnstest.Answer{Reset: test.code} })
		if got := s.Send(patient(t), message(i)); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.code, got, test.want)
		}
	}
	server.Answer(nil)
	warm(t, s) // the connection after the last is new, or this
}

func TestAnswerThatIsLost(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	s := newSender(t, server)
	warm(t, s)
	for i, a := range []apnstest.Answer{{Cut: true, Accept: true}, {Cut: true, Accept: true, Delay: time.Millisecond}} {
		server.Answer(func(apnstest.Request) apnstest.Answer { return a })
		m := message(i)
		if got := s.Send(patient(t), m); got != (push.Result{Outcome: push.Ambiguous, Reason: conn.ReasonLost}) {
			t.Errorf("%+v", got)
		}
		server.Answer(nil)
		if got := s.Send(patient(t), m); got.Outcome != push.Accepted || got.ID != m.ID {
			t.Errorf("again: %+v", got)
		}
		if n := acceptedIDs(server)[m.ID]; n != 2 {
			t.Errorf("the double was accepted %d times, want 2 under the same id", n)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	s := newSender(t, server)
	warm(t, s)
	since := time.UnixMilli(1795300000123)
	server.Unregister(addressOf(message(4).Device.Address).Token, since)
	if got := s.Send(patient(t), message(4)); got.Outcome != push.Gone || !got.GoneSince.Equal(since) {
		t.Errorf("an unregistered device: %+v", got)
	}
	for _, test := range []struct {
		answer apnstest.Answer
		want   push.Result
	}{
		{apnstest.Answer{Status: 400, Reason: "BadDeviceToken"}, push.Result{Outcome: push.Rejected, Status: 400, Reason: "BadDeviceToken"}},
		{apnstest.Answer{Status: 429, Reason: "TooManyRequests", RetryAfter: 7 * time.Second}, push.Result{Outcome: push.Wait, Status: 429, Reason: "TooManyRequests", After: 7 * time.Second}},
		{apnstest.Answer{Status: 503, Reason: "ServiceUnavailable"}, push.Result{Outcome: push.Wait, Status: 503, Reason: "ServiceUnavailable", Pause: 15 * time.Minute, Origin: true}},
		{apnstest.Answer{Status: 503, Reason: "Shutdown"}, push.Result{Outcome: push.Wait, Status: 503, Reason: "Shutdown"}},
		{apnstest.Answer{Status: 413, Reason: "PayloadTooLarge"}, push.Result{Outcome: push.Rejected, Status: 413, Reason: "PayloadTooLarge"}},
		{apnstest.Answer{Status: 500}, push.Result{Outcome: push.Wait, Status: 500, Reason: reasonAnswer, Pause: 15 * time.Minute, Origin: true}},
	} {
		server.Answer(func(apnstest.Request) apnstest.Answer { return test.answer })
		got := s.Send(patient(t), message(5))
		got.ID = ""
		if got != test.want {
			t.Errorf("%d %s: %+v, want %+v", test.answer.Status, test.answer.Reason, got, test.want)
		}
	}
	server.Answer(nil)
	warm(t, s)
	if conns := server.Stats().Conns; conns != 1 {
		t.Errorf("%d connections, want one", conns)
	}
}

// A fault that can be known before sending is not sent.
func TestNothingIsSentInVain(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	s := newSender(t, server)
	long := message(1)
	long.Body = strings.Repeat("x", MaxPayload)
	if got := s.Send(patient(t), long); got != (push.Result{Outcome: push.Rejected, Reason: "PayloadTooLarge"}) {
		t.Errorf("%+v", got)
	}
	noHex := message(2)
	noHex.Device.Address = NewAddress("../device/secret", false)
	if got := s.Send(patient(t), noHex); got != (push.Result{Outcome: push.Rejected, Reason: "BadDeviceToken"}) {
		t.Errorf("%+v", got)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if got := s.Send(over, message(3)); got != (push.Result{Outcome: push.Wait, Reason: conn.ReasonTimeout}) {
		t.Errorf("%+v", got)
	}
	if stats := server.Stats(); stats.Conns != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestServerIsAway(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	s := newSender(t, server)
	server.Down()
	for i, r := range sendAll(patient(t), s, messages(0, 10)) {
		if r.Outcome != push.Wait || r.Reason != conn.ReasonDial {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	warm(t, s)
	server.Cut()
	for {
		r := s.Send(patient(t), message(1))
		if r.Outcome == push.Accepted {
			break
		}
		// It may have been sent before the end of the connection was seen.
		if r != (push.Result{Outcome: push.Ambiguous, Reason: conn.ReasonLost}) && r != (push.Result{Outcome: push.Wait, Reason: conn.ReasonNotSent}) {
			t.Fatalf("after the connections were cut: %+v", r)
		}
	}
}

// A connection belongs to one key: requests in flight by the old key are finished.
func TestKeyIsReplaced(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	key, err := server.NewKey("SECOND1234")
	if err != nil {
		t.Fatal(err)
	}
	s := newSender(t, server)
	warm(t, s)
	held := make(chan struct{})
	server.Answer(func(apnstest.Request) apnstest.Answer { return apnstest.Answer{Until: held} })
	inFlight := make(chan push.Result, 1)
	go func() { inFlight <- s.Send(patient(t), message(1)) }()
	await(t, server, func(s apnstest.Stats) bool { return s.Requests == 2 })

	if err := s.SetKey([]byte("nonsense"), "SECOND1234"); err == nil {
		t.Error("nonsense is a key")
	}
	if err := s.SetKey(key, "SECOND1234"); err != nil {
		t.Fatal(err)
	}
	server.Answer(nil)
	sendUntilAccepted(t, s, messages(2, 30))
	close(held)
	if got := <-inFlight; got.Outcome != push.Accepted {
		t.Errorf("what was in flight: %+v", got)
	}
	for _, r := range server.Accepted() {
		want := "SECOND1234"
		if r.Conn == 1 {
			want = server.KeyID()
		}
		if r.KeyID != want {
			t.Errorf("connection %d was used with the key %s", r.Conn, r.KeyID)
		}
	}
	await(t, server, func(s apnstest.Stats) bool { return s.Live == 1 }) // the old connection is closed
	server.RevokeKey("SECOND1234")
	if got := s.Send(patient(t), message(31)); got.Outcome != push.Credentials || got.Reason != "InvalidProviderToken" || !got.Origin {
		t.Errorf("a revoked key: %+v", got)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, good := range []string{strings.Repeat("0a", 32), strings.Repeat("Fb", 80)} {
		a := address{Token: good}
		if err := check(a); err != nil || strings.Contains(fmt.Sprintf("%v %+v %#v", a, &a, a), good) {
			t.Errorf("%s: %v, printed as %v", good, err, a)
		}
	}
	for _, bad := range []string{"", "abcd", strings.Repeat("a", 63), strings.Repeat("g", 64), strings.Repeat("ab", 101), strings.Repeat("a/", 32)} {
		err := check(address{Token: bad})
		if err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: error %v, want one without the token", bad, err)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := Options{KeyPEM: newKey(t), KeyID: "K", TeamID: "T", Topic: "example"}
	s, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for sandbox, want := range map[bool]string{false: "https://api.push.apple.com:443", true: "https://api.sandbox.push.apple.com:443"} {
		if got := s.Origin(push.Device{Address: NewAddress("", sandbox)}); got != want {
			t.Errorf("sandbox %v: the origin is %s, want %s", sandbox, got, want)
		}
	}
	for name, change := range map[string]func(*Options){
		"no topic":      func(o *Options) { o.Topic = "" },
		"no team":       func(o *Options) { o.TeamID = "" },
		"no key":        func(o *Options) { o.KeyPEM = nil },
		"http":          func(o *Options) { o.URL = "http://localhost:1" },
		"with a path":   func(o *Options) { o.URL = "https://localhost:1/3/device" },
		"no URL at all": func(o *Options) { o.URL = "localhost:1" },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s.Close()
	if got := s.Send(t.Context(), message(1)); got.Outcome != push.Wait || got.Reason != conn.ReasonDNS && got.Reason != conn.ReasonDial {
		t.Errorf("after Close: %+v", got)
	}
}

// The error of a result, which is logged, names the address, and no secret.
func TestErrorHasNoSecrets(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	s := newSender(t, server)
	warm(t, s)
	server.Down()
	m := message(1)
	for range 2 {
		text := fmt.Sprintf("%+v", s.Send(patient(t), m))
		if strings.Contains(text, addressOf(m.Device.Address).Token) || strings.Contains(text, "bearer") || strings.Contains(text, "PRIVATE") {
			t.Error(text)
		}
	}
	if err := s.Send(patient(t), m).Err; err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(server.URL(), "https://")) {
		t.Errorf("the error: %v", err)
	}
}

// A server goes away after each 40 requests, and closes the connection at once. The result of each message is true.
func TestGoAwayEachFortyRequests(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	s := newSender(t, server)
	var mu sync.Mutex
	taken := make(map[int]int) // by connection
	server.Answer(func(r apnstest.Request) (a apnstest.Answer) {
		mu.Lock()
		defer mu.Unlock()
		taken[r.Conn]++
		if taken[r.Conn] == 40 {
			a.GoAway = &apnstest.GoAway{Last: r.Stream, Reason: "Shutdown", Close: true}
			a.Ignore, a.Accept = true, true
		}
		return a
	})
	all := messages(0, 90)
	results := sendAll(patient(t), s, all)
	ids := acceptedIDs(server)
	unknown := 0
	for i, r := range results {
		n := ids[all[i].ID]
		switch {
		case r.Outcome == push.Accepted && n == 1, r.Outcome == push.Wait && n == 0: // it met too many connections that did not process it
		case r.Outcome == push.Ambiguous && n <= 1:
			unknown++
		default:
			t.Errorf("message %d: %+v, accepted %d times", i, r, n)
		}
	}
	if unknown == 0 || unknown > 20 {
		t.Errorf("of %d messages it is not known what became of them", unknown)
	}
}
