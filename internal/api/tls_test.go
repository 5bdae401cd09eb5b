package api_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
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
