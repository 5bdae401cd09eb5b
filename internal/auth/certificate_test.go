package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

// newCertificate makes a certificate for a name, and its key, both in PEM.
func newCertificate(t testing.TB, name string, notAfter time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: notAfter.Add(-48 * time.Hour), NotAfter: notAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", raw)
}

// shown is the name in the certificate that a client is shown now.
func shown(t testing.TB, config *tls.Config) string {
	t.Helper()
	cert, err := config.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf.DNSNames[0]
}

func TestTheCertificateIsFollowed(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	tomorrow := time.Now().Add(24 * time.Hour)
	cert, key := newCertificate(t, "one", tomorrow)
	nextWeek := tomorrow.Add(6 * 24 * time.Hour)
	newCert, newKey := newCertificate(t, "two", nextWeek)
	write(t, certFile, cert)
	write(t, keyFile, key)
	log, ends := &logBuffer{}, []float64{}
	noteEnd := func() {
		ends = append(ends, metricstest.Gather(t)["activityd_tls_certificate_not_after_timestamp_seconds"])
	}
	config, reloader, err := auth.LoadCertificate(certFile, keyFile, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	if config.MinVersion != tls.VersionTLS12 || shown(t, config) != "one" {
		t.Fatalf("%x, %s", config.MinVersion, shown(t, config))
	}
	noteEnd()
	write(t, certFile, newCert) // the key is still the old one's
	lookTwice(t, reloader)
	lookTwice(t, reloader)
	if got := shown(t, config); got != "one" || len(log.at(t, slog.LevelError)) != 1 {
		t.Errorf("with a foreign key: %s\n%s", got, log)
	}
	noteEnd()
	write(t, keyFile, newKey)
	lookTwice(t, reloader)
	if got := shown(t, config); got != "two" {
		t.Errorf("with its key: %s\n%s", got, log)
	}
	write(t, keyFile, "")
	lookTwice(t, reloader)
	if got := shown(t, config); got != "two" || len(log.at(t, slog.LevelError)) != 2 {
		t.Errorf("with no key: %s\n%s", got, log)
	}
	noteEnd()
	if diff := cmp.Diff([]float64{float64(tomorrow.Unix()), float64(tomorrow.Unix()), float64(nextWeek.Unix())}, ends); diff != "" {
		t.Errorf("their ends are shown as:\n%s", diff)
	}
	if strings.Contains(log.String(), strings.Split(newKey, "\n")[1]) {
		t.Error("the log shows the key")
	}
}

func TestBadCertificatesAreErrorsAtTheStart(t *testing.T) {
	t.Parallel()
	tomorrow := time.Now().Add(24 * time.Hour)
	cert, key := newCertificate(t, "one", tomorrow)
	_, otherKey := newCertificate(t, "two", tomorrow)
	for name, files := range map[string][2]string{
		"other key": {newFile(t, cert), newFile(t, otherKey)},
		"swapped":   {newFile(t, key), newFile(t, cert)},
		"empty":     {newFile(t, ""), newFile(t, "")},
		"missing":   {newFile(t, cert), filepath.Join(t.TempDir(), "missing")},
	} {
		_, _, err := auth.LoadCertificate(files[0], files[1], slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), files[1]) {
			t.Errorf("%s: %v, want an error that names the file", name, err)
		}
	}
}

// All users may read the certificate, but not its key.
func TestAKeyForEverybodyIsWarnedOf(t *testing.T) {
	t.Parallel()
	cert, key := newCertificate(t, "one", time.Now().Add(24*time.Hour))
	certFile, keyFile, log := newFile(t, cert), newFile(t, key), &logBuffer{}
	for _, path := range []string{certFile, keyFile} {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := auth.LoadCertificate(certFile, keyFile, log.logger()); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.at(t, slog.LevelWarn); len(got) != 1 || got[0]["file"] != keyFile || got[0]["mend"] != "chmod g-w,o= "+keyFile {
		t.Errorf("warned of %v", got)
	}
}

func TestAnExpiredCertificateIsWarnedOf(t *testing.T) {
	t.Parallel()
	for when, warned := range map[time.Duration]bool{-time.Hour: true, time.Hour: false, 96 * time.Hour: true} {
		cert, key := newCertificate(t, "one", time.Now().Add(when))
		log := &logBuffer{}
		if _, _, err := auth.LoadCertificate(newFile(t, cert), newFile(t, key), log.logger()); err != nil {
			t.Fatal(err)
		}
		if got := len(log.at(t, slog.LevelWarn)); (got == 1) != warned {
			t.Errorf("%v from now: %d warnings\n%s", when, got, log)
		}
	}
}
