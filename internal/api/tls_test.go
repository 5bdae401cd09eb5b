package api_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/api"
)

// serveTLS serves with the certificate that net/http/httptest has for tests, and
// returns a client that trusts it.
func serveTLS(t *testing.T) (*serving, *http.Client) {
	t.Helper()
	borrowed := httptest.NewTLSServer(http.NotFoundHandler())
	borrowed.Close()
	cert := borrowed.TLS.Certificates[0]
	s := serve(t, func(c *api.Config) {
		c.TLS = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil },
		}
		c.ReadTimeout = 3 * time.Second // the handshake, too, must end within it
	})
	roots := x509.NewCertPool()
	roots.AddCert(borrowed.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return s, &http.Client{Transport: transport}
}

func TestTLSWithHTTP2(t *testing.T) {
	t.Parallel()
	s, client := serveTLS(t)
	response, err := client.Get("https://" + s.addr + readPath)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
		t.Errorf("%d by %s, want 200 by HTTP/2", response.StatusCode, response.Proto)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	s, client := serveTLS(t)
	client.Transport.(*http.Transport).TLSClientConfig.MinVersion = tls.VersionTLS10
	client.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
	if response, err := client.Get("https://" + s.addr + readPath); err == nil {
		_ = response.Body.Close()
		t.Errorf("%d by TLS %x", response.StatusCode, response.TLS.Version)
	}
}

// The limits of time hold for the streams of HTTP/2, too.
func TestSlowBodyByHTTP2(t *testing.T) {
	t.Parallel()
	s, client := serveTLS(t)
	body, writer := io.Pipe()
	defer writer.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.addr+"/v1/tasks", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout || len(s.enqueuer.calls()) > 0 {
		t.Errorf("%d, enqueued %v, want 408", response.StatusCode, s.enqueuer.calls())
	}
}

// A client that only connects must not fill the log.
func TestStrangersAtTheTLSPortAreLoggedQuietly(t *testing.T) {
	t.Parallel()
	s, _ := serveTLS(t)
	conn := s.dial(t, "this is no TLS at all\r\n\r\n")
	if _, err := io.ReadAll(conn); err != nil {
		t.Fatal(err)
	}
	if err := s.server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if line := s.log.last(t); line["level"] != "DEBUG" || !strings.Contains(line["msg"].(string), "TLS handshake") {
		t.Errorf("logged %v", line)
	}
}
