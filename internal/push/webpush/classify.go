package webpush

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

// standing is how we stand with a push service.
type standing struct {
	proven    bool // it took something under our key a short time ago
	throttled bool // it has taken nothing since it asked for time for a subscription
}

// classify returns the result of a message by the answer.
func classify(x conn.Answer, with standing, now time.Time) push.Result {
	result := push.Result{Outcome: push.Rejected, Status: x.Status, Reason: reason(x.Status, x.Body)}
	after := conn.RetryAfter(x.Header, now)
	switch x.Status {
	case http.StatusNotFound, http.StatusGone:
		result.Outcome = push.Gone
	case http.StatusUnauthorized, http.StatusForbidden:
		result.Outcome, result.After, result.Origin = push.Credentials, after, !with.proven
	case http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, // of a proxy, or for maintenance; it is not followed
		http.StatusRequestTimeout, http.StatusTooEarly:
		result.Outcome, result.After, result.Origin = push.Wait, after, after > 0
	case http.StatusTooManyRequests:
		result.Outcome, result.Pause, result.Origin = push.Wait, after, true
	default:
		switch x.Status / 100 {
		case 2:
			return push.Result{Outcome: push.Accepted, Status: x.Status, ID: messageID(x.Header)}
		case 5:
			result.Outcome, result.After, result.Origin = push.Wait, after, true
		}
	}
	// A refusal with a time to come back is not final: Edge's push service throttles with 406.
	if isFinal := result.Outcome == push.Rejected || result.Outcome == push.Gone; isFinal && x.Header.Get("Retry-After") != "" {
		result.Outcome, result.Pause, result.Origin = push.Wait, after, x.Status == http.StatusNotAcceptable
	}
	if isThrottled(result) && with.throttled {
		result.After, result.Pause = after, 0
	}
	return result
}

// isThrottled reports whether the push service asks for time, for a subscription or for all.
func isThrottled(r push.Result) bool {
	return r.Outcome == push.Wait && (r.Status == http.StatusTooManyRequests || r.Status == http.StatusNotAcceptable)
}

// appleReasons are those of web.push.apple.com that are worth telling; further reasons are named
// after their status.
var appleReasons = map[string]bool{
	"BadAuthorizationHeader": true, "BadJwtToken": true, "BadWebPushTopic": true, "BadWebPushTTL": true,
	"BadWebPushUrgency": true, "ExpiredJwtToken": true, "ExpiredProviderToken": true, "InternalServerError": true,
	"InvalidProviderToken": true, "PayloadTooLarge": true, "ServiceUnavailable": true, "TooManyRequests": true,
	"Unregistered": true, "VapidPkHashMismatch": true,
}

// mozillaReasons are the errno of Mozilla's autopush.
var mozillaReasons = map[int]string{
	101: "missing_keys", 102: "invalid_endpoint", 103: "expired_endpoint", 104: "payload_too_large",
	105: "endpoint_gone", 106: "user_gone", 107: "no_such_topic", 108: "invalid_router", 109: "invalid_authorization",
	110: "invalid_keys", 111: "missing_header", 112: "invalid_ttl", 113: "invalid_topic",
	201: "try_later", 202: "try_later",
}

var statusReasons = map[int]string{
	400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 410: "gone",
	413: "too_large", 429: "too_many_requests", 502: "unavailable", 503: "unavailable", 504: "unavailable",
}

// reason returns a word of ours for an answer.
func reason(status int, body []byte) string {
	var answer struct {
		Reason string `json:"reason"`
		Errno  int    `json:"errno"`
	}
	if body = bytes.TrimSpace(body); len(body) > 0 && body[0] == '{' {
		_ = json.Unmarshal(body, &answer) // the fields that were read are enough
	}
	switch {
	case appleReasons[answer.Reason]:
		return answer.Reason
	case mozillaReasons[answer.Errno] != "":
		return mozillaReasons[answer.Errno]
	case status/100 == 3:
		return "redirect"
	case statusReasons[status] != "":
		return statusReasons[status]
	case status/100 == 5:
		return "server_error"
	}
	return "http"
}

// messageID returns the push service's id of a message. That of RFC 8030, the Location, is
// left out: it allows to delete the message.
func messageID(header http.Header) string {
	return cmp.Or(header.Get("Apns-Id"), header.Get("X-Wns-Msg-Id"))
}
