package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/fcm"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/testing/apnstest"
	"github.com/activityd/activityd/internal/testing/fcmtest"
	"github.com/activityd/activityd/internal/testing/pushtest"
	"github.com/activityd/activityd/internal/testing/webpushtest"
)

// pushServices are a push service of each platform, and the settings of a serve that sends to
// them.
type pushServices struct {
	apns     *apnstest.Server
	web      *webpushtest.Server
	fcm      *fcmtest.Server
	dir      string // of the keys
	key      string // applicationServerKey
	settings []string
}

func startPushServices(t *testing.T) *pushServices {
	t.Helper()
	p := &pushServices{apns: apnstest.Start(t), dir: t.TempDir()}
	var err error
	p.web, err = webpushtest.Start(webpushtest.Options{})
	must(t, err)
	t.Cleanup(p.web.Close)
	p.fcm, err = fcmtest.Start()
	must(t, err)
	t.Cleanup(func() { _ = p.fcm.Close() })
	p.key = strings.TrimSpace(succeed(t, "push", "keys", p.file("webpush.pem")))
	p.write(t, "AuthKey_"+p.apns.KeyID()+".p8", p.apns.Key())
	must(t, os.Symlink("AuthKey_"+p.apns.KeyID()+".p8", p.file("apns.p8")))
	p.write(t, "fcm.json", p.fcm.Credentials())
	p.settings = []string{
		"ACTIVITYD_APNS_KEY=" + p.file("apns.p8"), "ACTIVITYD_APNS_TEAM_ID=" + p.apns.TeamID(), "ACTIVITYD_APNS_TOPIC=" + p.apns.Topic(), "ACTIVITYD_APNS_URL=" + p.apns.URL(),
		"ACTIVITYD_WEBPUSH_KEY=" + p.file("webpush.pem"), "ACTIVITYD_WEBPUSH_SUBJECT=mailto:you@photos.example", "ACTIVITYD_WEBPUSH_HOSTS=127.0.0.1",
		"ACTIVITYD_FCM_CREDENTIALS=" + p.file("fcm.json"), "ACTIVITYD_FCM_URL=" + p.fcm.URL(),
	}
	return p
}

// trust has a serve know the push services by their certificates.
func (p *pushServices) trust(c *config) {
	c.push.roots = pushtest.Roots(slices.Concat(p.apns.RootsPEM(), p.web.RootsPEM(), p.fcm.RootsPEM())).RootCAs()
}

func (p *pushServices) file(name string) string { return filepath.Join(p.dir, name) }

// write replaces a file whole, as an operator should.
func (p *pushServices) write(t *testing.T, name string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(p.file(name+".new"), text, 0o600))
	must(t, os.Rename(p.file(name+".new"), p.file(name)))
}

// apnsToken and fcmToken are the addresses of devices of viewer 1.
var apnsToken = hex.EncodeToString([]byte("the token of an iPhone, 32 bytes"))

const fcmToken = "a-phone:APA91bG"

// register makes a device of each platform for viewer 1, and returns the browser's
// subscription.
func (p *pushServices) register(t *testing.T, r *running) *webpushtest.Subscription {
	t.Helper()
	return p.registerFor(t, r, 1)
}

func (p *pushServices) registerFor(t *testing.T, r *running, id member.ID) *webpushtest.Subscription {
	t.Helper()
	browser, err := p.web.Subscribe(p.key)
	must(t, err)
	for _, body := range []string{
		`{"platform":"apns","token":"` + apnsToken + `","environment":"production"}`,
		`{"platform":"webpush","subscription":` + string(browser.JSON()) + `}`,
		`{"platform":"fcm","token":"` + fcmToken + `"}`,
	} {
		if status, text := r.request(t, http.MethodPut, "/v1/users/"+id.String()+"/devices", body); status != 200 {
			t.Fatalf("%s: %d %s", body, status, text)
		}
	}
	return browser
}

func (r *running) request(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(text)
}

// accepted returns the ids of the events that each push service accepted, sorted.
func (p *pushServices) accepted(t *testing.T) map[push.Platform][]string {
	t.Helper()
	ids := make(map[push.Platform][]string)
	add := func(platform push.Platform, payload []byte) {
		var content struct{ Event string }
		if err := json.Unmarshal(payload, &content); err != nil {
			t.Fatalf("%s: %v in %s", platform, err, payload)
		}
		ids[platform] = append(ids[platform], content.Event)
	}
	for _, a := range p.apns.Accepted() {
		add(apns.Platform, a.Payload)
	}
	for _, a := range p.web.Accepted() {
		add(webpush.Platform, a.Payload)
	}
	for _, a := range p.fcm.Accepted() {
		ids[fcm.Platform] = append(ids[fcm.Platform], a.Data["event"])
	}
	for _, list := range ids {
		slices.Sort(list)
	}
	return ids
}

// An event by each of the three ways in reaches a device of each platform, and no
// device twice. push show tells of it, without a secret.
func TestPushEndToEnd(t *testing.T) {
	t.Parallel()
	p := startPushServices(t)
	r := startAllWith(t, p.trust, p.settings...)
	r.makeSite(t, 1)
	browser := p.register(t, r)
	ctx := t.Context()
	result, err := r.db.ExecContext(ctx, `INSERT INTO tasks (type, subject, args) VALUES
		('notify', 101, JSON_OBJECT('type', 'upload', 'object', 'photo:101000', 'recipients', JSON_ARRAY('1')))`)
	must(t, err)
	row, err := result.LastInsertId()
	must(t, err)
	must(t, r.client.Do(ctx, "XADD", "activityd_events", "*", "task",
		`{"type":"notify","user_id":"101","event":{"id":"by-stream","type":"fave","recipients":["1"]}}`).Err())
	if status, text := r.request(t, http.MethodPost, "/v1/events",
		`{"events":[{"id":"by-http","type":"comment","actor_id":"101","recipients":["1"],"title":"Ann","body":"Nice!"}]}`); status != 202 {
		t.Fatalf("%d %s", status, text)
	}
	byRow := fmt.Sprintf("task-%d", row)
	all := []string{"by-http", "by-stream", byRow}
	want := map[push.Platform][]string{apns.Platform: all, webpush.Platform: all, fcm.Platform: all}
	eventually(t, "all are accepted", func() bool { return cmp.Equal(want, p.accepted(t)) })
	r.awaitTasks(t)
	if diff := cmp.Diff(want, p.accepted(t)); diff != "" {
		t.Error(diff)
	}
	if n := r.client.XLen(ctx, "activityd_events").Val(); n != 0 {
		t.Errorf("%d entries are left in the stream", n)
	}
	secrets := []string{apnsToken, fcmToken, browser.Endpoint(), browser.ID()}
	dsn := "--mysql-dsn=" + r.config.mysqlDSN
	for _, id := range all {
		out := succeed(t, "push", "show", id, dsn)
		if !strings.HasPrefix(out, "event "+id+"\n") || !strings.Contains(out, "3 accepted\n") {
			t.Errorf("push show %s prints\n%s", id, out)
		}
		for _, platform := range []push.Platform{apns.Platform, webpush.Platform, fcm.Platform} {
			if !regexp.MustCompile(" " + string(platform) + " +accepted ").MatchString(out) {
				t.Errorf("push show %s does not tell of %s:\n%s", id, platform, out)
			}
		}
		for _, secret := range secrets {
			if strings.Contains(out, secret) {
				t.Errorf("push show %s tells a secret:\n%s", id, out)
			}
		}
	}
}

func TestHalfGivenSettingsOfPush(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	succeed(t, "push", "keys", key)
	bad := filepath.Join(t.TempDir(), "bad")
	must(t, os.WriteFile(bad, []byte("s3cret"), 0o600))
	for given, want := range map[string]string{
		"APNS_KEY=k":                                                 "ACTIVITYD_APNS_TEAM_ID: is missing: ACTIVITYD_APNS_KEY needs it",
		"APNS_KEY=k APNS_TEAM_ID=t":                                  "ACTIVITYD_APNS_TOPIC: is missing",
		"APNS_TOPIC=t":                                               "ACTIVITYD_APNS_KEY: is missing: ACTIVITYD_APNS_TOPIC needs it",
		"APNS_URL=https://a.example":                                 "ACTIVITYD_APNS_KEY: is missing: ACTIVITYD_APNS_URL needs it",
		"WEBPUSH_KEY=k":                                              "ACTIVITYD_WEBPUSH_SUBJECT: is missing",
		"WEBPUSH_SUBJECT=mailto:a@b.example":                         "ACTIVITYD_WEBPUSH_KEY: is missing",
		"FCM_URL=https://f.example":                                  "ACTIVITYD_FCM_CREDENTIALS: is missing",
		"FCM_CREDENTIALS=k FCM_URL=http://f":                         "ACTIVITYD_FCM_URL: want https://",
		"WEBPUSH_HOSTS=http://a":                                     `ACTIVITYD_WEBPUSH_HOSTS: "http://a": want hosts`,
		"FCM_CREDENTIALS=/nowhere":                                   "ACTIVITYD_FCM_CREDENTIALS: stat /nowhere",
		"FCM_CREDENTIALS=" + bad:                                     "ACTIVITYD_FCM_CREDENTIALS: " + bad,
		"WEBPUSH_KEY=" + key + " WEBPUSH_SUBJECT=me":                 "ACTIVITYD_WEBPUSH_KEY",
		"WEBPUSH_KEY=" + bad + " WEBPUSH_SUBJECT=mailto:a@b.example": "ACTIVITYD_WEBPUSH_KEY",
		"APNS_KEY=" + bad + " APNS_TEAM_ID=ABCDEFGHIJ APNS_TOPIC=t":  "ACTIVITYD_APNS_KEY",
	} {
		var environ []string
		for setting := range strings.FieldsSeq(given) {
			environ = append(environ, settings.Prefix+setting)
		}
		code, out, errs := command(t, environ, "serve", "--mysql-dsn=user@tcp(127.0.0.1:1)/db", "--metrics-listen=")
		if code != exitFailed || !strings.Contains(errs, want) || strings.Contains(out+errs, "s3cret") {
			t.Errorf("%s: exit code %d, %q, want %q", given, code, errs, want)
		}
	}
}

func TestPushKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	code, public, notes := command(t, nil, "push", "keys", file)
	info, err := os.Stat(file)
	if code != exitOK || err != nil || info.Mode() != 0o600 || len(strings.TrimSpace(public)) != 87 || !strings.Contains(notes, file) {
		t.Fatalf("exit code %d, %v, %q, %q", code, err, public, notes)
	}
	before, err := os.ReadFile(file)
	must(t, err)
	if strings.Contains(public+notes, strings.Split(string(before), "\n")[1]) {
		t.Error("it prints the private key")
	}
	code, public, errs := command(t, nil, "push", "keys", file)
	after, err := os.ReadFile(file)
	must(t, err)
	if code != exitFailed || public != "" || !strings.Contains(errs, "is there already") || !bytes.Equal(after, before) {
		t.Errorf("a second time: exit code %d, %q, %q", code, public, errs)
	}
}

// push show tells of an event before it is targeted, while deliveries wait, and of members who are not notified.
func TestPushShow(t *testing.T) {
	t.Parallel()
	r := startAll(t, "--role=api")
	r.makeSite(t, 1)
	dsn := "--mysql-dsn=" + r.config.mysqlDSN
	show := func(words ...string) string {
		t.Helper()
		return succeed(t, append([]string{"push", "show", dsn}, words...)...)
	}
	for _, put := range [][2]string{
		{"/v1/users/1/devices", `{"platform":"fcm","token":"` + fcmToken + `-1"}`},
		{"/v1/users/1/devices", `{"platform":"fcm","token":"` + fcmToken + `-2"}`},
		{"/v1/users/101/devices", `{"platform":"fcm","token":"another"}`},
		{"/v1/users/101/push-settings", `{"types":{"fave":false}}`},
	} {
		if status, text := r.request(t, http.MethodPut, put[0], put[1]); status/100 != 2 {
			t.Fatalf("%s: %d %s", put, status, text)
		}
	}
	if status, text := r.request(t, http.MethodPost, "/v1/events",
		`{"events":[{"id":"e1","type":"fave","actor_id":"1","recipients":["1","101","999"],"title":"Secretly","body":"b"}]}`); status != 202 {
		t.Fatalf("%d %s", status, text)
	}
	if out := show("e1"); !strings.HasPrefix(out, "the event has not been targeted yet\ntask ") || !strings.Contains(out, "type          notify") {
		t.Errorf("before targeting:\n%s", out)
	}
	targeting := start(t, configFor(t, r.config.mysqlDSN, r.config.redisURL, "--role=workers"))
	eventually(t, "it is targeted", func() bool {
		list := r.open(t)
		return len(list) == 1 && list[0].Kind == push.Deliver && list[0].LastError != "" // for both devices: this process has no keys
	})
	must(t, targeting.stop())
	out := show("e1")
	for _, want := range []string{"event e1\n", "for           3 recipients\n", "1 skipped (opted_out)", "1 skipped (no_device)", "MEMBER"} {
		if !strings.Contains(out, want) {
			t.Errorf("while deliveries wait, there is no %q:\n%s", want, out)
		}
	}
	rows := regexp.MustCompile(`(?m)^(\S+) +\S+ +\S+ +(skipped|scheduled|waiting) .*$`).FindAllStringSubmatch(out, -1)
	if len(rows) != 4 || strings.Contains(out, fcmToken) {
		t.Errorf("of each device, and no token, is told\n%s", out)
	}
	if out := show(strconv.FormatUint(r.open(t)[0].ID, 10)); !strings.HasPrefix(out, "event e1\n") {
		t.Errorf("of its delivery is told:\n%s", out)
	}
	if out := show("e1", "--member=101"); !strings.Contains(out, "\n101 ") || strings.Contains(out, "\n999 ") || strings.Contains(out, "\n1 ") {
		t.Errorf("of one member:\n%s", out)
	}
	// Deliveries wait for a process with the keys until shortly before the event expires.
	_, err := r.db.ExecContext(t.Context(), "UPDATE push_events SET expires_at = "+mysql.Now+" + 9000")
	must(t, err)
	start(t, configFor(t, r.config.mysqlDSN, r.config.redisURL, "--role=workers"))
	r.awaitTasks(t)
	out = show("e1")
	off := regexp.MustCompile(`(?m)^1 +\d+ +fcm +skipped +(off|expired) `) // the latter after a stall of the machine
	if len(off.FindAllString(out, -1)) != 2 {
		t.Errorf("without keys:\n%s", out)
	}
	id := strings.TrimSpace(succeed(t, "enqueue", "refill", "1", dsn, "--queue=held"))
	for _, name := range []string{"e2", "task-99999", "99999", id} {
		if code, out, errs := command(t, nil, "push", "show", dsn, name); code != exitFailed || out != "" || !strings.Contains(errs, "there is no event or task "+name) {
			t.Errorf("%s: exit code %d, %q, %q", name, code, out, errs)
		}
	}
}
