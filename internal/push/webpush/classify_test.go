package webpush

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/h2pool"
)

// exchange is what classify is told.
type exchange struct {
	now    time.Time
	status int
	header h2pool.Header
	body   []byte
	err    error
	fate   h2pool.Fate // if there is an error
	proven bool
}

func (x exchange) classify() push.Result {
	var err error
	if x.err != nil {
		err = &h2pool.Error{Fate: x.fate, Err: x.err}
	}
	return classify(h2pool.Answer{Status: x.status, Header: x.header, Body: x.body}, err, x.proven, x.now)
}

func TestClassify(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	after := func(value string) h2pool.Header { return h2pool.Header{{Name: "retry-after", Value: value}} }
	dial := func(err error) error { return &h2pool.DialError{Err: err} }
	for name, c := range map[string]struct {
		exchange
		want push.Result
	}{
		"created":              {exchange{status: 201}, push.Result{Outcome: push.Accepted, Status: 201}},
		"ok":                   {exchange{status: 200}, push.Result{Outcome: push.Accepted, Status: 200}},
		"accepted":             {exchange{status: 202}, push.Result{Outcome: push.Accepted, Status: 202}},
		"no content":           {exchange{status: 204}, push.Result{Outcome: push.Accepted, Status: 204}},
		"with an id":           {exchange{status: 201, header: h2pool.Header{{Name: "apns-id", Value: "0b3c"}}}, push.Result{Outcome: push.Accepted, Status: 201, ID: "0b3c"}},
		"with a location":      {exchange{status: 201, header: h2pool.Header{{Name: "location", Value: "https://p/m/secret"}}}, push.Result{Outcome: push.Accepted, Status: 201}},
		"with another id":      {exchange{status: 201, header: h2pool.Header{{Name: "x-wns-msg-id", Value: "1F"}}}, push.Result{Outcome: push.Accepted, Status: 201, ID: "1F"}},
		"gone":                 {exchange{status: 410}, push.Result{Outcome: push.Gone, Status: 410, Reason: "gone"}},
		"gone, says Apple":     {exchange{status: 410, body: []byte(`{"reason":"Unregistered"}`)}, push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered"}},
		"not found":            {exchange{status: 404}, push.Result{Outcome: push.Gone, Status: 404, Reason: "not_found"}},
		"gone, says Mozilla":   {exchange{status: 410, body: []byte(`{"code":410,"errno":106,"error":"","more_info":""}`)}, push.Result{Outcome: push.Gone, Status: 410, Reason: "user_gone"}},
		"bad request":          {exchange{status: 400}, push.Result{Outcome: push.Rejected, Status: 400, Reason: "bad_request"}},
		"invented reason":      {exchange{status: 400, body: []byte(`{"reason":"me\nyou"}`)}, push.Result{Outcome: push.Rejected, Status: 400, Reason: "bad_request"}},
		"unauthorized":         {exchange{status: 401}, push.Result{Outcome: push.Credentials, Status: 401, Reason: "unauthorized", Origin: true}},
		"forbidden":            {exchange{status: 403, body: []byte(`{"reason":"BadJwtToken"}`)}, push.Result{Outcome: push.Credentials, Status: 403, Reason: "BadJwtToken", Origin: true}},
		"forbidden, waits":     {exchange{status: 403, header: after("60")}, push.Result{Outcome: push.Credentials, Status: 403, Reason: "forbidden", Origin: true, After: time.Minute}},
		"forbidden, proven":    {exchange{status: 403, proven: true}, push.Result{Outcome: push.Credentials, Status: 403, Reason: "forbidden"}},
		"unauthorized,proven":  {exchange{status: 401, proven: true}, push.Result{Outcome: push.Credentials, Status: 401, Reason: "unauthorized"}},
		"too large":            {exchange{status: 413}, push.Result{Outcome: push.Rejected, Status: 413, Reason: "too_large"}},
		"not allowed":          {exchange{status: 405}, push.Result{Outcome: push.Rejected, Status: 405, Reason: "http"}},
		"throttled by Edge":    {exchange{status: 406, header: after("5")}, push.Result{Outcome: push.Wait, Status: 406, Reason: "http", Pause: 5 * time.Second, Origin: true}},
		"throttled, the past":  {exchange{status: 406, header: after("Sun, 22 Nov 2026 11:59:59 GMT")}, push.Result{Outcome: push.Wait, Status: 406, Reason: "http", Origin: true}},
		"not acceptable":       {exchange{status: 406}, push.Result{Outcome: push.Rejected, Status: 406, Reason: "http"}},
		"too many":             {exchange{status: 429}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, seconds":    {exchange{status: 429, header: after("120")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Pause: 2 * time.Minute, Origin: true}},
		"too many, a date":     {exchange{status: 429, header: after("Sun, 22 Nov 2026 12:00:30 GMT")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Pause: 30 * time.Second, Origin: true}},
		"too many, the past":   {exchange{status: 429, header: after("Sun, 22 Nov 2026 11:00:00 GMT")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, zero":       {exchange{status: 429, header: after("0")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, nonsense":   {exchange{status: 429, header: after("soon")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, negative":   {exchange{status: 429, header: after("-5")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Origin: true}},
		"too many, for ages":   {exchange{status: 429, header: after("2000000000")}, push.Result{Outcome: push.Wait, Status: 429, Reason: "too_many_requests", Pause: 2000000000 * time.Second, Origin: true}},
		"internal error":       {exchange{status: 500}, push.Result{Outcome: push.Wait, Status: 500, Reason: "server_error", Origin: true}},
		"unavailable":          {exchange{status: 503, header: after("10"), body: []byte(`{"errno":201}`)}, push.Result{Outcome: push.Wait, Status: 503, Reason: "try_later", After: 10 * time.Second, Origin: true}},
		"moved":                {exchange{status: 301, header: h2pool.Header{{Name: "location", Value: "http://127.0.0.1/"}}}, push.Result{Outcome: push.Rejected, Status: 301, Reason: "redirect"}},
		"moved for good":       {exchange{status: 308}, push.Result{Outcome: push.Rejected, Status: 308, Reason: "redirect"}},
		"found":                {exchange{status: 302}, push.Result{Outcome: push.Wait, Status: 302, Reason: "redirect"}},
		"elsewhere for now":    {exchange{status: 307}, push.Result{Outcome: push.Wait, Status: 307, Reason: "redirect"}},
		"request timeout":      {exchange{status: 408}, push.Result{Outcome: push.Wait, Status: 408, Reason: "http"}},
		"switching protocols":  {exchange{status: 101}, push.Result{Outcome: push.Rejected, Status: 101, Reason: "http"}},
		"status 999":           {exchange{status: 999}, push.Result{Outcome: push.Rejected, Status: 999, Reason: "http"}},
		"refused":              {exchange{err: dial(errors.New("connection refused"))}, push.Result{Outcome: push.Wait, Reason: "dial"}},
		"closing":              {exchange{err: &h2pool.GoAwayError{}, fate: h2pool.WentAway}, push.Result{Outcome: push.Wait, Reason: push.ReasonGoAway}},
		"unwelcome":            {exchange{err: &h2pool.GoAwayError{}, fate: h2pool.Unwelcome}, push.Result{Outcome: push.Wait, Reason: "connection"}},
		"refused stream":       {exchange{err: &h2pool.ResetError{}, fate: h2pool.Refused}, push.Result{Outcome: push.Wait, Reason: push.ReasonRefused}},
		"no such host":         {exchange{err: dial(&net.DNSError{IsNotFound: true})}, push.Result{Outcome: push.Wait, Reason: "dns"}},
		"certificate":          {exchange{err: dial(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})}, push.Result{Outcome: push.Wait, Reason: "tls"}},
		"not public":           {exchange{err: dial(&net.OpError{Op: "dial", Err: errNotPublic})}, push.Result{Outcome: push.Wait, Reason: "forbidden_address", Pause: notPublicPause}},
		"connecting timed out": {exchange{err: dial(context.DeadlineExceeded)}, push.Result{Outcome: push.Wait, Reason: "timeout"}},
		"closed":               {exchange{err: h2pool.ErrClosed}, push.Result{Outcome: push.Wait, Reason: "connection"}},
		"no time to connect":   {exchange{err: context.DeadlineExceeded}, push.Result{Outcome: push.Wait, Reason: "timeout"}},
		"stopped before":       {exchange{err: context.Canceled}, push.Result{Outcome: push.Wait, Reason: "timeout"}},
		"stopped after":        {exchange{err: context.Canceled, fate: h2pool.Written}, push.Result{Outcome: push.Ambiguous, Reason: "timeout"}},
		"no answer in time":    {exchange{err: fmt.Errorf("x: %w", context.DeadlineExceeded), fate: h2pool.Written}, push.Result{Outcome: push.Ambiguous, Reason: "timeout"}},
		"cut off":              {exchange{err: io.ErrUnexpectedEOF, fate: h2pool.Written}, push.Result{Outcome: push.Ambiguous, Reason: "connection"}},
		"cut off before":       {exchange{err: io.EOF}, push.Result{Outcome: push.Wait, Reason: "connection"}},
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
		r := exchange{status: status, header: h2pool.Header{{Name: "retry-after", Value: "7"}}}.classify()
		isKey := r.Outcome == push.Credentials && (status == 401 || status == 403) // these wait, too
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
	for _, err := range []error{io.EOF, errNotPublic, context.Canceled} {
		for fate := h2pool.NotWritten; fate <= h2pool.Written; fate++ {
			result := exchange{err: err, fate: fate}.classify()
			if result.Outcome == push.Gone || fate == h2pool.Written && result.Outcome != push.Ambiguous && !errors.Is(err, errNotPublic) {
				t.Errorf("fate %d, and %v: %+v", fate, err, result)
			}
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
		"connection": true, "timeout": true, "dns": true, "tls": true, "dial": true, "forbidden_address": true, push.ReasonGoAway: true, push.ReasonRefused: true,
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
