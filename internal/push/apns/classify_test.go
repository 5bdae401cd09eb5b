package apns

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

// Everything that Apple documents, and its meaning.
func TestResultOfDocumentedReasons(t *testing.T) {
	t.Parallel()
	since := time.UnixMilli(1795300000123)
	wait := func(status int, reason string, pause time.Duration, origin bool) push.Result {
		return push.Result{Outcome: push.Wait, Status: status, Reason: reason, Pause: pause, Origin: origin}
	}
	want := []push.Result{
		{Outcome: push.Rejected, Status: 400, Reason: "BadCollapseId"},
		{Outcome: push.Rejected, Status: 400, Reason: "BadExpirationDate"},
		{Outcome: push.Rejected, Status: 400, Reason: "BadMessageId"},
		{Outcome: push.Rejected, Status: 400, Reason: "BadPriority"},
		{Outcome: push.Rejected, Status: 400, Reason: "DuplicateHeaders"},
		{Outcome: push.Rejected, Status: 400, Reason: "InvalidPushType"},
		{Outcome: push.Rejected, Status: 400, Reason: "MissingDeviceToken"},
		{Outcome: push.Rejected, Status: 400, Reason: "PayloadEmpty"},
		{Outcome: push.Rejected, Status: 404, Reason: "BadPath"},
		{Outcome: push.Rejected, Status: 405, Reason: "MethodNotAllowed"},
		{Outcome: push.Rejected, Status: 413, Reason: "PayloadTooLarge"},
		{Outcome: push.Credentials, Origin: true, Status: 400, Reason: "BadTopic"},
		{Outcome: push.Credentials, Origin: true, Status: 400, Reason: "MissingTopic"},
		{Outcome: push.Credentials, Origin: true, Status: 400, Reason: "TopicDisallowed"},
		{Outcome: push.Credentials, Origin: true, Status: 403, Reason: "BadCertificate"},
		{Outcome: push.Credentials, Origin: true, Status: 403, Reason: "BadCertificateEnvironment"},
		{Outcome: push.Credentials, Origin: true, Status: 403, Reason: "BadEnvironmentKeyIdInToken"},
		{Outcome: push.Credentials, Origin: true, Status: 403, Reason: "ExpiredProviderToken"},
		{Outcome: push.Credentials, Origin: true, Status: 403, Reason: "Forbidden"},
		{Outcome: push.Credentials, Origin: true, Status: 403, Reason: "InvalidProviderToken"},
		{Outcome: push.Credentials, Origin: true, Status: 403, Reason: "MissingProviderToken"},
		{Outcome: push.Credentials, Origin: true, Status: 403, Reason: "UnrelatedKeyIdInToken"},
		{Outcome: push.Rejected, Status: 400, Reason: "BadDeviceToken"},
		{Outcome: push.Rejected, Status: 400, Reason: "DeviceTokenNotForTopic"},
		{Outcome: push.Gone, Status: 410, Reason: "ExpiredToken", GoneSince: since},
		{Outcome: push.Gone, Status: 410, Reason: "Unregistered", GoneSince: since},
		wait(400, "IdleTimeout", 0, false),
		wait(429, "TooManyProviderTokenUpdates", time.Minute, true),
		wait(429, "TooManyRequests", 0, false),
		wait(500, "InternalServerError", 15*time.Minute, false),
		wait(503, "ServiceUnavailable", 15*time.Minute, true),
		wait(503, "Shutdown", 0, false),
	}
	var tested []string
	for _, want := range want {
		tested = append(tested, want.Reason)
		a := answer{status: want.Status, reason: want.Reason}
		if want.Status == 410 {
			a.timestamp = since.UnixMilli()
		}
		if diff := cmp.Diff(want, a.result()); diff != "" {
			t.Errorf("%d %s: %s", want.Status, want.Reason, diff)
		}
	}
	slices.Sort(tested)
	if known := slices.Sorted(maps.Keys(rules)); !slices.Equal(tested, known) {
		t.Errorf("tested %q\nknown  %q", tested, known)
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		a    answer
		want push.Result
	}{
		"accepted":             {answer{status: 200, id: "1"}, push.Result{Outcome: push.Accepted, Status: 200, ID: "1"}},
		"gone, no time":        {answer{status: 410, reason: "Unregistered"}, push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered"}},
		"gone, cut":            {answer{status: 410, cut: true}, push.Result{Outcome: push.Wait, Status: 410, Reason: reasonAnswer}},
		"gone, unknown":        {answer{status: 410, reason: "New"}, push.Result{Outcome: push.Rejected, Status: 410, Reason: reasonUnknown}},
		"401":                  {answer{status: 401, reason: "x"}, push.Result{Outcome: push.Credentials, Status: 401, Reason: reasonUnknown, Origin: true}},
		"403, unknown":         {answer{status: 403, reason: "x"}, push.Result{Outcome: push.Credentials, Status: 403, Reason: reasonUnknown, Origin: true}},
		"403, a device's word": {answer{status: 403, reason: "BadDeviceToken"}, push.Result{Outcome: push.Credentials, Status: 403, Reason: reasonUnknown, Origin: true}},
		"403, cut":             {answer{status: 403, cut: true}, push.Result{Outcome: push.Credentials, Status: 403, Reason: reasonAnswer, Origin: true}},
		"404 of a proxy":       {answer{status: 404, cut: true}, push.Result{Outcome: push.Wait, Status: 404, Reason: reasonAnswer}},
		"400, unknown":         {answer{status: 400, reason: "x"}, push.Result{Outcome: push.Rejected, Status: 400, Reason: reasonUnknown}},
		"301":                  {answer{status: 301}, push.Result{Outcome: push.Wait, Status: 301, Reason: reasonUnknown}},
		"400, said when":       {answer{status: 400, reason: "BadDeviceToken", retryAfter: time.Hour, waits: true}, push.Result{Outcome: push.Wait, Status: 400, Reason: "BadDeviceToken", After: time.Hour}},
		"406, said when":       {answer{status: 406, reason: "x", waits: true}, push.Result{Outcome: push.Wait, Status: 406, Reason: reasonUnknown}},
		"429, said when":       {answer{status: 429, reason: "TooManyRequests", retryAfter: time.Hour}, push.Result{Outcome: push.Wait, Status: 429, Reason: "TooManyRequests", After: time.Hour}},
		"502 of a proxy":       {answer{status: 502, cut: true}, push.Result{Outcome: push.Wait, Status: 502, Reason: reasonAnswer, Pause: 15 * time.Minute, Origin: true}},
		"500, said when":       {answer{status: 500, reason: "InternalServerError", retryAfter: time.Second}, push.Result{Outcome: push.Wait, Status: 500, Reason: "InternalServerError", Pause: 15 * time.Minute, After: time.Second}},
		"503, said when":       {answer{status: 503, reason: "ServiceUnavailable", retryAfter: time.Second}, push.Result{Outcome: push.Wait, Status: 503, Reason: "ServiceUnavailable", Pause: 15 * time.Minute, After: time.Second, Origin: true}},
	} {
		if diff := cmp.Diff(test.want, test.a.result()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Whatever is answered, the reasons of results are labels of metrics.
func TestReasonsAreFew(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{"payload": true} // of Send
	for _, reason := range append(conn.Reasons, reasonKey) {
		seen[reason] = true
	}
	for status := 100; status < 1000; status++ {
		for _, reason := range append(slices.Collect(maps.Keys(rules)), "", "s3cret") {
			for i := range 2 {
				seen[answer{status: status, reason: reason, cut: i > 0}.result().Reason] = true
			}
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
