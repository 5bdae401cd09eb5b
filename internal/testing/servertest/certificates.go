package servertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates that it alone vouches for.
type Authority struct {
	File string // its own certificate, in PEM

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority whose files are removed when t ends.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem")}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = a.issue(t, a.File, a.cert)
	return a
}

// Issue returns a file with a certificate of a host, an IP address, and its key, for servers and clients.
func (a *Authority) Issue(t testing.TB, host string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "cert.pem")
	a.issue(t, file, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		IPAddresses: []net.IP{net.ParseIP(host)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return file
}

// issue writes a certificate, by the authority, or by itself if that has no key yet, and its key.
func (a *Authority) issue(t testing.TB, file string, cert *x509.Certificate) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return key
}
