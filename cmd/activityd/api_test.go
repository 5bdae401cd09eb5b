package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// newTokenFile makes a file with a token, and returns its secret.
func newTokenFile(t *testing.T, name, scopes string, flags ...string) (file, secret string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tokens")
	return file, appendToken(t, file, name, scopes, flags...)
}

func appendToken(t *testing.T, file, name, scopes string, flags ...string) (secret string) {
	t.Helper()
	return strings.TrimSpace(succeed(t, append([]string{"token", name, "--scopes", scopes, "--append", file}, flags...)...))
}

// revoke deletes the line of a token.
func revoke(t *testing.T, file, name string) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.HasPrefix(line, name+" ") })
	must(t, os.WriteFile(file+".new", []byte(strings.Join(lines, "\n")), 0o600))
	must(t, os.Rename(file+".new", file))
}

// ask sends a request with a token, and returns the status.
func ask(t *testing.T, client *http.Client, method, url, secret string) (status int) {
	t.Helper()
	var body strings.Reader
	if method == http.MethodPost {
		body = *strings.NewReader(`{"type":"upload","user_id":"1"}`)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, url, &body)
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	if secret != "" {
		request.Header.Set("Authorization", "Bearer "+secret)
	}
	response, err := client.Do(request)
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode
}

// From the command that makes a token to the request that bears it: the rights of a token, its rate, and the moments
// when tokens come and go.
func TestAccessEndToEnd(t *testing.T) {
	t.Parallel()
	file, reader := newTokenFile(t, "reader", "read")
	writer := appendToken(t, file, "writer", "write")
	limited := appendToken(t, file, "limited", "read", "--rate=1/s")
	r := startAll(t, "--token-file="+file)
	r.makeSite(t, 1)
	reads, posts := r.url+"/v1/users/1/recent-contact-photos", r.url+"/v1/tasks"
	want := func(status int, method, url, secret string) {
		t.Helper()
		if got := ask(t, http.DefaultClient, method, url, secret); got != status {
			t.Errorf("%s %s: %d, want %d", method, url, got, status)
		}
	}
	want(401, "GET", reads, "")
	want(401, "POST", posts, "act_WRONG")
	want(200, "GET", reads, reader)
	want(403, "POST", posts, reader)
	want(403, "GET", reads, writer)
	want(202, "POST", posts, writer)
	want(200, "GET", reads, limited)
	eventually(t, "the rate is used up", func() bool { return ask(t, http.DefaultClient, "GET", reads, limited) == 429 })
	want(200, "GET", r.url+"/healthz", "")
	fresh := appendToken(t, file, "fresh", "read,write")
	eventually(t, "the new token is known", func() bool { return ask(t, http.DefaultClient, "GET", reads, fresh) == 200 })
	want(200, "GET", reads, reader)
	revoke(t, file, "reader")
	eventually(t, "the old one is not", func() bool { return ask(t, http.DefaultClient, "GET", reads, reader) == 401 })
	want(202, "POST", posts, fresh)
}

// A contact who blocks the viewer uploads, and the index can prove the viewer's answer no
// longer: a token with the scope read sees no difference. A private upload makes none to
// an operator either.
func TestAHiddenUploadDoesNotShow(t *testing.T) {
	t.Parallel()
	file, reader := newTokenFile(t, "reader", "read")
	admin := appendToken(t, file, "admin", "admin")
	r := startAll(t, "--token-file="+file, "--need=1")
	r.makeSite(t, 3)
	for i := 101; i <= 103; i++ {
		must(t, r.site.SetContact(t.Context(), 1, member.ID(i), site.Grant{}))
	}
	must(t, r.site.Block(t.Context(), 101, 1))
	r.awaitTasks(t)
	before := r.answerTo(t, "/v1/users/1/recent-contact-photos", reader)
	if got := r.answerTo(t, "/v1/users/1/recent-contact-photos", admin); !strings.Contains(got, `"source":"index"`) {
		t.Fatalf("before, an operator reads %s", got)
	}
	_, err := r.site.Upload(t.Context(), site.Photo{Owner: 101, Visibility: contacts.Private, DateUpload: 999_998})
	must(t, err)
	r.awaitTasks(t)
	if got := r.answerTo(t, "/v1/users/1/recent-contact-photos", admin); !strings.Contains(got, `"source":"index"`) {
		t.Fatalf("after a private upload, an operator reads %s", got)
	}
	_, err = r.site.Upload(t.Context(), site.Photo{Owner: 101, Visibility: contacts.Public, DateUpload: 999_999})
	must(t, err)
	r.awaitTasks(t)
	if got := r.answerTo(t, "/v1/users/1/recent-contact-photos", admin); !strings.Contains(got, `"source":"database"`) {
		t.Fatalf("after, an operator reads %s", got)
	}
	if after := r.answerTo(t, "/v1/users/1/recent-contact-photos", reader); after != before || !strings.Contains(after, `"id":"103"`) || strings.Contains(after, "source") {
		t.Errorf("before %s\nafter %s", before, after)
	}
}

// answerTo returns the answer to a token at a path, with its header, without the parts that differ from request to
// request.
func (r *running) answerTo(t *testing.T, path, secret string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, http.NoBody)
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+secret)
	request.Header.Set("X-Request-ID", "a")
	request.Header.Set("Origin", "https://photos.example")
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	response.Header.Del("Date")
	text, err := httputil.DumpResponse(response, true)
	must(t, err)
	return string(text)
}

// The address of the listener counts, whatever name the settings give it.
func TestTheRealAddressCounts(t *testing.T) {
	t.Parallel()
	token, _, err := auth.Issue("a", auth.Read, auth.Limit{})
	must(t, err)
	withTokens := &credentials{tokens: auth.NewTokens([]auth.Token{token})}
	withTLS := &credentials{tokens: withTokens.tokens, tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	local, public := &net.TCPAddr{IP: net.IPv6loopback, Port: 1}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	for _, test := range []struct {
		credentials *credentials
		address     net.Addr
		refused     bool
		logged      string
	}{
		{&credentials{}, local, false, "level=INFO msg=\"no tokens: any client on this machine may ask"},
		{&credentials{}, public, true, ""},
		{&credentials{}, &net.TCPAddr{}, true, ""},
		{&credentials{}, &net.UnixAddr{Name: "x"}, true, ""},
		{withTokens, local, false, ""},
		{withTokens, public, false, "level=WARN msg=\"no TLS: tokens cross the network in the clear"},
		{withTLS, public, false, ""},
	} {
		var log bytes.Buffer
		err := test.credentials.checkAddress(t.Context(), test.address, slog.New(slog.NewTextHandler(&log, nil)))
		if (err != nil) != test.refused || !strings.Contains(log.String(), test.logged) || test.logged == "" && log.Len() > 0 {
			t.Errorf("%+v on %s: %v\n%s", test.credentials, test.address, err, log.String())
		}
	}
}

func TestBadAccessIsAnErrorAtTheStart(t *testing.T) {
	t.Parallel()
	secret := "act_S3CRETS3CRETS3CRETS3CRET"
	bad := filepath.Join(t.TempDir(), "bad")
	must(t, os.WriteFile(bad, []byte("a read "+secret), 0o600))
	good, _ := newTokenFile(t, "a", "read")
	for want, given := range map[string][]string{
		"--token-file (ACTIVITYD_TOKEN_FILE): " + bad + ": line 1": {"--token-file=" + bad},
		"--token-file (ACTIVITYD_TOKEN_FILE): stat ":               {"--token-file=" + bad + "/x"},
		"--tls-cert (ACTIVITYD_TLS_CERT): " + good:                 {"--tls-cert=" + good},
	} {
		environ, flags := settingsOf(given)
		code, _, errs := command(t, environ, append([]string{"serve", dsn}, flags...)...)
		if code != 1 || !strings.Contains(errs, want) || strings.Contains(errs, "S3CRET") {
			t.Errorf("%v: exit code %d, %q, want %q", given, code, errs, want)
		}
	}
}

// Without tokens only this machine is served. Viewer keys let no other client in.
func TestAnOpenListenerIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	c := configFor(t, servertest.MySQLDSN(t), servertest.Redis(t).URL(), "--listen=0.0.0.0:0", "--viewer-keys="+newViewerKeys(t, "a"))
	s, err := openService(c, slog.New(slog.DiscardHandler))
	must(t, err)
	if err := s.serve(t.Context()); !errors.Is(err, errOpen) || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("serve: %v", err)
	}
	if conn, err := net.Dial("tcp", s.api.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("it listens all the same")
	}
}

// Workers serve no requests, and need no files.
func TestWorkersNeedNoTokens(t *testing.T) {
	t.Parallel()
	c, f := parseServe(t, "--role=workers", "--token-file=/nonexistent", "--tls-cert=/nonexistent")
	must(t, c.check(f))
	c.metricsListen = ""
	g, err := loadCredentials(c, slog.New(slog.DiscardHandler))
	if err != nil || g.tokens != nil || len(g.reloaders) > 0 {
		t.Errorf("%+v, %v", g, err)
	}
	c.metricsListen = "127.0.0.1:0" // nobody signs in to the console, and all else goes on
	g, err = loadCredentials(c, slog.New(slog.DiscardHandler))
	if err != nil || g.tokens == nil || len(g.reloaders) > 0 {
		t.Errorf("with a console: %+v, %v", g, err)
	}
}

// writeCertificate makes a certificate for 127.0.0.1, that is valid for as many
// hours as its serial number says, and returns it.
func writeCertificate(t *testing.T, file string, serial int64) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Duration(serial) * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})...)
	must(t, os.WriteFile(file, text, 0o600))
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return cert
}

// trusting returns a client that trusts the certificates, and opens a new connection for every request.
func trusting(certs ...*x509.Certificate) *http.Client {
	roots := x509.NewCertPool()
	for _, cert := range certs {
		roots.AddCert(cert)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
}

func TestTLSEndToEnd(t *testing.T) {
	t.Parallel()
	certFile := filepath.Join(t.TempDir(), "cert")
	old := writeCertificate(t, certFile, 1)
	file, secret := newTokenFile(t, "a", "read")
	r := startAll(t, "--token-file="+file, "--tls-cert="+certFile)
	base := "https" + strings.TrimPrefix(r.url, "http")
	url := base + "/v1/users/1/recent-contact-photos"
	if got := ask(t, trusting(old), "GET", url, secret); got != 404 {
		t.Errorf("by TLS: %d, want 404 for a viewer who does not exist", got)
	}
	fresh := writeCertificate(t, certFile, 2)
	both := trusting(old, fresh)
	eventually(t, "the new certificate is shown", func() bool {
		response, err := both.Get(base + "/healthz")
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		return response.TLS.PeerCertificates[0].SerialNumber.Cmp(fresh.SerialNumber) == 0
	})
	if got := ask(t, trusting(fresh), "GET", url, secret); got != 404 {
		t.Errorf("by the new certificate: %d", got)
	}
}

// SIGHUP reads the files again, and does not end the process.
func TestSIGHUPReadsTheFiles(t *testing.T) {
	t.Parallel()
	file, first := newTokenFile(t, "first", "read")
	p := spawnServe(t, servertest.MySQLDSN(t), servertest.Redis(t).URL(), "--token-file="+file)
	second := appendToken(t, file, "second", "read")
	p.signal(t, syscall.SIGHUP)
	eventually(t, "it is loaded", func() bool { return len(p.logged("file loaded")) == 2 })
	for _, secret := range []string{first, second} {
		if got := ask(t, http.DefaultClient, "GET", p.url+"/v1/users/1/recent-contact-photos", secret); got != 404 {
			t.Errorf("%d, want 404 for a viewer who does not exist", got)
		}
	}
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
