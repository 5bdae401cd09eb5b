package fcm

import (
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/h2pool"
)

// Answer is an answer of FCM.
type Answer struct {
	Status     int
	RetryAfter string
	Body       string
}

// Classify is classify.
func Classify(a Answer, now time.Time) push.Result {
	header := h2pool.Header{{Name: "retry-after", Value: a.RetryAfter}}
	return classify(h2pool.Answer{Status: a.Status, Header: header, Body: []byte(a.Body)}, now)
}

// ClassifyToken is classifyToken.
var ClassifyToken = classifyToken

// GrowAfter sets how long all streams must have been in use before another connection is
// opened.
func (o *Options) GrowAfter(d time.Duration) { o.growAfter = d }

// Reasons returns all reasons of results that no answer to a message has.
func Reasons() []string {
	all := []string{"encode", "no_answer", "dial", "timeout", push.ReasonGoAway, push.ReasonRefused, "not_sent", "token_timeout", "token_signature", "token_uri", "token_unreachable"}
	return append(all, reasons...)
}

// SetClock sets what the time is for s.
func (s *Sender) SetClock(now func() time.Time) { s.now = now }

// Counted returns what FCM counts of a message, and its JSON.
func Counted(m push.Message, now time.Time) (size int, raw []byte) {
	r := newRequest(m, now)
	raw, err := r.encode(m.Override)
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

// AwaitToken waits for the request for a token that is under way, if one is.
func (s *Sender) AwaitToken() { s.fetches.Wait() }
