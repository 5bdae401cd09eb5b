package apns

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

// answer is an answer of APNs.
type answer struct {
	status     int
	reason     string // of the body
	timestamp  int64  // of the body: unix milliseconds
	cut        bool   // the body could not be read
	id         string // of the header apns-id
	retryAfter time.Duration
	waits      bool // it has a Retry-After, be it of no time
}

// readAnswer reads an answer of APNs.
func readAnswer(got conn.Answer, now time.Time) answer {
	a := answer{
		status: got.Status, id: got.Header.Get("Apns-Id"),
		retryAfter: conn.RetryAfter(got.Header, now), waits: got.Header.Get("Retry-After") != "",
	}
	if a.status == http.StatusOK {
		return a
	}
	var said struct {
		Reason    string `json:"reason"`
		Timestamp int64  `json:"timestamp"`
	}
	a.cut = got.Err != nil || json.Unmarshal(got.Body, &said) != nil
	a.reason, a.timestamp = said.Reason, said.Timestamp
	return a
}

// Reasons of ours.
const (
	reasonAnswer  = "cut_answer"   // APNs did not take it, and why was lost
	reasonKey     = "sign"         // no token could be made
	reasonUnknown = "unknown_code" // an answer that is not documented
)

// rule is the meaning of a documented reason.
type rule struct {
	status  int
	outcome push.Outcome
	pause   time.Duration
	origin  bool
}

const (
	// Apple: "After 15 minutes, you can retry JSON payloads that receive response status codes
	// that begin with 5XX." That is for the message: the next may be taken at once, by another
	// server behind the same name. The breaker finds out whether none are.
	errorPause = 15 * time.Minute
	// All messages go on, with the token that they have.
	updatesPause = time.Minute
)

// rules are by reason, as documented in "Handling notification responses from APNs".
//
// A wrong key, topic or environment of ours is the operator's to mend: nothing
// is lost by it, and no device.
//
// A refusal of a device's token with status 400 prunes no device: it may as well be our
// environment or topic that is wrong, for all devices. A server that shuts down is left
// alone, and the next is asked.
var rules = map[string]rule{
	"BadCollapseId":     {status: 400, outcome: push.Rejected},
	"BadExpirationDate": {status: 400, outcome: push.Rejected},
	"BadMessageId":      {status: 400, outcome: push.Rejected},
	"BadPriority":       {status: 400, outcome: push.Rejected},
	"DuplicateHeaders":  {status: 400, outcome: push.Rejected},
	"InvalidPushType":   {status: 400, outcome: push.Rejected},
	"PayloadEmpty":      {status: 400, outcome: push.Rejected},
	"BadPath":           {status: 404, outcome: push.Rejected},
	"MethodNotAllowed":  {status: 405, outcome: push.Rejected},
	"PayloadTooLarge":   {status: 413, outcome: push.Rejected},
	"IdleTimeout":       {status: 400, outcome: push.Wait},

	"BadDeviceToken":         {status: 400, outcome: push.Rejected},
	"DeviceTokenNotForTopic": {status: 400, outcome: push.Rejected},
	"MissingDeviceToken":     {status: 400, outcome: push.Rejected},
	"ExpiredToken":           {status: 410, outcome: push.Gone},
	"Unregistered":           {status: 410, outcome: push.Gone},

	"BadTopic":                    {status: 400, outcome: push.Credentials, origin: true},
	"MissingTopic":                {status: 400, outcome: push.Credentials, origin: true},
	"TopicDisallowed":             {status: 400, outcome: push.Credentials, origin: true},
	"BadCertificate":              {status: 403, outcome: push.Credentials, origin: true},
	"BadCertificateEnvironment":   {status: 403, outcome: push.Credentials, origin: true},
	"BadEnvironmentKeyIdInToken":  {status: 403, outcome: push.Credentials, origin: true},
	"ExpiredProviderToken":        {status: 403, outcome: push.Credentials, origin: true},
	"Forbidden":                   {status: 403, outcome: push.Credentials, origin: true},
	"InvalidProviderToken":        {status: 403, outcome: push.Credentials, origin: true},
	"MissingProviderToken":        {status: 403, outcome: push.Credentials, origin: true},
	"UnrelatedKeyIdInToken":       {status: 403, outcome: push.Credentials, origin: true},
	"TooManyProviderTokenUpdates": {status: 429, outcome: push.Wait, pause: updatesPause, origin: true},
	"TooManyRequests":             {status: 429, outcome: push.Wait}, // for this device

	"InternalServerError": {status: 500, outcome: push.Wait, pause: errorPause},
	"ServiceUnavailable":  {status: 503, outcome: push.Wait, pause: errorPause, origin: true},
	"Shutdown":            {status: 503, outcome: push.Wait},
}

// result returns the result of the message. It is a pure function.
func (a answer) result() push.Result {
	if a.status == http.StatusOK {
		return push.Result{Outcome: push.Accepted, Status: a.status, ID: a.id}
	}
	r := push.Result{Status: a.status, Reason: a.reason, ID: a.id}
	rule, documented := rules[a.reason]
	if !documented || rule.status != a.status {
		r.Reason = reasonUnknown // any word of a server is no label of a metric
		if a.cut {
			r.Reason = reasonAnswer
		}
		rule = byStatus(a.status, !a.cut)
	}
	r.Outcome, r.Pause, r.Origin = rule.outcome, rule.pause, rule.origin
	if r.Outcome == push.Rejected && a.waits {
		r.Outcome = push.Wait
	}
	switch {
	case r.Outcome == push.Gone && a.timestamp > 0:
		r.GoneSince = time.UnixMilli(a.timestamp)
	case r.Outcome == push.Wait, r.Outcome == push.Credentials:
		r.After = a.retryAfter
	}
	return r
}

// byStatus is the rule for undocumented answers. whole: the answer's body was read.
func byStatus(status int, whole bool) rule {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return rule{outcome: push.Credentials, origin: true}
	case status == http.StatusTooManyRequests:
		return rule{outcome: push.Wait}
	case status >= 500:
		return rule{outcome: push.Wait, pause: errorPause, origin: true}
	case !whole, status < 400:
		return rule{outcome: push.Wait}
	default: // 410 among them: a reason that is not known prunes no device
		return rule{outcome: push.Rejected}
	}
}
