package push_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/platforms"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// front is the HTTP API over a real store and queue, with the senders' own rules of
// addresses.
type front struct {
	db      *sql.DB
	handler http.Handler
	log     *strings.Builder // of requests in turn
}

func newFront(t *testing.T) *front {
	t.Helper()
	f := &front{db: openDB(t), log: &strings.Builder{}}
	exec(t, f.db, "INSERT INTO users (id, username) VALUES (5, 'alice'), (6, 'bob')")
	f.handler = api.New(api.Config{
		Reader: noReader{}, Enqueuer: queue.NewQueue(f.db, queue.Options{Kinds: tasks.Kinds()}), Health: func() api.Health { return api.Health{} },
		Logger: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Push:   push.NewMySQL(f.db), Platforms: platforms.All(),
		CheckAddress: func(_ context.Context, platform push.Platform, a push.Address) error {
			i := slices.IndexFunc(platforms.All(), func(k push.Kind) bool { return k.Platform == platform })
			return platforms.All()[i].Check(func(string) string { return "" }, a)
		},
	}).Handler()
	return f
}

type noReader struct{ api.Reader }

// send returns the status and the body of an answer.
func (f *front) send(t *testing.T, method, target, body string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, io.NopCloser(strings.NewReader(body)))
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:50000"
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// want fails the test unless the answer is as it should be.
func (f *front) want(t *testing.T, status int, answer, method, target, body string) {
	t.Helper()
	if code, got := f.send(t, method, target, body); code != status || answer != "" && got != answer {
		t.Errorf("%s %s %.200s: %d %s, want %d %s", method, target, body, code, got, status, answer)
	}
}

// rows counts all that push and its producers can have stored.
func (f *front) rows(t *testing.T) (n int) {
	t.Helper()
	must(t, f.db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM push_devices) + (SELECT COUNT(*) FROM push_settings)"+
		" + (SELECT COUNT(*) FROM push_mutes) + (SELECT COUNT(*) FROM tasks)").Scan(&n))
	return n
}

// The keys of the vector of RFC 8291.
const (
	p256dh  = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
	authKey = "BTBZMqHH6r4Tts7J_aSIgg"
)

func browser(endpoint, p256dh, auth string) string {
	return fmt.Sprintf(`{"platform":"webpush","subscription":{"endpoint":%q,"expirationTime":null,"keys":{"p256dh":%q,"auth":%q}}}`, endpoint, p256dh, auth)
}

// An address that cannot be, and a member who is not there, are refused, and nothing is stored.
func TestBadInputStoresNothing(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	const apnsToken = "740f4707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bb78ad"
	for body, field := range map[string]string{
		`{"platform":"apns","token":"` + apnsToken[1:] + `","environment":"production"}`: "token",
		`{"platform":"fcm","token":"a b"}`:                                               "token",
		browser("https://push.example/a", p256dh, authKey):                               "subscription",
		browser("https://fcm.googleapis.com/a", p256dh[:40], authKey):                    "subscription",
	} {
		code, answer := f.send(t, http.MethodPut, "/v1/users/5/devices", body)
		var p struct{ Field string }
		if err := json.Unmarshal([]byte(answer), &p); err != nil || code != http.StatusBadRequest || p.Field != field {
			t.Errorf("%s: %d %s, want 400 for %s", body, code, answer, field)
		}
	}
	for path, body := range map[string]string{"devices": `{"platform":"fcm","token":"t"}`, "push-settings": `{}`, "mutes": `{"object":"user:5","until":4102444800}`} {
		f.want(t, http.StatusNotFound, "", http.MethodPut, "/v1/users/7/"+path, body)
		f.want(t, http.StatusNotFound, "", http.MethodGet, "/v1/users/7/"+path, "")
		f.want(t, http.StatusOK, "", http.MethodGet, "/v1/users/6/"+path, "")
	}
	if n := f.rows(t); n != 0 {
		t.Errorf("%d rows were stored", n)
	}
}

func TestDevicesSettingsAndMutesOverHTTP(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	const token = "740f4707bebcf74f9b7c25d48e3358945f6aa01da5ddb387462c7eaf61bb78ad"
	phone := `{"platform":"apns","token":"` + token + `","environment":"sandbox"}`
	for _, again := range []string{phone, strings.Replace(phone, token, strings.ToUpper(token), 1)} { // the second confirms
		f.want(t, http.StatusOK, `{"device_id":"1"}`, http.MethodPut, "/v1/users/5/devices", again)
	}
	f.want(t, http.StatusOK, "", http.MethodPut, "/v1/users/5/devices", browser("https://fcm.googleapis.com/secret", p256dh, authKey))
	_, list := f.send(t, http.MethodGet, "/v1/users/5/devices", "")
	for _, want := range []string{`{"id":"1","platform":"apns",`, `"environment":"sandbox"`, `"push_service":"fcm.googleapis.com"`} {
		if !strings.Contains(list, want) {
			t.Errorf("listed %s, want %s", list, want)
		}
	}
	// The hash by which addresses are the same device must not change: rows would be there twice.
	kept := column(t, f.db, "SELECT COUNT(*) FROM push_devices WHERE address_hash = UNHEX(SHA2(CONCAT(platform, CHAR(0),"+
		" COALESCE(LOWER(JSON_UNQUOTE(JSON_EXTRACT(address, '$.token'))), JSON_UNQUOTE(JSON_EXTRACT(address, '$.endpoint')))), 256))")
	if kept[0] != "2" {
		t.Errorf("of 2 devices, %s have the key of before", kept[0])
	}
	f.want(t, http.StatusOK, `{"device_id":"1"}`, http.MethodPut, "/v1/users/6/devices", phone) // it moves
	f.want(t, http.StatusNotFound, "", http.MethodDelete, "/v1/users/5/devices/1", "")
	f.want(t, http.StatusNoContent, "", http.MethodDelete, "/v1/users/6/devices/1", "")
	f.want(t, http.StatusOK, `{"devices":[]}`, http.MethodGet, "/v1/users/6/devices", "")

	settings := `{"types":{"upload":false},"quiet_hours":{"from":"22:00","to":"07:00","time_zone":"Europe/Berlin"}}`
	for range 2 {
		f.want(t, http.StatusOK, settings, http.MethodPut, "/v1/users/5/push-settings", settings)
	}
	f.want(t, http.StatusOK, settings, http.MethodGet, "/v1/users/5/push-settings", "")
	f.want(t, http.StatusOK, `{"types":{},"quiet_hours":null}`, http.MethodPut, "/v1/users/5/push-settings", `{}`)
	f.want(t, http.StatusOK, `{"types":{},"quiet_hours":null}`, http.MethodGet, "/v1/users/5/push-settings", "")

	mute := fmt.Sprintf(`{"object":"photo:901","until":%d}`, time.Now().Add(9*365*24*time.Hour).Unix())
	for range 2 {
		f.want(t, http.StatusNoContent, "", http.MethodPut, "/v1/users/5/mutes", mute)
	}
	f.want(t, http.StatusOK, `{"mutes":[`+mute+`]}`, http.MethodGet, "/v1/users/5/mutes", "")
	f.want(t, http.StatusNoContent, "", http.MethodDelete, "/v1/users/5/mutes?object=photo:901", "")
	f.want(t, http.StatusNotFound, "", http.MethodDelete, "/v1/users/5/mutes?object=photo:901", "")
	for _, secret := range []string{token, "/secret", p256dh, authKey} {
		if strings.Contains(f.log.String()+list, secret) {
			t.Errorf("%s is shown in %s or the log:\n%s", secret, list, f.log)
		}
	}
}

// A request that is repeated under a key adds nothing.
func TestEventsOverHTTP(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	e := `{"type":"upload","actor_id":"5","recipients":"followers","title":"t","body":"b\ud83d"}`
	body := `{"events":[` + e + `,` + e + `]}`
	code, first := f.send(t, http.MethodPost, "/v1/events", body, "Idempotency-Key", "k")
	if again, answer := f.send(t, http.MethodPost, "/v1/events", body, "Idempotency-Key", "k"); code != http.StatusAccepted || again != code || answer != first {
		t.Errorf("%d %s, then %d %s", code, first, again, answer)
	}
	if code, answer := f.send(t, http.MethodPost, "/v1/events", `{"events":[`+e+`]}`, "Idempotency-Key", "k"); code != http.StatusUnprocessableEntity {
		t.Errorf("another body: %d %s", code, answer)
	}
	if n := f.rows(t); n != 2 {
		t.Errorf("%d tasks, want 2", n)
	}
	named := strings.Replace(e, `{`, `{"id":"e1",`, 1)
	f.want(t, http.StatusAccepted, `{"events":[{"id":"e1"}]}`, http.MethodPost, "/v1/events", `{"events":[`+named+`]}`)
	raw, err := json.Marshal(largest())
	must(t, err)
	var fields map[string]any
	must(t, json.Unmarshal(raw, &fields))
	fields["actor_id"] = "18446744073709551615"
	raw, err = json.Marshal(fields)
	must(t, err)
	if code, answer := f.send(t, http.MethodPost, "/v1/events", `{"events":[`+string(raw)+`]}`); code != http.StatusAccepted {
		t.Errorf("the largest event: %d %s", code, answer)
	}
	q := queue.NewQueue(f.db, queue.Options{Kinds: tasks.Kinds()})
	tasks, err := q.Claim(t.Context(), push.QueuePush, 10, time.Minute)
	must(t, err)
	urgent, err := q.Claim(t.Context(), push.QueueUrgent, 10, time.Minute)
	must(t, err)
	if len(tasks) != 3 || len(urgent) != 1 { // the largest is urgent
		t.Fatalf("claimed %d tasks and %d urgent ones", len(tasks), len(urgent))
	}
	tasks = append(tasks, urgent...)
	for _, task := range tasks {
		e, err := push.ParseEvent(5, task.Payload)
		if err != nil || e.ID == "" || e.Body == "" {
			t.Errorf("%s: %v", task.Payload, err)
		}
	}
}

// The requests of docs/push.md are taken, in their order.
func TestTheRequestsOfTheManual(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	exec(t, f.db, "INSERT INTO users (id, username) VALUES (123, 'carol'), (98765, 'ann')")
	page, err := os.ReadFile("../../docs/push.md")
	must(t, err)
	text := strings.ReplaceAll(string(page), "\\\n", " ")
	done := 0
	for _, line := range regexp.MustCompile(`(?m)^curl .*$`).FindAllString(text, -1) {
		found := regexp.MustCompile(`(?:-X (\w+) )?'?http://127\.0\.0\.1:8080([^ ']+)(?:.* -d '(.*)')?`).FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("%s: not understood", line)
		}
		if code, answer := f.send(t, cmp.Or(found[1], http.MethodGet), found[2], found[3]); code >= 300 {
			t.Errorf("%s: %d %s", line, code, answer)
		}
		done++
	}
	if done < 8 {
		t.Errorf("the manual has %d requests", done)
	}
}
