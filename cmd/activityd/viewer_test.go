package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// newViewerKeys makes a file with keys, and returns its name.
func newViewerKeys(t *testing.T, ids ...string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "viewer-keys.json")
	for _, id := range ids {
		succeed(t, "token", "key", id, "--viewer-keys", file)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, append([]byte("\ufeff"), text...), 0o600)) // as some editors do
	return file
}

// viewerToken makes a token with the last key of a file, or as the flags say.
func viewerToken(t *testing.T, file string, viewer member.ID, flags ...string) string {
	t.Helper()
	return strings.TrimSpace(succeed(t, append([]string{"token", "viewer", viewer.String(), "--viewer-keys", file}, flags...)...))
}

func TestTokenOfAViewer(t *testing.T) {
	t.Parallel()
	file := newViewerKeys(t, "2026-10")
	code, out, notes := command(t, nil, "token", "key", "2026-11", "--alg=HS256", "--viewer-keys", file)
	if code != 0 || out != "" || !strings.Contains(notes, "Added the key 2026-11 (HS256) to "+file) {
		t.Errorf("exit code %d, %q, %q", code, out, notes)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	keys, err := auth.ParseViewerKeys(text)
	if err != nil || len(keys) != 2 || keys[0].Alg != auth.EdDSA || keys[1].Alg != auth.HS256 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, test := range []struct {
		keys     []auth.ViewerKey
		audience string
		flags    []string
	}{
		{keys[1:], "", nil},
		{keys[:1], "", []string{"--key=2026-10", "--ttl=24h"}},
		{keys[1:], "photos", []string{"--viewer-audience=photos", "--ttl=1s"}},
	} {
		id, err := auth.NewViewers(test.keys, auth.ViewerOptions{Audience: test.audience}).Check(viewerToken(t, file, 12345, test.flags...))
		if id != 12345 || err != nil {
			t.Errorf("%v: %v, %v", test.flags, id, err)
		}
	}
	code, out, notes = command(t, []string{"ACTIVITYD_VIEWER_KEYS=" + file}, "token", "viewer", "5")
	if code != 0 || strings.Count(out, ".") != 2 || !strings.Contains(notes, "viewer 5 by the key 2026-11") || strings.Contains(notes, out) {
		t.Errorf("exit code %d, %q, %q", code, out, notes)
	}
}

// From the command that makes a key to the browser that asks: the rights of viewers, and the keys that come and go
// while the server runs. There are no other tokens.
func TestViewersEndToEnd(t *testing.T) {
	t.Parallel()
	file := newViewerKeys(t, "old")
	r := startAll(t, "--viewer-keys="+file, "ACTIVITYD_VIEWER_AUDIENCE=photos", "--allow-origin=https://photos.example")
	r.makeSite(t, 3)
	must(t, r.site.SetContact(t.Context(), 1, 101, site.Grant{}))
	r.awaitTasks(t)
	old := viewerToken(t, file, 1, "--viewer-audience=photos")
	status := func(path, token string) int {
		t.Helper()
		return ask(t, http.DefaultClient, http.MethodGet, r.url+path, token)
	}
	const me, devices = "/v1/me/recent-contact-photos", "/v1/me/devices"
	response := r.answerTo(t, me, old)
	if !strings.Contains(response, `{"viewer_id":"1","contact":{"id":"101",`) || !strings.Contains(response, "Access-Control-Allow-Origin: https://photos.example\r\n") {
		t.Errorf("answered %s", response)
	}
	for _, test := range []struct {
		status      int
		path, token string
	}{
		{200, devices, old},
		{401, me, ""},
		{401, me, viewerToken(t, file, 1)},
		{401, me, viewerToken(t, file, 1, "--viewer-audience=shop")},
		{404, me, viewerToken(t, file, 4711, "--viewer-audience=photos")},
		{200, "/v1/users/1/recent-contact-photos", ""},
		{200, "/v1/users/1/recent-contact-photos", old},
	} {
		if got := status(test.path, test.token); got != test.status {
			t.Errorf("%s: %d, want %d", test.path, got, test.status)
		}
	}
	succeed(t, "token", "key", "new", "--viewer-keys", file)
	fresh := viewerToken(t, file, 101, "--viewer-audience=photos")
	eventually(t, "the new key is known", func() bool { return status(me, fresh) == 200 })
	if got := status(me, old); got != 200 {
		t.Errorf("the old key: %d", got)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	keys, err := auth.ParseViewerKeys(text)
	must(t, err)
	must(t, os.Remove(file))
	must(t, auth.AddViewerKey(file, keys[1]))
	eventually(t, "the old key is not known", func() bool { return status(me, old) == 401 })
	if got := status(me, fresh); got != 200 {
		t.Errorf("the new key: %d", got)
	}
}
