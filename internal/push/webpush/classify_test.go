package webpush

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

// exchange is the argument of classify.
type exchange struct {
	now    time.Time
	status int
	header http.Header
	body   []byte
	standing
}

func (x exchange) classify() push.Result {
	return classify(conn.Answer{Status: x.status, Header: x.header, Body: x.body}, x.standing, x.now)
}

func TestClassify(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	after := func(value string) http.Header { return http.Header{"Retry-After": {value}} }
	proven, throttled := standing{proven: true}, standing{proven: true, throttled: true}
	for name, c := range map[string]struct {
		exchange
		want push.Result
	}{
		"created":             {exchange{status: 201}, push.Result{Outcome: push.Accepted, Status: 201}},
		"ok":                  {exchange{status: 200}, push.Result{Outcome: push.Accepted, Status: 200}},
		"accepted":            {exchange{status: 202}, push.Result{Outcome: push.Accepted, Status: 202}},
		"no content":          {exchange{status: 204}, push.Result{Outcome: push.Accepted, Status: 204}},
		"with an id":          {exchange{status: 201, header: http.Header{"Apns-Id": {"0b3c"}}}, push.Result{Outcome: push.Accepted, Status: 201, ID: "0b3c"}},
		"with a location":     {exchange{status: 201, header: http.Header{"Location": {"https://p/m/secret"}}}, push.Result{Outcome: push.Accepted, Status: 201}},
		"with another id":     {exchange{status: 201, header: http.Header{"X-Wns-Msg-Id": {"1F"}}}, push.Result{Outcome: push.Accepted, Status: 201, ID: "1F"}},
		"gone":                {exchange{status: 410}, push.Result{Outcome: push.Gone, Status: 410, Reason: "gone"}},
		"gone, says Apple":    {exchange{status: 410, body: []byte(`{"reason":"Unregistered"}`)}, push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered"}},
		"not found":           {exchange{status: 404}, push.Result{Outcome: push.Gone, Status: 404, Reason: "not_found"}},
		"gone, says Mozilla":  {exchange{status: 410, body: []byte(`{"code":410,"errno":106,"error":"","more_info":""}`)}, push.Result{Outcome: push.Gone, Status: 410, Reason: "user_gone"}},
		"bad request":         {exchange{status: 400}, push.Result{Outcome: push.Rejected, Status: 400, Reason: "bad_request"}},
		"invented reason":     {exchange{status: 400, body: []byte(`{"reason":"me\nyou"}`)}, push.Result{Outcome: push.Rejected, Status: 400, Reason: "bad_request"}},
		"unauthorized":        {exchange{status: 401}, push.Result{Outcome: push.Credentials, Status: 401, Reason: "unauthorized", Origin: true}},
		"forbidden":           {exchange{status: 403, body: []byte(`{"reason":"BadJwtToken"}`)}, push.Result{Outcome: push.Credentials, Status: 403, Reason: "BadJwtToken", Origin: true}},
		"forbidden, waits":    {exchange{status: 403, header: after("60")}, push.Result{Outcome: push.Credentials, Status: 403, Reason: "forbidden", Origin: true, After: time.Minute}},
		"forbidden, proven":   {exchange{status: 403, standing: proven}, push.Result{Outcome: push.Credentials, Status: 403, Reason: "forbidden"}},
		"unauthorized,proven": {exchange{status: 401, standing: proven}, push.Result{Outcome: push.Credentials, Status: 401, Reason: "unauthorized"}},
		"too large":           {exchange{status: 413}, push.Result{Outcome: push.Rejected, Status: 413, Reason: "too_large"}},
		"not allowed":         {exchange{status: 405}, push.Result{Outcome: push.Rejected, Status: 405, Reason: "http"}},
		"throttled by Edge":   {exchange{status: 406, header: after("5")}, push.Result{Outcome: push.Wait, Status: 406, Reason: "http", Pause: 5 * time.Second, Origin: true}},
		"throttled, the past": {exchange{status: 406, header: after("Sun, 22 Nov 2026 11:59:59 GMT")}, push.Result{Outcome: push.Wait, Status: 406, Reason: "http", Origin: true}},
		"not acceptable":      {exchange{status: 406}, push.Result{Outcome: push.Rejected, Status: 406, Reason: "http"}},
		"too many":            {exchange{status: 429}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, seconds":   {exchange{status: 429, header: after("120")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Pause: 2 * time.Minute, Origin: true}},
		"too many, a date":    {exchange{status: 429, header: after("Sun, 22 Nov 2026 12:00:30 GMT")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Pause: 30 * time.Second, Origin: true}},
		"too many, the past":  {exchange{status: 429, header: after("Sun, 22 Nov 2026 11:00:00 GMT")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, zero":      {exchange{status: 429, header: after("0")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, nonsense":  {exchange{status: 429, header: after("soon")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, negative":  {exchange{status: 429, header: after("-5")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, for ages":  {exchange{status: 429, header: after("2000000000")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Pause: 2000000000 * time.Second, Origin: true}},
		"internal error":      {exchange{status: 500}, push.Result{Outcome: push.Wait, Status: 500, Reason: "server_error", Origin: true}},
		"unavailable":         {exchange{status: 503, header: after("10"), body: []byte(`{"errno":201}`)}, push.Result{Outcome: push.Wait, Status: 503, Reason: "try_later", After: 10 * time.Second, Origin: true}},
		"moved":               {exchange{status: 301, header: http.Header{"Location": {"http://127.0.0.1/"}}}, push.Result{Outcome: push.Rejected, Status: 301, Reason: "redirect"}},
		"moved for good":      {exchange{status: 308}, push.Result{Outcome: push.Rejected, Status: 308, Reason: "redirect"}},
		"found":               {exchange{status: 302}, push.Result{Outcome: push.Wait, Status: 302, Reason: "redirect"}},
		"elsewhere for now":   {exchange{status: 307}, push.Result{Outcome: push.Wait, Status: 307, Reason: "redirect"}},
		"request timeout":     {exchange{status: 408}, push.Result{Outcome: push.Wait, Status: 408, Reason: "http"}},
		"switching protocols": {exchange{status: 101}, push.Result{Outcome: push.Rejected, Status: 101, Reason: "http"}},
		"status 999":          {exchange{status: 999}, push.Result{Outcome: push.Rejected, Status: 999, Reason: "http"}},
		"too many, again":     {exchange{status: 429, header: after("120"), standing: throttled}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", After: 2 * time.Minute, Origin: true}},
		"by Edge, again":      {exchange{status: 406, header: after("5"), standing: throttled}, push.Result{Outcome: push.Wait, Status: 406, Reason: "http", After: 5 * time.Second, Origin: true}},
		"rejected, throttled": {exchange{status: 406, standing: throttled}, push.Result{Outcome: push.Rejected, Status: 406, Reason: "http"}},
	} {
		c.now = now
		if got := c.classify(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Whatever the status: who asks to be asked later is.
func TestRetryAfterWaits(t *testing.T) {
	t.Parallel()
	for status := 300; status < 600; status++ {
		r := exchange{status: status, header: http.Header{"Retry-After": {"7"}}}.classify()
		isKey := r.Outcome == push.Credentials && (status == 401 || status == 403) // they wait, too
		if r.Outcome != push.Wait && !isKey || max(r.After, r.Pause) != 7*time.Second {
			t.Errorf("status %d: %+v", status, r)
		}
	}
}

// Neither our keys nor the network say that a device is no more.
func TestDevicesAreGoneByTheirPushServiceOnly(t *testing.T) {
	t.Parallel()
	for status := 100; status < 1000; status++ {
		if gone := status == 404 || status == 410; (exchange{status: status}.classify().Outcome == push.Gone) != gone {
			t.Errorf("status %d: %+v", status, exchange{status: status}.classify())
		}
	}
}

// Whatever is answered, the reasons of results are labels of metrics.
func TestReasonsAreFew(t *testing.T) {
	t.Parallel()
	bodies := []string{"", "s3cret", `{"reason":"s3cret"}`, `{"errno":999}`}
	for said := range appleReasons {
		bodies = append(bodies, fmt.Sprintf(`{"reason":%q}`, said))
	}
	for errno := range mozillaReasons {
		bodies = append(bodies, fmt.Sprintf(`{"errno":%d}`, errno))
	}
	seen := map[string]bool{
		"endpoint": true, "payload": true, "bad_key": true, "token": true, // of Send
	}
	for _, reason := range conn.Reasons {
		seen[reason] = true
	}
	for status := 100; status < 1000; status++ {
		for _, body := range bodies {
			seen[exchange{status: status, body: []byte(body)}.classify().Reason] = true
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
