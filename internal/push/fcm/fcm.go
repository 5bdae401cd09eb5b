package fcm

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/push"
)

// DefaultURL is Google's.
const DefaultURL = "https://fcm.googleapis.com"

// Options are those of a [Sender].
type Options struct {
	Credentials []byte         // a service account's JSON
	URL         string         // "": DefaultURL
	RootCAs     *x509.CertPool // nil: the system's
	Log         *slog.Logger
}

// Sender sends to FCM. It implements [push.Sender].
type Sender struct {
	base    string // URL without a path
	origin  string
	log     *slog.Logger
	account atomic.Pointer[account]
	tokens  *http.Transport // to the token endpoint
	send    *http.Transport
	now     func() time.Time

	ctx     context.Context //nolint:containedctx // of the requests for tokens, which belong to no message
	stop    context.CancelFunc
	fetches sync.WaitGroup
}

var _ push.Sender = (*Sender)(nil)

// New returns a sender. It connects to nothing. Its error is for people.
func New(o Options) (*Sender, error) {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("URL: want https://host or https://host:port")
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	s := &Sender{
		base: "https://" + u.Host, origin: "https://" + net.JoinHostPort(u.Hostname(), port), log: o.Log, now: time.Now,
		tokens: newTransport(o.RootCAs), send: newTransport(o.RootCAs),
	}
	if err := s.SetCredentials(o.Credentials); err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// SetCredentials replaces the service account. After an error the one before stays.
func (s *Sender) SetCredentials(text []byte) error {
	c, err := parseCredentials(text)
	if err != nil {
		return err
	}
	s.account.Store(&account{credentials: c, sender: s})
	return nil
}

// Close ends the connections. Nothing may be sent afterwards.
func (s *Sender) Close() error {
	s.stop()
	s.fetches.Wait()
	s.tokens.CloseIdleConnections()
	s.send.CloseIdleConnections()
	return nil
}

// Origin implements [push.Sender].
func (s *Sender) Origin(push.Device) string { return s.origin }

// Check implements [push.Sender], as [Check].
func (s *Sender) Check(_ context.Context, a push.Address) error { return Check(a) }

// maxToken is how long a registration token may be, in bytes. Google's have about 160.
const maxToken = 4096

// Check returns an error, for people, if the token cannot be a registration token.
func Check(a push.Address) error {
	switch {
	case a.Token == "":
		return errors.New("token: is missing")
	case len(a.Token) > maxToken:
		return fmt.Errorf("token: has %d bytes: want at most %d", len(a.Token), maxToken)
	case strings.ContainsFunc(a.Token, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }):
		return errors.New("token: want a registration token, of letters, digits and signs in ASCII")
	}
	return nil
}

// maxConnections is how many connections there are to FCM, and as many to the token endpoint.
const maxConnections = 2

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 16 << 10

// Send implements [push.Sender].
func (s *Sender) Send(ctx context.Context, m push.Message) push.Result {
	a := s.account.Load()
	token, r, failed := a.accessToken(ctx)
	if failed {
		return r
	}
	body, err := newRequest(m, s.now()).encode()
	if err != nil {
		return push.Result{Outcome: push.Rejected, Reason: "encode"}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/v1/projects/"+a.project+"/messages:send", bytes.NewReader(body))
	if err != nil {
		return push.Result{Outcome: push.Rejected, Reason: "request"}
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	answered, written, err := s.roundTrip(request)
	if err != nil {
		return classifyError(ctx, written)
	}
	r = classify(answered, s.now())
	if r.Status == http.StatusUnauthorized && r.Outcome == push.Credentials && r.Origin && a.refused(token) {
		r.Outcome, r.After = push.Wait, failurePause // another token will do
	}
	return r
}

// roundTrip sends a request once. After an error, written says whether any of it may have
// reached FCM.
func (s *Sender) roundTrip(request *http.Request) (a answer, written bool, err error) {
	var wrote atomic.Bool
	traced := httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	response, err := s.send.RoundTrip(request.WithContext(traced))
	if err != nil {
		return answer{}, wrote.Load(), err
	}
	defer func() { _ = response.Body.Close() }()
	a.status, a.retryAfter = response.StatusCode, response.Header.Get("Retry-After")
	a.body, _ = io.ReadAll(io.LimitReader(response.Body, maxAnswer)) // the status alone says what became of it
	return a, true, nil
}

// classifyError returns what it means that no answer came.
func classifyError(ctx context.Context, written bool) push.Result {
	switch {
	case written:
		return push.Result{Outcome: push.Ambiguous, Reason: "no_answer"}
	case ctx.Err() != nil:
		return push.Result{Outcome: push.Wait, Reason: "timeout"}
	}
	return push.Result{Outcome: push.Wait, Reason: "dial", Origin: true}
}

// newTransport returns a transport with few connections: FCM takes a hundred or more requests
// at once over each, and what finds no free stream waits for one. Its hidden retries are of
// requests alone that were not processed, as the server said.
func newTransport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		TLSHandshakeTimeout:    5 * time.Second,
		IdleConnTimeout:        5 * time.Minute,
		MaxConnsPerHost:        maxConnections,
		MaxResponseHeaderBytes: maxAnswer,
		HTTP2: &http.HTTP2Config{
			StrictMaxConcurrentRequests: true,
			SendPingTimeout:             5 * time.Second, // of silence
			PingTimeout:                 5 * time.Second,
			WriteByteTimeout:            5 * time.Second,
		},
	}
}
