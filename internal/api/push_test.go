package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/push"
)

const (
	devicesPath  = "/v1/users/5/devices"
	settingsPath = "/v1/users/5/push-settings"
	mutesPath    = "/v1/users/5/mutes"
)

// The keys of the vector of RFC 8291.
const (
	p256dh  = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
	authKey = "BTBZMqHH6r4Tts7J_aSIgg"
)

func subscription(endpoint string) string {
	return fmt.Sprintf(`{"platform":"webpush","subscription":{"endpoint":%q,"expirationTime":null,"keys":{"p256dh":%q,"auth":%q}}}`, endpoint, p256dh, authKey)
}

// address is an address as it is kept, by any platform.
type address struct {
	Token, Endpoint string
	Sandbox         bool
	P256DH, Auth    []byte
}

// Registrations are stored, of any platform. The rest of a device's life is tested on a real store, in package push.
func TestDevices(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, test := range []struct {
		body     string
		platform push.Platform
		want     address
	}{
		{`{"platform":"apns","token":"0A1b","environment":"sandbox"}`, "apns", address{Token: "0A1b", Sandbox: true}},
		{`{"platform":"fcm","token":"t:2","language":"de-CH"}`, "fcm", address{Token: "t:2"}},
		// Padded, and of the standard alphabet.
		{
			strings.NewReplacer("-", "+", "_", "/", authKey, authKey+"==").Replace(subscription("https://push.example/secret")),
			"webpush",
			address{Endpoint: "https://push.example/secret"},
		},
	} {
		foreseen(t, newJSON(t.Context(), http.MethodPut, devicesPath, test.body))
		if w := b.send(t, http.MethodPut, devicesPath, test.body); w.Code != http.StatusOK || w.Body.String() != fmt.Sprintf(`{"device_id":"%d"}`, i+1) {
			t.Fatalf("%s: %d %s", test.body, w.Code, w.Body)
		}
		got := b.push.devices[i]
		var a address
		if err := got.Address.Decode(&a); err != nil || got.Member != 5 || got.Platform != test.platform {
			t.Errorf("%s: %+v, %v", test.body, got, err)
		}
		if test.platform == "webpush" {
			if len(a.P256DH) != 65 || a.P256DH[0] != 4 || len(a.Auth) != 16 || !bytes.HasPrefix(a.Auth, []byte{0x05, 0x30, 0x59}) {
				t.Errorf("%s: keys %x, %x", test.body, a.P256DH, a.Auth)
			}
			a.P256DH, a.Auth = nil, nil
		}
		if diff := cmp.Diff(test.want, a); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", test.body, diff)
		}
	}
	b.push.devices[0].Gone, b.push.devices[0].GoneReason = time.Unix(1795400000, 0), "Unregistered"
	want := `{"devices":[{"id":"1","platform":"apns","registered_at":1795300000,"gone_at":1795400000,"gone_reason":"Unregistered"},` +
		`{"id":"2","platform":"fcm","registered_at":1795300000,"language":"de-CH"},` +
		`{"id":"3","platform":"webpush","registered_at":1795300000,"push_service":"push.example"}]}`
	if w := b.get(t, devicesPath); w.Body.String() != want {
		t.Errorf("listed %s\nwant   %s", w.Body, want)
	}
	if p := wantProblem(t, b.do(t, newRequest(t.Context(), http.MethodDelete, devicesPath+"/x", http.NoBody)), http.StatusBadRequest, "invalid-parameter"); p.Field != "device" {
		t.Errorf("field %q", p.Field)
	}
}

// A host name that takes long to resolve leaves time to register the device.
func TestTheCheckOfAnAddressIsBounded(t *testing.T) {
	t.Parallel()
	const timeout = time.Hour
	b := setup(t, func(c *api.Config) {
		c.RequestTimeout = timeout
		c.CheckAddress = func(ctx context.Context, _ push.Platform, _ push.Address) error {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > timeout/2 {
				t.Errorf("it may take until %v", deadline)
			}
			return nil
		}
	})
	if w := b.send(t, http.MethodPut, devicesPath, `{"platform":"fcm","token":"t"}`); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// refused fails the test unless each body is refused for its fields, and nothing is stored.
func refused(t *testing.T, path string, bodies map[string]string) {
	t.Helper()
	for body, want := range bodies {
		b := setup(t)
		p := wantProblem(t, b.send(t, http.MethodPut, path, body), http.StatusBadRequest, "invalid-body")
		if got := strings.Join(p.fields(), " "); got != want || b.push.stored() > 0 {
			t.Errorf("%.200s: fields %q, want %q; stored %d", body, got, want, b.push.stored())
		}
		if strings.Contains(body, "SECRET") && strings.Contains(b.log.String()+p.Detail, "SECRET") {
			t.Errorf("%s: shown in %s or in the log %s", body, p.Detail, b.log)
		}
	}
	b := setup(t)
	wantProblem(t, b.send(t, http.MethodPut, path, "{"), http.StatusBadRequest, "malformed-body")
	wantProblem(t, b.send(t, http.MethodPut, path+"?a=b", "{}"), http.StatusBadRequest, "invalid-parameter")
	wantProblem(t, b.send(t, http.MethodPut, strings.Replace(path, "5", "05", 1), "{}"), http.StatusBadRequest, "invalid-parameter")
	form := newRequest(t.Context(), http.MethodPut, path, strings.NewReader("{}"))
	wantProblem(t, b.do(t, form), http.StatusUnsupportedMediaType, "unsupported-media-type")
	large := `{"a":"` + strings.Repeat("a", api.DefaultMaxBody) + `"}`
	wantProblem(t, b.send(t, http.MethodPut, path, large), http.StatusRequestEntityTooLarge, "body-too-large")
	if b.push.stored() > 0 {
		t.Errorf("stored %d", b.push.stored())
	}
}

func TestBadDevicesAreRefused(t *testing.T) {
	t.Parallel()
	refused(t, devicesPath, map[string]string{
		`[]`:                   "body",
		`{}`:                   "platform",
		`{"platform":null}`:    "platform",
		`{"platform":"pager"}`: "platform",
		`{"platform":"apns"}`:  "token environment",
		`{"platform":"apns","token":"","environment":"production"}`:                                        "token",
		`{"platform":"apns","token":7,"environment":"beta"}`:                                               "token environment",
		`{"platform":"apns","token":"badSECRET","environment":"production"}`:                               "token",
		`{"platform":"apns","token":"0a","environment":"production","subscription":{}}`:                    "subscription",
		`{"platform":"apns","token":"0a","environment":"production","token":"0b"}`:                         "token",
		`{"platform":"apns","token":"0a","environment":"production","topic":"a"}`:                          "topic",
		`{"platform":"fcm","token":"t","environment":"production"}`:                                        "environment",
		`{"platform":"fcm","token":"t","language":"de_CH"}`:                                                "language",
		`{"platform":"fcm","token":"t","language":7}`:                                                      "language",
		`{"platform":"fcm","token":null}`:                                                                  "token",
		`{"platform":"fcm","subscription":{}}`:                                                             "token subscription",
		`{"platform":"webpush"}`:                                                                           "subscription",
		`{"platform":"webpush","token":"t","subscription":"https://a.example"}`:                            "subscription token",
		`{"platform":"webpush","subscription":{}}`:                                                         "subscription.endpoint subscription.keys",
		`{"platform":"webpush","subscription":{"endpoint":7,"keys":[]}}`:                                   "subscription.endpoint subscription.keys",
		`{"platform":"webpush","subscription":{"endpoint":"https://a.example","keys":{"auth":"SECRET!"}}}`: "subscription.keys.p256dh subscription.keys.auth",
		`{"platform":"webpush","subscription":{"endpoint":"a","endpoint":"a"}}`:                            "subscription.endpoint",
		subscription("https://bad.example/SECRET"):                                                         "subscription",
	})
}

func TestBadPushSettingsAreRefused(t *testing.T) {
	t.Parallel()
	hours := func(from, to, zone string) string {
		return fmt.Sprintf(`{"quiet_hours":{"from":%q,"to":%q,"time_zone":%q}}`, from, to, zone)
	}
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprintf(`"t%d":false`, i))
	}
	refused(t, settingsPath, map[string]string{
		`[]`:                            "body",
		`{"type":{}}`:                   "type",
		`{"types":null}`:                "types",
		`{"types":{"a":0,"b c":true}}`:  "types.a types.b c",
		`{"types":{"a":true,"a":true}}`: "types.a",
		`{"types":{` + strings.Join(many, ",") + `}}`: "types",
		`{"quiet_hours":{}}`:                          "quiet_hours.from quiet_hours.to quiet_hours.time_zone",
		`{"quiet_hours":[]}`:                          "quiet_hours",
		`{"quiet_hours":{"from":1,"to":null,"time_zone":true,"zone":"UTC"}}`: "quiet_hours.zone quiet_hours.from quiet_hours.to quiet_hours.time_zone",
		hours("24:00", "7:00", "UTC"):                                        "quiet_hours.from quiet_hours.to",
		hours("22:00:00", "07:60", "UTC"):                                    "quiet_hours.from quiet_hours.to",
		hours("22:00", "22:00", "UTC"):                                       "quiet_hours.to",
		hours("22:00", "07:00", "Europe/Atlantis"):                           "quiet_hours.time_zone",
		hours("22:00", "07:00", ""):                                          "quiet_hours.time_zone",
		hours("22:00", "07:00", "Local"):                                     "quiet_hours.time_zone",
		hours("22:00", "07:00", "../UTC"):                                    "quiet_hours.time_zone",
		hours("22:00", "07:00", "Europe/./Berlin"):                           "quiet_hours.time_zone",
		hours("22:00", "07:00", "Europe//Berlin"):                            "quiet_hours.time_zone",
		hours("22:00", "07:00", "posixrules"):                                "quiet_hours.time_zone",
		hours("22:00", "07:00", "right/Europe/Berlin"):                       "quiet_hours.time_zone",
		hours("22:00", "07:00", "Europe/"+strings.Repeat("./", 40)+"Berlin"): "quiet_hours.time_zone",
	})
}

func TestEndsOfMutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for query, field := range map[string]string{"": "object", "?object=": "object", "?object=photo": "object", "?object=a:b&object=a:b": "object", "?object=photo:901&a=b": "a"} {
		p := wantProblem(t, b.do(t, newRequest(t.Context(), http.MethodDelete, mutesPath+query, http.NoBody)), http.StatusBadRequest, "invalid-parameter")
		if p.Field != field {
			t.Errorf("%s: field %q", query, p.Field)
		}
	}
	b.push.err = fmt.Errorf("fake: %w", push.ErrTooManyMutes)
	wantProblem(t, b.send(t, http.MethodPut, mutesPath, `{"object":"photo:901","until":4102444800}`), http.StatusConflict, "too-many-mutes")
}

func TestBadMutesAreRefused(t *testing.T) {
	t.Parallel()
	refused(t, mutesPath, map[string]string{
		`{}`:                                  "object until",
		`{"object":null,"until":null}`:        "object until",
		`{"object":"photo:x","until":"soon"}`: "object until",
		`{"object":"Photo:1","until":1.5}`:    "object until",
		fmt.Sprintf(`{"object":"user:5","until":%d}`, time.Now().Unix()): "until",
		`{"object":"user:5","until":253402300800}`:                       "until",
		`{"object":"user:5","until":4102444800,"type":"upload"}`:         "type",
	})
}

// pushRequests are a good request of each route.
var pushRequests = []struct{ method, path, body string }{
	{http.MethodPost, "/v1/events", `{"events":[` + oneEvent + `]}`},
	{http.MethodGet, devicesPath, ""},
	{http.MethodPut, devicesPath, `{"platform":"fcm","token":"t"}`},
	{http.MethodDelete, devicesPath + "/1", ""},
	{http.MethodGet, settingsPath, ""},
	{http.MethodPut, settingsPath, `{}`},
	{http.MethodGet, mutesPath, ""},
	{http.MethodPut, mutesPath, `{"object":"user:6","until":4102444800}`},
	{http.MethodDelete, mutesPath + "?object=user:6", ""},
}

func TestWithoutMySQLPushIsOff(t *testing.T) {
	t.Parallel()
	for _, r := range pushRequests {
		b := setup(t, func(c *api.Config) { c.Push, c.Platforms, c.CheckAddress = nil, nil, nil })
		wantProblem(t, b.send(t, r.method, r.path, r.body), http.StatusNotImplemented, "push-off")
		if len(b.enqueuer.calls()) > 0 {
			t.Errorf("%s %s: enqueued", r.method, r.path)
		}
	}
	b := setup(t, func(c *api.Config) { c.Push, c.Platforms, c.CheckAddress = nil, nil, nil })
	body := `{"tasks":[` + oneUpload + `,{"type":"notify","user_id":"5","event":{"type":"upload"}}]}`
	wantProblem(t, b.post(t, body), http.StatusNotImplemented, "push-off")
	if len(b.enqueuer.calls()) > 0 {
		t.Errorf("enqueued %v", b.enqueuer.calls())
	}
}
