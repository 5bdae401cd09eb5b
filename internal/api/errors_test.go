package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/queue"
)

// failing makes both interfaces fail with err.
func failing(t testing.TB, err error) *bundle {
	t.Helper()
	b := setup(t)
	b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) { return recent.Answer{}, err }
	b.enqueuer.enqueue = func(context.Context, []queue.New) ([]uint64, error) { return nil, err }
	return b
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err        error
		status     int
		slug       string
		retryAfter int // seconds, or up to twice as many; 0: none
		level      string
	}{
		{recent.ErrBusy, 503, "busy", 1, "DEBUG"}, // there may be any number of them, and a line a minute counts them
		{mysql.ErrBusy, 503, "busy", 1, "WARN"},
		{mysql.ErrUnavailable, 503, "unavailable", 5, "WARN"},
		{context.DeadlineExceeded, 504, "deadline-exceeded", 0, "WARN"},
		{context.Canceled, 503, "unavailable", 5, "WARN"},
		{errors.New("secret of the house"), 500, "internal", 0, "ERROR"},
	} {
		t.Run(test.slug, func(t *testing.T) {
			t.Parallel()
			b := failing(t, fmt.Errorf("deep down: %w", test.err))
			for _, w := range []*httptest.ResponseRecorder{b.get(t, readPath), b.post(t, `{"type":"upload","user_id":"1"}`)} {
				wantProblem(t, w, test.status, test.slug)
				got, err := strconv.Atoi(w.Header().Get("Retry-After"))
				if (err != nil) != (test.retryAfter == 0) || got < test.retryAfter || got > 2*test.retryAfter {
					t.Errorf("Retry-After = %q, want %d to twice that", w.Header().Get("Retry-After"), test.retryAfter)
				}
				if strings.Contains(w.Body.String(), "deep down") {
					t.Errorf("the cause is shown to the client: %s", w.Body)
				}
			}
			line := b.log.last(t)
			if line["level"] != test.level || !strings.Contains(line["error"].(string), "deep down") {
				t.Errorf("log = %v, want the cause at %s", line, test.level)
			}
		})
	}
}

// That a repetition is safe is said only where it is so.
func TestATimeoutSaysWhetherToRepeat(t *testing.T) {
	t.Parallel()
	b := failing(t, context.DeadlineExceeded)
	const safe, unsafe = "repeating the request is safe", "without an Idempotency-Key a repetition is another one"
	for want, answers := range map[string][]*httptest.ResponseRecorder{
		safe:   {b.get(t, readPath), b.postWith(t, oneUpload, "k")},
		unsafe: {b.post(t, oneUpload)},
	} {
		for _, w := range answers {
			wantProblem(t, w, http.StatusGatewayTimeout, "deadline-exceeded")
			for _, words := range []string{safe, unsafe} {
				if strings.Contains(w.Body.String(), words) != (words == want) {
					t.Errorf("%s, want %q", w.Body, want)
				}
			}
		}
	}
}

func TestClientGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.reader.read = func(ctx context.Context, _ contacts.Viewer, _ int) (recent.Answer, error) {
		cancel()
		<-ctx.Done()
		return recent.Answer{}, ctx.Err()
	}
	w := httptest.NewRecorder()
	b.server.Handler().ServeHTTP(w, newRequest(ctx, http.MethodGet, readPath, http.NoBody))
	if w.Body.Len() > 0 {
		t.Errorf("wrote %q to no client", w.Body)
	}
	if line := b.log.last(t); line["level"] != "DEBUG" || line["status"] != 499.0 {
		t.Errorf("log = %v, want status 499 at DEBUG", line)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) { panic("out of film") }
	w := b.get(t, readPath)
	wantProblem(t, w, http.StatusInternalServerError, "internal")
	if strings.Contains(w.Body.String(), "film") {
		t.Errorf("the panic is shown to the client: %s", w.Body)
	}
	line := b.log.last(t)
	stack, _ := line["stack"].(string)
	if line["level"] != "ERROR" || !strings.Contains(line["error"].(string), "out of film") || !strings.Contains(stack, "errors_test.go") {
		t.Errorf("log = %v, want the panic and its place", line)
	}
	b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) { return goodAnswer(), nil }
	if w := b.get(t, readPath); w.Code != http.StatusOK {
		t.Errorf("the next request: %d", w.Code)
	}
}

func TestAbortIsLeftToTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) { panic(http.ErrAbortHandler) }
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("recovered %v, want http.ErrAbortHandler", err)
		}
	}()
	b.get(t, readPath)
	t.Error("no panic")
}

func TestUnknownPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/v1", "/v1/users", "/v1/users/1", readPath + "/", "/v1/tasks/", "/secret-token-in-a-path"} {
		wantProblem(t, b.get(t, path), http.StatusNotFound, "not-found")
	}
	if log := b.log.String(); strings.Contains(log, "secret-token") || b.log.last(t)["route"] != "unmatched" {
		t.Errorf("the log shows raw paths:\n%s", log)
	}
}

func TestWrongMethod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, allow := range map[string]string{readPath: "OPTIONS, GET, HEAD", "/v1/tasks": "OPTIONS, POST", "/healthz": "OPTIONS, GET, HEAD"} {
		w := b.do(t, newRequest(t.Context(), http.MethodDelete, path, http.NoBody))
		wantProblem(t, w, http.StatusMethodNotAllowed, "method-not-allowed")
		if got := w.Header().Get("Allow"); got != allow {
			t.Errorf("%s: Allow = %q, want %q", path, got, allow)
		}
	}
}

func TestRequestLog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.get(t, readPath+"?limit=3")
	line := b.log.last(t)
	for key, want := range map[string]any{
		"level": "DEBUG", "method": "GET", "route": "/v1/users/:id/recent-contact-photos", "status": 200.0,
	} {
		if line[key] != want {
			t.Errorf("%s = %v, want %v", key, line[key], want)
		}
	}
	if d, ok := line["duration"].(float64); !ok || d < 0 {
		t.Errorf("duration = %v", line["duration"])
	}
	if strings.Contains(b.log.String(), "12345") {
		t.Errorf("the log shows the raw path: %s", b.log)
	}
	for path, want := range map[string]string{"/healthz": "DEBUG", readPath + "?limit=none": "INFO"} {
		b.get(t, path)
		if line := b.log.last(t); line["level"] != want {
			t.Errorf("%s is logged at %v, want %s", path, line["level"], want)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for given, kept := range map[string]bool{
		"abc-DEF_1.2":           true,
		strings.Repeat("a", 64): true,
		strings.Repeat("a", 65): false,
		"":                      false,
		"a b":                   false,
		"a\nlevel=ERROR":        false,
		"é":                     false,
		`"}`:                    false,
	} {
		r := newRequest(t.Context(), http.MethodGet, "/healthz", http.NoBody)
		r.Header[http.CanonicalHeaderKey("X-Request-ID")] = []string{given}
		got := b.do(t, r).Header().Get("X-Request-ID")
		if (got == given) != kept || got == "" {
			t.Errorf("given %q, got %q, want kept = %t", given, got, kept)
		}
		if logged := b.log.last(t)["request_id"]; logged != got {
			t.Errorf("logged %q, want %q", logged, got)
		}
	}
}

func TestALoginThatIsRefused(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1044, 1045, 1049} {
		b := failing(t, mysql.Translate(t.Context(), "deep down", &driver.MySQLError{Number: number, Message: "user 'app'@'db1'"}))
		for _, w := range []*httptest.ResponseRecorder{b.get(t, readPath), b.post(t, oneUpload)} {
			wantProblem(t, w, http.StatusServiceUnavailable, "unavailable")
			if strings.Contains(w.Body.String(), "app") {
				t.Errorf("the cause is shown to the client: %s", w.Body)
			}
		}
		if line := b.log.last(t); line["level"] != "WARN" || !strings.Contains(line["error"].(string), "deep down") {
			t.Errorf("log = %v, want the cause", line)
		}
	}
}
