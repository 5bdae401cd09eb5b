//go:build firefox

package webpush

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/webpushtest"
)

// firefoxWorker is put below the service worker of sites: it reports the notifications that are shown.
const firefoxWorker = `
const showUntold = self.registration.showNotification.bind(self.registration);
self.registration.showNotification = async (title, options) => {
	await showUntold(title, options);
	const all = await self.registration.getNotifications();
	await fetch("/shown", {method: "POST", body: JSON.stringify(all.map((n) => [n.title, n.body, n.tag, n.data.url]))});
};`

// firefoxPage subscribes, some time after the start: Firefox loses, without a word, requests
// before it has started its side of push, and nothing tells when it has.
const firefoxPage = `<!DOCTYPE html><html lang="en"><title>site</title><script type="module">
await navigator.serviceWorker.register("/push-worker.js");
const registration = await navigator.serviceWorker.ready;
await new Promise((resolve) => setTimeout(resolve, 8000));
const subscription = await registration.pushManager.subscribe({userVisibleOnly: true, applicationServerKey: %q});
await fetch("/subscription", {method: "POST", body: JSON.stringify(subscription)});
</script>`

// The whole way in a real browser: Firefox subscribes at the push service here, by
// Mozilla's protocol, gets the message, decrypts it by itself, and shows it.
func TestFirefox(t *testing.T) {
	service := startService(t, webpushtest.Options{})
	autopush := httptest.NewServer(service.Autopush())
	t.Cleanup(autopush.Close)
	s := newSender(t, service, loopback)
	worker, err := os.ReadFile("../../../docs/push-worker.js")
	if err != nil {
		t.Fatal(err)
	}
	site := http.NewServeMux()
	site.HandleFunc("GET /push-worker.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = fmt.Fprintf(w, "%s%s", worker, firefoxWorker)
	})
	site.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, firefoxPage, s.PublicKey())
	})
	said := map[string]chan []byte{"/subscription": make(chan []byte, 10), "/shown": make(chan []byte, 10)}
	for path, to := range said {
		site.HandleFunc("POST "+path, func(_ http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			to <- text
		})
	}
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	startFirefox(t, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)+"/", "ws"+strings.TrimPrefix(autopush.URL, "http")+"/")

	receive := func(path string) []byte {
		t.Helper()
		select {
		case text := <-said[path]:
			return text
		case <-time.After(20 * time.Second):
			t.Fatalf("Firefox does not post to %s; the push service says %q", path, service.Refused())
			return nil
		}
	}
	var subscription struct {
		Endpoint string
		Keys     struct{ P256DH, Auth string }
	}
	if err := json.Unmarshal(receive("/subscription"), &subscription); err != nil {
		t.Fatal(err)
	}
	device := push.Device{Address: NewAddress(subscription.Endpoint, decode(t, subscription.Keys.P256DH), decode(t, subscription.Keys.Auth))}
	if err := check(func(string) string { return "127.0.0.1" }, device.Address); err != nil {
		t.Fatal(err)
	}
	for _, title := range []string{"maya", "maya (2)"} { // the second replaces the first
		m := message(device)
		m.Title = title
		if got := send(t, s, m); got.Outcome != push.Accepted {
			t.Fatalf("%+v; the push service says %q", got, service.Refused())
		}
		var shown [][]string
		if err := json.Unmarshal(receive("/shown"), &shown); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]string{{title, m.Body, m.Collapse, "/photos/901"}}, shown); diff != "" {
			t.Errorf("shown (-want +got):\n%s", diff)
		}
	}
}

// startFirefox shows a page in a headless Firefox that is pushed to by WebSocket.
func startFirefox(t *testing.T, page, socket string) {
	t.Helper()
	profile := t.TempDir()
	var preferences strings.Builder
	for name, value := range map[string]any{
		"dom.push.serverURL":                         socket,
		"dom.push.testing.allowInsecureServerURL":    true,
		"dom.push.testing.ignorePermission":          true,
		"notification.prompt.testing":                true,
		"notification.prompt.testing.allow":          true,
		"permissions.default.desktop-notification":   1,
		"alerts.useSystemBackend":                    false,
		"browser.aboutwelcome.enabled":               false,
		"browser.shell.checkDefaultBrowser":          false,
		"datareporting.policy.dataSubmissionEnabled": false,
		"network.captive-portal-service.enabled":     false,
		"network.connectivity-service.enabled":       false,
		"network.proxy.type":                         0,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(&preferences, "user_pref(%q, %s);\n", name, text)
	}
	if err := os.WriteFile(filepath.Join(profile, "user.js"), []byte(preferences.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	firefox := exec.CommandContext(t.Context(), "firefox-esr", "--headless", "--no-remote", "--profile", profile, page)
	firefox.Env = append(os.Environ(), "HOME="+profile)
	if err := firefox.Start(); err != nil {
		t.Fatalf("%v; on Debian: apt-get install firefox-esr", err)
	}
	t.Cleanup(func() {
		_ = firefox.Process.Kill()
		_ = firefox.Wait()
	})
}
