package main

import (
	"crypto/x509"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Tokens and certificate are in the metrics, and change there as they do in use.
func TestAccessIsMeasured(t *testing.T) {
	t.Parallel()
	file, reader := newTokenFile(t, "reader", "read")
	certFile := filepath.Join(t.TempDir(), "cert")
	old := writeCertificate(t, certFile, 1)
	p := spawn(t, "--token-file="+file, "--tls-cert="+certFile, "--metrics-listen=127.0.0.1:0")
	metrics := "http://" + p.awaitLog(t, "listening for metrics")["address"] + "/metrics"
	shows := func(want string) bool {
		_, body := page(t, metrics)
		return strings.Contains(body, "\n"+want+"\n")
	}
	endOf := func(c *x509.Certificate) string {
		return "activityd_tls_certificate_not_after_timestamp_seconds " + strconv.FormatFloat(float64(c.NotAfter.Unix()), 'g', -1, 64)
	}
	if want := endOf(old); !shows(want) {
		t.Errorf("no %s", want)
	}
	reads := "https" + strings.TrimPrefix(p.url, "http") + "/v1/users/1/recent-contact-photos"
	client := trusting(old)
	for _, secret := range []string{reader, reader, "act_NOBODY", ""} {
		ask(t, client, http.MethodGet, reads, secret)
	}
	for _, want := range []string{
		`activityd_access_requests_total{token="reader",verdict="allowed"} 2`,
		`activityd_access_requests_total{token="reader",verdict="limit"} 0`,
		`activityd_access_requests_total{token="(unknown)",verdict="unknown_token"} 1`,
		`activityd_access_requests_total{token="(none)",verdict="no_token"} 1`,
	} {
		if !shows(want) {
			t.Errorf("no %s", want)
		}
	}
	appendToken(t, file, "fresh", "write")
	eventually(t, "the new token has a series", func() bool { return shows(`activityd_access_requests_total{token="fresh",verdict="allowed"} 0`) })
	fresh := writeCertificate(t, certFile, 2)
	want := endOf(fresh)
	eventually(t, "the new certificate's end is shown", func() bool { return shows(want) })
}
