// Package pushtest is what the fakes of push services share: a certificate, and a server whose connections can be cut.
// It needs no package testing.
package pushtest

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Roots is what clients have to trust, in PEM.
type Roots []byte

// RootsPEM returns the content of a file. RootCAs returns the same as a pool.
func (r Roots) RootsPEM() []byte { return r }

// RootCAs is described at [Roots.RootsPEM].
func (r Roots) RootCAs() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(r)
	return pool
}

// NewCertificate returns a certificate for the addresses of this machine, which is its own authority.
func NewCertificate() (tls.Certificate, Roots, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "a fake of a push service"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// Service is an HTTPS server.
type Service struct {
	Roots

	listener    net.Listener
	http        *http.Server
	connections atomic.Int64
	done        chan struct{} // closed when no connection is accepted any more
}

// Listen makes a service at an address; "": a free port of 127.0.0.1. It begins with Serve.
func Listen(address string, http1Only bool) (*Service, error) {
	certificate, roots, err := NewCertificate()
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", cmp.Or(address, "127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	s := &Service{Roots: roots, listener: listener, done: make(chan struct{})}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!http1Only)
	s.http = &http.Server{
		Protocols: &protocols, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}},
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: 250},
		ErrorLog:  log.New(io.Discard, "", 0), // clients give up handshakes
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			s.connections.Add(1)
			return context.WithValue(ctx, connection{}, c)
		},
	}
	return s, nil
}

// Serve has handler answer requests until [Service.Close], which is to be called.
func (s *Service) Serve(handler http.Handler) {
	s.http.Handler = handler
	go func() {
		defer close(s.done)
		_ = s.http.ServeTLS(s.listener, "", "")
	}()
}

type connection struct{}

// Close stops the service and cuts its connections.
func (s *Service) Close() {
	_ = s.http.Close()
	<-s.done
}

// URL returns https://host:port.
func (s *Service) URL() string { return "https://" + s.listener.Addr().String() }

// Connections returns how many connections were made so far.
func (s *Service) Connections() int { return int(s.connections.Load()) }

// Cut cuts the connection of a request instead of an answer. It does not return.
func Cut(r *http.Request) {
	if c, ok := r.Context().Value(connection{}).(net.Conn); ok {
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}
