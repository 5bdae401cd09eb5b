package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/platforms"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// This file has a platform that activityd lacks: a gateway of plain HTTP, as in UnifiedPush. A device names a URL
// there, and a message is a POST of JSON to it. No other file knows the platform.
const gateway push.Platform = "plaingateway"

func gatewayKind() push.Kind {
	return push.Kind{
		Platform: gateway,
		Settings: []push.Setting{
			{Name: "plaingateway-key", Required: true, Usage: "`file` of the token for gateways"},
			{Name: "plaingateway-agent", Required: true, Usage: "the `name` by which gateways know this site"},
			{Name: "plaingateway-hosts", Alone: true, Usage: "`hosts` of gateways", Check: func(value string) error {
				if strings.Contains(value, "/") {
					return errors.New("want hosts")
				}
				return nil
			}},
		},
		New: func(o push.ClientOptions) (push.Client, error) {
			s := &gatewaySender{agent: o.Setting("plaingateway-agent")}
			return push.Client{Sender: s, Reload: s.setKey, Close: s.client.CloseIdleConnections}, s.setKey(o.Keys)
		},
		Fields: []string{"endpoint"},
		Read: func(o strictjson.Object) push.Address {
			o.Need("endpoint", "a URL")
			text, _ := o.String("endpoint", "a URL")
			return push.NewAddress(text, text)
		},
		Check: func(setting func(string) string, a push.Address) error {
			if !slices.Contains(strings.Split(setting("plaingateway-hosts"), ","), endpointOf(a).Hostname()) {
				return errors.New("is at no known gateway")
			}
			return nil
		},
		Show:     func(a push.Address) any { return map[string]string{"gateway": endpointOf(a).Hostname()} },
		MustShow: true,
	}
}

func gatewayPayload(m *push.Message) ([]byte, error) {
	return json.Marshal(map[string]any{"event": m.Event, "title": m.Title, "body": m.Body, "count": m.Count})
}

func endpointOf(a push.Address) *url.URL {
	var text string
	if a.Decode(&text) == nil {
		if u, err := url.Parse(text); err == nil {
			return u
		}
	}
	return &url.URL{}
}

// gatewaySender implements [push.Sender].
type gatewaySender struct {
	agent  string
	key    atomic.Pointer[string]
	client http.Client
}

func (s *gatewaySender) setKey(text []byte) error {
	key := strings.TrimSpace(string(text))
	if key == "" {
		return errors.New("there is no token in it")
	}
	s.key.Store(&key)
	return nil
}

func (s *gatewaySender) Origin(d push.Device) string { return "http://" + endpointOf(d.Address).Host }

func (s *gatewaySender) Send(ctx context.Context, m push.Message) push.Result {
	body, err := gatewayPayload(&m)
	if err != nil {
		return push.Result{Outcome: push.Rejected, Reason: "payload"}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpointOf(m.Device.Address).String(), bytes.NewReader(body))
	if err != nil {
		return push.Result{Outcome: push.Rejected, Reason: "endpoint"}
	}
	request.Header.Set("Authorization", "Bearer "+*s.key.Load())
	request.Header.Set("User-Agent", s.agent)
	response, err := s.client.Do(request)
	if err != nil {
		return push.Result{Outcome: push.Ambiguous, Reason: "no_answer"}
	}
	defer func() { _ = response.Body.Close() }()
	r := push.Result{Outcome: push.Wait, Status: response.StatusCode, Reason: "http"}
	switch response.StatusCode {
	case http.StatusCreated:
		r.Outcome, r.Reason, r.ID = push.Accepted, "", response.Header.Get("Location")
	case http.StatusGone:
		r.Outcome, r.Reason = push.Gone, "unsubscribed"
	}
	return r
}

// gatewayServer is the gateway. It has forgotten the endpoint /gone.
type gatewayServer struct {
	*httptest.Server

	mu    sync.Mutex
	taken []string // the path, the headers and the body of each message
}

func startGateway(t *testing.T) *gatewayServer {
	t.Helper()
	g := &gatewayServer{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.taken = append(g.taken, strings.Join([]string{r.Method, r.URL.Path, r.UserAgent(), r.Header.Get("Authorization"), string(body)}, " "))
		w.Header().Set("Location", "message-1")
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *gatewayServer) messages() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.taken)
}

// startWithGateway is startAll with the fourth platform.
func startWithGateway(t *testing.T, log io.Writer, environ ...string) *running {
	t.Helper()
	redisServer, mysqlDSN := servertest.Redis(t), servertest.MySQLDSN(t)
	newConfig := func() (*config, *pflag.FlagSet) {
		c, f := &config{push: pushConfig{kinds: append(platforms.All(), gatewayKind())}}, pflag.NewFlagSet("serve", pflag.ContinueOnError)
		c.serveFlags(f)
		return c, f
	}
	c, f := newConfig()
	_, all := newConfig()
	must(t, f.Parse([]string{"--mysql-dsn=" + mysqlDSN, "--redis-url=" + redisServer.URL(), "--listen=127.0.0.1:0", "--metrics-listen=", "--poll=20ms"}))
	must(t, settings.Loader{Settings: all, Environ: environ, Warnings: t.Output()}.Load(f, ""))
	must(t, c.check(f))
	r := startLogged(t, c, slog.New(slog.NewTextHandler(log, nil)))
	r.redis = redisServer
	r.client = redis.NewClient(&redis.Options{Network: "unix", Addr: redisServer.Addr()})
	t.Cleanup(func() { _ = r.client.Close() })
	r.openSite(t, mysqlDSN)
	return r
}

// A device of the fourth platform is registered, shown, sent to by a key that is replaced, and pruned.
func TestAFourthPlatform(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	key := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(key+".new", []byte(text), 0o600))
		must(t, os.Rename(key+".new", key))
	}
	write("first\n")
	log := &logtest.Log{}
	r := startWithGateway(t, log, "ACTIVITYD_PLAINGATEWAY_KEY="+key, "ACTIVITYD_PLAINGATEWAY_AGENT=photos", "ACTIVITYD_PLAINGATEWAY_HOSTS=127.0.0.1")
	r.makeSite(t, 1)
	const devices = "/v1/users/1/devices"
	for body, want := range map[string]string{
		`{"platform":"plaingateway"}`:                                            `"field":"endpoint"`,
		`{"platform":"plaingateway","endpoint":"http://s3cret.example/"}`:        "is at no known gateway",
		`{"platform":"plaingateway","endpoint":"http://127.0.0.1/","token":"t"}`: "plaingateway has none: want endpoint",
		`{"platform":"fcm","token":"t","endpoint":"http://127.0.0.1/"}`:          "fcm has none: want token",
		`{"platform":"other","endpoint":"http://127.0.0.1/"}`:                    "want apns, webpush, fcm or plaingateway",
	} {
		if status, text := r.request(t, http.MethodPut, devices, body); status != http.StatusBadRequest || !strings.Contains(text, want) || strings.Contains(text, "s3cret") {
			t.Errorf("%s: %d %s, want %s", body, status, text, want)
		}
	}
	for _, path := range []string{"/a", "/gone"} {
		if status, text := r.request(t, http.MethodPut, devices, `{"platform":"plaingateway","endpoint":"`+g.URL+path+`"}`); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	type device struct{ ID, Platform, Gateway string }
	wantDevices := func(want ...device) {
		t.Helper()
		_, text := r.request(t, http.MethodGet, devices, "")
		var got struct{ Devices []device }
		must(t, json.Unmarshal([]byte(text), &got))
		if diff := cmp.Diff(want, got.Devices); diff != "" || strings.Contains(text, g.URL) {
			t.Errorf("the devices are %s (-want +got):\n%s", text, diff)
		}
	}
	wantDevices(device{"1", "plaingateway", "127.0.0.1"}, device{"2", "plaingateway", "127.0.0.1"})

	var want []string
	send := func(id, key string) {
		t.Helper()
		if status, text := r.request(t, http.MethodPost, "/v1/events",
			`{"events":[{"id":"`+id+`","type":"comment","actor_id":"101","recipients":["1"],"title":"Ann","body":"Nice!"}]}`); status != http.StatusAccepted {
			t.Fatalf("%d %s", status, text)
		}
		r.awaitTasks(t)
		want = append(want, `POST /a photos Bearer `+key+` {"body":"Nice!","count":1,"event":"`+id+`","title":"Ann"}`)
		if diff := cmp.Diff(want, g.messages()); diff != "" {
			t.Errorf("the gateway got (-want +got):\n%s", diff)
		}
	}
	send("e1", "first")
	lines := succeed(t, "push", "show", "e1", "--mysql-dsn="+r.config.mysqlDSN)
	if !regexp.MustCompile(`plaingateway +accepted .* message-1 `).MatchString(lines) || !regexp.MustCompile(`failed +unsubscribed `).MatchString(lines) {
		t.Errorf("push show tells\n%s", lines)
	}
	wantDevices(device{"1", "plaingateway", "127.0.0.1"}, device{ID: "2", Platform: "plaingateway"}) // device 2 is gone
	write("second\n")
	eventually(t, "the new key is loaded", func() bool {
		return strings.Count(log.String(), `msg="file loaded" what=ACTIVITYD_PLAINGATEWAY_KEY`) == 2
	})
	send("e2", "second")
}
