package fcm

import (
	"net/http"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

// Answer is an answer of FCM.
type Answer struct {
	Status     int
	RetryAfter string
	Body       string
}

// conn returns the answer as a connection does.
func (a Answer) conn() conn.Answer {
	header := http.Header{}
	if a.RetryAfter != "" {
		header.Set("Retry-After", a.RetryAfter)
	}
	return conn.Answer{Status: a.Status, Header: header, Body: []byte(a.Body)}
}

// Classify is classify.
func Classify(a Answer, now time.Time) push.Result { return classify(a.conn(), now) }

// ClassifyToken is classifyToken.
func ClassifyToken(status int, retryAfter, said string, now time.Time) push.Result {
	return classifyToken(Answer{Status: status, RetryAfter: retryAfter}.conn(), said, now)
}

// Reasons returns all reasons of results that no answer to a message has.
func Reasons() []string {
	return slices.Concat([]string{"encode", "token_timeout", "token_signature", "token_unreachable"}, conn.Reasons, reasons)
}

// SetClock sets the clock of s.
func (s *Sender) SetClock(now func() time.Time) { s.now = now }

// Counted returns the count of FCM for a message, and its JSON.
func Counted(m push.Message, now time.Time) (size int, raw []byte) {
	r := newRequest(m, now)
	raw, err := Payload(&m, now)
	if err != nil {
		panic(err)
	}
	if n := r.Message.Notification; n != nil {
		size = len("title") + len(n.Title) + len("body") + len(n.Body)
	}
	for key, value := range r.Message.Data {
		size += len(key) + len(value)
	}
	return size, raw
}

// AwaitToken waits for the request for a token that is under way, if any is.
func (s *Sender) AwaitToken() { s.fetches.Wait() }
