package h2pool_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/h2pool"
	"github.com/activityd/activityd/internal/testing/apnstest"
)

// served is what a server in another process says of itself.
type served struct {
	URL, Roots, Key, KeyID, TeamID, Topic string
}

const asServer = "ACTIVITYD_TEST_APNS_SERVER"

// TestServer is the server of BenchmarkClient, in a process of its own; else it does nothing.
func TestServer(t *testing.T) {
	if os.Getenv(asServer) == "" {
		return
	}
	s := apnstest.StartWith(t, apnstest.Options{Discard: true})
	text, err := json.Marshal(served{s.URL(), string(s.RootsPEM()), string(s.Key()), s.KeyID(), s.TeamID(), s.Topic()})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("\n" + asServer + string(text))
	_, _ = io.Copy(io.Discard, os.Stdin) // until the other one ends
}

// serveElsewhere starts a fake of APNs in another process.
func serveElsewhere(b *testing.B) (s served) {
	b.Helper()
	command := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestServer$")
	command.Env = append(os.Environ(), asServer+"=1")
	in, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = command.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), asServer); ok {
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				b.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return s
		}
	}
	b.Fatal("the server does not start")
	return s
}

// BenchmarkClient measures the processor time of a client alone: 500 requests in flight, as to
// APNs, whose fake is in another process.
func BenchmarkClient(b *testing.B) {
	const inFlight = 500
	server := serveElsewhere(b)
	block, _ := pem.Decode([]byte(server.Key))
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		b.Fatal(err)
	}
	token, err := push.SignES256(parsed.(*ecdsa.PrivateKey),
		[]byte(`{"alg":"ES256","kid":"`+server.KeyID+`"}`), fmt.Appendf(nil, `{"iss":%q,"iat":%d}`, server.TeamID, time.Now().Unix()))
	if err != nil {
		b.Fatal(err)
	}
	bearer := "bearer " + token
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(server.Roots))
	body := []byte(`{"aps":{"alert":{"title":"ann","body":"has a new photo"},"thread-id":"photo:901"},"event":"` + strings.Repeat("e", 300) + `"}`)
	type names struct{ path, id, collapse string }
	all := make([]names, 1024) // made before, as they are no part of a client
	for n := range all {
		all[n] = names{fmt.Sprintf("/3/device/%064x", n), fmt.Sprintf("%08x-0000-8000-8000-%012x", n, n), fmt.Sprintf("collapse-%d", n)}
	}

	pool := h2pool.New(h2pool.Options{
		Address: strings.TrimPrefix(server.URL, "https://"), TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxConns: 1, GrowAfter: time.Minute, DialTimeout: time.Minute,
	})
	b.Cleanup(pool.Close)
	frames := func(ctx context.Context, n int64) (int, error) {
		one := all[n%int64(len(all))]
		a, err := pool.Send(ctx, h2pool.Request{Path: one.path, Body: body, Header: func(_ any, to []h2pool.Field) ([]h2pool.Field, error) {
			return append(to,
				h2pool.Field{Name: "authorization", Value: bearer}, h2pool.Field{Name: "user-agent", Value: "activityd"},
				h2pool.Field{Name: "apns-push-type", Value: "alert"}, h2pool.Field{Name: "apns-topic", Value: server.Topic},
				h2pool.Field{Name: "apns-priority", Value: "10"}, h2pool.Field{Name: "apns-expiration", Value: "1795300000", Sensitive: true},
				h2pool.Field{Name: "apns-id", Value: one.id, Sensitive: true}, h2pool.Field{Name: "apns-collapse-id", Value: one.collapse, Sensitive: true},
			), nil
		}})
		return a.Status, err
	}
	transport := &http.Transport{
		ForceAttemptHTTP2: true, DisableCompression: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		HTTP2:           &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second, WriteByteTimeout: 5 * time.Second},
	}
	b.Cleanup(transport.CloseIdleConnections)
	standard := func(ctx context.Context, n int64) (int, error) {
		one := all[n%int64(len(all))]
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+one.path, bytes.NewReader(body))
		if err != nil {
			return 0, err
		}
		r.Header = http.Header{
			"Authorization": {bearer}, "User-Agent": {"activityd"}, "Apns-Push-Type": {"alert"}, "Apns-Topic": {server.Topic},
			"Apns-Priority": {"10"}, "Apns-Expiration": {"1795300000"}, "Apns-Id": {one.id}, "Apns-Collapse-Id": {one.collapse},
		}
		a, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, a.Body)
		return a.StatusCode, a.Body.Close()
	}
	for _, client := range []struct {
		name string
		send func(context.Context, int64) (int, error)
	}{{"frames", frames}, {"net-http", standard}} {
		b.Run(client.name, func(b *testing.B) {
			if status, err := client.send(b.Context(), 0); status != http.StatusOK || err != nil {
				b.Fatal(status, err)
			}
			b.ReportAllocs()
			before := processorTime(b)
			b.ResetTimer()
			var next atomic.Int64
			var senders sync.WaitGroup
			for range inFlight {
				senders.Go(func() {
					ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
					defer cancel()
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						if status, err := client.send(ctx, n); status != http.StatusOK || err != nil {
							b.Errorf("%d, %v", status, err)
							return
						}
					}
				})
			}
			senders.Wait()
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/1000/float64(b.N), "cpu-µs/request")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// processorTime returns what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
