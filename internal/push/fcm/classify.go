package fcm

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

// The pauses of a message where FCM names none, by its guide for senders.
const (
	quotaPause  = time.Minute
	serverPause = 10 * time.Second
)

// The reasons that Google gives: error codes of FCM, and the canonical codes of all its
// APIs. Results carry no further text of an answer.
var reasons = []string{
	"UNREGISTERED", "SENDER_ID_MISMATCH", "INVALID_ARGUMENT", "QUOTA_EXCEEDED", "UNAVAILABLE", "INTERNAL", "THIRD_PARTY_AUTH_ERROR",
	"UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "FAILED_PRECONDITION", "ABORTED", "CANCELLED",
}

// classify returns the meaning of an answer for the message.
//
// A device is gone only if FCM says UNREGISTERED. SENDER_ID_MISMATCH is about a token that
// belongs to another project, and not about the access token: the message is rejected and
// nothing waits. But the device stays, because with the credentials of a wrong project, put
// there by mistake, all devices of the site have tokens of another project. Likewise INVALID_ARGUMENT:
// it may mean the token or anything else of the message.
func classify(a conn.Answer, now time.Time) push.Result {
	r := push.Result{Status: a.Status, Reason: statusReason("http_", a.Status)}
	if a.Status/100 == 2 {
		var taken struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(a.Body, &taken) // it was taken, whatever its name
		r.Outcome, r.Reason, r.ID = push.Accepted, "", taken.Name[strings.LastIndexByte(taken.Name, '/')+1:]
		return r
	}
	said := parseError(a.Body)
	if said.code != "" {
		r.Reason = said.code
	}
	wait := func(pause time.Duration, origin bool) {
		r.Outcome, r.Pause, r.Origin = push.Wait, pause, origin
	}
	switch {
	case said.code == "UNREGISTERED":
		r.Outcome = push.Gone
	case said.code == "SENDER_ID_MISMATCH":
		r.Outcome = push.Rejected
	case said.code == "THIRD_PARTY_AUTH_ERROR":
		// The project has no key for the APNs or Web Push that is behind this token; all
		// the rest are sent to as before.
		r.Outcome = push.Credentials
	case a.Status == http.StatusTooManyRequests:
		wait(quotaPause, !said.device)
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden,
		// It is not FCM that answers, or not under this path, or the project is not there.
		a.Status == http.StatusNotFound && (said.code == "" || said.code == "NOT_FOUND"),
		a.Status/100 == 3, a.Status == http.StatusMethodNotAllowed:
		r.Outcome, r.Origin = push.Credentials, true
	case a.Status == http.StatusBadGateway, a.Status == http.StatusGatewayTimeout:
		r.Outcome = push.Ambiguous // the gateway that answers does not know
	case a.Status == http.StatusRequestTimeout, a.Status == http.StatusInternalServerError:
		wait(serverPause, false) // it may be because of this message
	case a.Status >= 500:
		wait(serverPause, true)
	default:
		r.Outcome = push.Rejected
	}
	if r.Outcome == push.Rejected && a.Header.Get("Retry-After") != "" {
		wait(serverPause, false)
	}
	if r.Outcome == push.Wait || r.Outcome == push.Credentials || r.Outcome == push.Ambiguous {
		r.After = conn.RetryAfter(a.Header, now)
	}
	return r
}

// statuses are told apart by results. Of further statuses the class is told: reasons are
// labels of metrics, and few.
var statuses = []int{200, 302, 400, 401, 403, 404, 405, 408, 410, 413, 429, 500, 502, 503, 504}

// statusReason returns the reason of a status without a known reason, as in http_413 or http_4xx.
func statusReason(prefix string, status int) string {
	if slices.Contains(statuses, status) {
		return prefix + strconv.Itoa(status)
	}
	return prefix + strconv.Itoa(status/100) + "xx"
}

// said is the error of an answer.
type said struct {
	code   string // of reasons, the most precise; "": it has none
	device bool   // the quota of this device alone is exceeded
}

// parseError reads the error of an answer, as far as it is Google's.
func parseError(body []byte) (s said) {
	var envelope struct {
		Error struct {
			Status  string `json:"status"`
			Details []struct {
				Type       string `json:"@type"`
				ErrorCode  string `json:"errorCode"`
				Violations []struct {
					Subject     string `json:"subject"`
					Description string `json:"description"`
				} `json:"violations"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &envelope) != nil {
		return s
	}
	s.code = envelope.Error.Status
	for _, d := range envelope.Error.Details {
		if strings.HasSuffix(d.Type, "/google.firebase.fcm.v1.FcmError") {
			s.code = d.ErrorCode
		}
		for _, v := range d.Violations {
			s.device = s.device || strings.Contains(strings.ToLower(v.Subject+v.Description), "device")
		}
	}
	if !slices.Contains(reasons, s.code) {
		s.code = ""
	}
	return s
}
