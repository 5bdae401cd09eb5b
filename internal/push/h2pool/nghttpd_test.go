package h2pool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A server that is not of Go: nghttpd of nghttp2, which sends back what is uploaded.
func TestAForeignServer(t *testing.T) {
	t.Parallel()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	certified.Close()
	dir := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(certified.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"key": {Type: "PRIVATE KEY", Bytes: key}, "cert": {Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	_, port, _ := net.SplitHostPort(address)
	server := exec.CommandContext(t.Context(), "nghttpd", "--echo-upload", "-a", "127.0.0.1", "-d", dir, "-m", "7", "-W", "14", "-c", "256", port, filepath.Join(dir, "key"), filepath.Join(dir, "cert"))
	if err := server.Start(); err != nil {
		t.Fatalf("nghttpd, of Debian's nghttp2-server: %v", err)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = server.Wait() }()
	t.Cleanup(func() { _ = server.Process.Kill(); <-stopped })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = c.Close()
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	pool := New(Options{Address: address, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, MaxConns: 1, GrowAfter: patience, DialTimeout: patience, Silence: 3 * time.Second})
	defer pool.Close()
	defer func() { _ = server.Process.Signal(syscall.SIGCONT) }()
	var all sync.WaitGroup
	for n := range 300 {
		all.Go(func() {
			body := strings.Repeat("x", 1+n*n%12000)
			a, err := pool.Send(ctx, Request{Path: "/upload", Body: []byte(body), Header: func(_ any, to []Field) ([]Field, error) {
				return append(to, Field{Name: "authorization", Value: strings.Repeat("a", 300)}, Field{Name: "n", Value: strings.Repeat("n", 1+n%90)}), nil
			}})
			if err != nil || a.Status != 200 || string(a.Body) != body {
				t.Errorf("%d: %v, %d, %d bytes of %d come back", n, err, a.Status, len(a.Body), len(body))
			}
		})
	}
	all.Wait()

	// One that hangs is found to be dead, and one that goes on is used again.
	post := func() error {
		a, err := pool.Send(ctx, Request{Path: "/upload", Header: noFields, Body: []byte("text")})
		return errors.Join(err, a.Err)
	}
	if err := server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := post(); !errors.Is(err, errSilent) || FateOf(err) != Written {
		t.Errorf("it hangs: fate %d, %v", FateOf(err), err)
	}
	if err := server.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := post(); err != nil {
		t.Errorf("it goes on: %v", err)
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-stopped
	err = post()
	for FateOf(err) == Written && ctx.Err() == nil { // its end may not be known yet
		err = post()
	}
	if _, ok := errors.AsType[*DialError](err); !ok {
		t.Errorf("it is dead: %v", err)
	}
}
