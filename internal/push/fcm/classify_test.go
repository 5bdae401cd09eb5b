package fcm_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/fcm"
)

// failure is an error in Google's form; code is FCM's own.
func failure(canonical, code string) string {
	details := ""
	if code != "" {
		details = fmt.Sprintf(`{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":%q}`, code)
	}
	return fmt.Sprintf(`{"error":{"code":0,"message":"for people","status":%q,"details":[%s]}}`, canonical, details)
}

func TestClassify(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	violation := func(subject string) string {
		return fmt.Sprintf(`{"error":{"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"QUOTA_EXCEEDED"},`+
			`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":%q,"description":"too many"}]}]}}`, subject)
	}
	for name, test := range map[string]struct {
		answer fcm.Answer
		want   push.Result
	}{
		"accepted":            {fcm.Answer{Status: 200, Body: `{"name":"projects/p/messages/0:15004%31"}`}, push.Result{Outcome: push.Accepted, ID: "0:15004%31"}},
		"accepted, cut off":   {fcm.Answer{Status: 200, Body: `{"name":"proj`}, push.Result{Outcome: push.Accepted}},
		"accepted, long id":   {fcm.Answer{Status: 200, Body: `{"name":"` + strings.Repeat("x", 200) + `"}`}, push.Result{Outcome: push.Accepted, ID: strings.Repeat("x", 200)}},
		"unregistered":        {fcm.Answer{Status: 404, Body: failure("NOT_FOUND", "UNREGISTERED")}, push.Result{Outcome: push.Gone, Reason: "UNREGISTERED"}},
		"not found":           {fcm.Answer{Status: 404, Body: failure("NOT_FOUND", "")}, push.Result{Outcome: push.Credentials, Reason: "NOT_FOUND", Origin: true}},
		"not FCM":             {fcm.Answer{Status: 404, Body: "<html>"}, push.Result{Outcome: push.Credentials, Reason: "http_404", Origin: true}},
		"redirected":          {fcm.Answer{Status: 302}, push.Result{Outcome: push.Credentials, Reason: "http_302", Origin: true}},
		"not this way":        {fcm.Answer{Status: 405}, push.Result{Outcome: push.Credentials, Reason: "http_405", Origin: true}},
		"other project":       {fcm.Answer{Status: 403, Body: failure("PERMISSION_DENIED", "SENDER_ID_MISMATCH")}, push.Result{Outcome: push.Rejected, Reason: "SENDER_ID_MISMATCH"}},
		"not permitted":       {fcm.Answer{Status: 403, Body: failure("PERMISSION_DENIED", "")}, push.Result{Outcome: push.Credentials, Reason: "PERMISSION_DENIED", Origin: true}},
		"not permitted, wait": {fcm.Answer{Status: 403, RetryAfter: "7"}, push.Result{Outcome: push.Credentials, Reason: "http_403", After: 7 * time.Second, Origin: true}},
		"not permitted, bare": {fcm.Answer{Status: 403}, push.Result{Outcome: push.Credentials, Reason: "http_403", Origin: true}},
		"not authenticated":   {fcm.Answer{Status: 401, Body: failure("UNAUTHENTICATED", "")}, push.Result{Outcome: push.Credentials, Reason: "UNAUTHENTICATED", Origin: true}},
		"no key for APNs":     {fcm.Answer{Status: 401, Body: failure("UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR")}, push.Result{Outcome: push.Credentials, Reason: "THIRD_PARTY_AUTH_ERROR"}},
		"invalid":             {fcm.Answer{Status: 400, Body: failure("INVALID_ARGUMENT", "INVALID_ARGUMENT")}, push.Result{Outcome: push.Rejected, Reason: "INVALID_ARGUMENT"}},
		"invalid, no detail":  {fcm.Answer{Status: 400, Body: failure("INVALID_ARGUMENT", "")}, push.Result{Outcome: push.Rejected, Reason: "INVALID_ARGUMENT"}},
		"throttled":           {fcm.Answer{Status: 406, RetryAfter: "7"}, push.Result{Outcome: push.Wait, Reason: "http_4xx", Pause: 10 * time.Second, After: 7 * time.Second}},
		"invalid, until":      {fcm.Answer{Status: 400, RetryAfter: "0", Body: failure("INVALID_ARGUMENT", "")}, push.Result{Outcome: push.Wait, Reason: "INVALID_ARGUMENT", Pause: 10 * time.Second}},
		"too large":           {fcm.Answer{Status: 413}, push.Result{Outcome: push.Rejected, Reason: "http_413"}},
		"quota":               {fcm.Answer{Status: 429, Body: failure("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")}, push.Result{Outcome: push.Wait, Reason: "QUOTA_EXCEEDED", Pause: time.Minute, Origin: true}},
		"quota, until":        {fcm.Answer{Status: 429, RetryAfter: "7", Body: failure("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")}, push.Result{Outcome: push.Wait, Reason: "QUOTA_EXCEEDED", Pause: time.Minute, After: 7 * time.Second, Origin: true}},
		"quota, date":         {fcm.Answer{Status: 429, RetryAfter: now.Add(90 * time.Second).Format(http.TimeFormat)}, push.Result{Outcome: push.Wait, Reason: "http_429", Pause: time.Minute, After: 90 * time.Second, Origin: true}},
		"quota, past date":    {fcm.Answer{Status: 429, RetryAfter: now.Add(-time.Hour).Format(http.TimeFormat)}, push.Result{Outcome: push.Wait, Reason: "http_429", Pause: time.Minute, Origin: true}},
		"quota, for ever":     {fcm.Answer{Status: 429, RetryAfter: "2000000000"}, push.Result{Outcome: push.Wait, Reason: "http_429", Pause: time.Minute, After: 2000000000 * time.Second, Origin: true}},
		"quota, nonsense":     {fcm.Answer{Status: 429, RetryAfter: "-1"}, push.Result{Outcome: push.Wait, Reason: "http_429", Pause: time.Minute, Origin: true}},
		"quota of project":    {fcm.Answer{Status: 429, Body: violation("project:photos")}, push.Result{Outcome: push.Wait, Reason: "QUOTA_EXCEEDED", Pause: time.Minute, Origin: true}},
		"quota of device":     {fcm.Answer{Status: 429, Body: violation("device:abc")}, push.Result{Outcome: push.Wait, Reason: "QUOTA_EXCEEDED", Pause: time.Minute}},
		"unavailable":         {fcm.Answer{Status: 503, Body: failure("UNAVAILABLE", "UNAVAILABLE")}, push.Result{Outcome: push.Wait, Reason: "UNAVAILABLE", Pause: 10 * time.Second, Origin: true}},
		"unavailable, until":  {fcm.Answer{Status: 503, RetryAfter: "120"}, push.Result{Outcome: push.Wait, Reason: "http_503", Pause: 10 * time.Second, After: 2 * time.Minute, Origin: true}},
		"internal":            {fcm.Answer{Status: 500, Body: failure("INTERNAL", "INTERNAL")}, push.Result{Outcome: push.Wait, Reason: "INTERNAL", Pause: 10 * time.Second}},
		"slow client":         {fcm.Answer{Status: 408}, push.Result{Outcome: push.Wait, Reason: "http_408", Pause: 10 * time.Second}},
		"bad gateway":         {fcm.Answer{Status: 502, Body: "<html>"}, push.Result{Outcome: push.Ambiguous, Reason: "http_502"}},
		"bad gateway, until":  {fcm.Answer{Status: 502, RetryAfter: "30"}, push.Result{Outcome: push.Ambiguous, Reason: "http_502", After: 30 * time.Second}},
		"gateway timeout":     {fcm.Answer{Status: 504, Body: failure("DEADLINE_EXCEEDED", "")}, push.Result{Outcome: push.Ambiguous, Reason: "DEADLINE_EXCEEDED"}},
		"unknown code":        {fcm.Answer{Status: 400, Body: failure("s3cret", "s3cret")}, push.Result{Outcome: push.Rejected, Reason: "http_400"}},
		"unspecified":         {fcm.Answer{Status: 400, Body: failure("UNSPECIFIED_ERROR", "UNSPECIFIED_ERROR")}, push.Result{Outcome: push.Rejected, Reason: "http_400"}},
		"gone elsewhere":      {fcm.Answer{Status: 410}, push.Result{Outcome: push.Rejected, Reason: "http_410"}},
	} {
		test.want.Status = test.answer.Status
		if diff := cmp.Diff(test.want, fcm.Classify(test.answer, now)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// No status but 404 with UNREGISTERED may cost a device.
func TestOnlyUnregisteredDevicesAreGone(t *testing.T) {
	t.Parallel()
	for status := 300; status < 600; status++ {
		for _, code := range []string{"", "SENDER_ID_MISMATCH", "INVALID_ARGUMENT", "QUOTA_EXCEEDED", "UNAVAILABLE", "INTERNAL", "THIRD_PARTY_AUTH_ERROR", "UNAUTHENTICATED"} {
			r := fcm.Classify(fcm.Answer{Status: status, Body: failure("", code)}, time.Now())
			if r.Outcome == push.Gone || r.Outcome == push.Accepted || r.Outcome == "" {
				t.Errorf("%d %s: %v", status, code, r)
			}
		}
	}
}

func TestClassifyToken(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status     int
		retryAfter string
		said       string
		want       push.Result
	}{
		{400, "", "invalid_grant", push.Result{Outcome: push.Credentials, Reason: "token_invalid_grant"}},
		{401, "", "invalid_client", push.Result{Outcome: push.Credentials, Reason: "token_invalid_client"}},
		{403, "", "s3cret", push.Result{Outcome: push.Credentials, Reason: "token_http_403"}},
		{403, "5", "", push.Result{Outcome: push.Wait, Reason: "token_http_403", After: 5 * time.Second}},
		{404, "", "", push.Result{Outcome: push.Credentials, Reason: "token_http_404"}},
		{302, "", "", push.Result{Outcome: push.Credentials, Reason: "token_http_302"}},
		{408, "", "", push.Result{Outcome: push.Wait, Reason: "token_http_408"}},
		{429, "9", "", push.Result{Outcome: push.Wait, Reason: "token_http_429", After: 9 * time.Second}},
		{500, "", "", push.Result{Outcome: push.Wait, Reason: "token_http_500"}},
		{503, "3", "", push.Result{Outcome: push.Wait, Reason: "token_http_503", After: 3 * time.Second}},
		{200, "", "", push.Result{Outcome: push.Wait, Reason: "token_http_200"}}, // no token in it
	} {
		test.want.Status, test.want.Origin = test.status, true
		if diff := cmp.Diff(test.want, fcm.ClassifyToken(test.status, test.retryAfter, test.said, time.Now())); diff != "" {
			t.Errorf("%d %s: %s", test.status, test.said, diff)
		}
	}
}

// Whatever is answered, the reasons of results are labels of metrics.
func TestReasonsAreFew(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, reason := range fcm.Reasons() {
		seen[reason] = true
	}
	for status := 100; status < 600; status++ {
		for _, said := range append(fcm.Reasons(), "", "s3cret") {
			seen[fcm.Classify(fcm.Answer{Status: status, Body: failure(said, "")}, time.Now()).Reason] = true
			seen[fcm.Classify(fcm.Answer{Status: status, Body: failure("", said)}, time.Now()).Reason] = true
		}
		for _, said := range []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "", "s3cret"} {
			seen[fcm.ClassifyToken(status, "", said, time.Now()).Reason] = true
		}
	}
	if len(seen) > push.MaxReasons*9/10 { // package push has some of its own
		t.Errorf("%d reasons, more than are labels: %v", len(seen), slices.Sorted(maps.Keys(seen)))
	}
	for reason := range seen {
		if len(reason) > push.MaxReason || reason == "s3cret" {
			t.Errorf("reason %q", reason)
		}
	}
}
