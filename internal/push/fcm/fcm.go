package fcm

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/h2pool"
)

// DefaultURL is Google's.
const DefaultURL = "https://fcm.googleapis.com"

// Options are those of a [Sender].
type Options struct {
	Credentials []byte         // a service account's JSON
	URL         string         // "": DefaultURL
	RootCAs     *x509.CertPool // nil: the system's
	Log         *slog.Logger   // nil: none

	growAfter time.Duration // 0: the constant of this name
}

// Sender sends to FCM. It implements [push.Sender].
type Sender struct {
	origin  string
	log     *slog.Logger
	account atomic.Pointer[account]
	tokens  *http.Transport // to the token endpoint
	pool    *h2pool.Pool
	now     func() time.Time

	ctx     context.Context // of the requests for tokens, which belong to no message
	stop    context.CancelFunc
	fetches sync.WaitGroup
}

var _ push.Sender = (*Sender)(nil)

// New returns a sender. It connects to nothing. Its error is for people.
func New(o Options) (*Sender, error) {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	address, err := push.ParseOrigin(o.URL)
	if err != nil {
		return nil, fmt.Errorf("URL: %w", err)
	}
	s := &Sender{origin: "https://" + address, log: o.Log, now: time.Now, tokens: newTransport(o.RootCAs)}
	if err := s.SetCredentials(o.Credentials); err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.pool = h2pool.New(h2pool.Options{
		Address: address, TLS: newTLS(o.RootCAs), HTTP1: true, Proxy: http.ProxyFromEnvironment,
		MaxConns: maxConns, GrowAfter: cmp.Or(o.growAfter, growAfter), DialTimeout: dialTimeout,
		Count:       push.CountConnections(Platform),
		OnDialError: func(err error) { s.log.WarnContext(s.ctx, "FCM cannot be reached", "address", address, "error", err) },
	})
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
func (s *Sender) Close() {
	s.stop()
	s.fetches.Wait()
	s.tokens.CloseIdleConnections()
	s.pool.Close()
}

// Origin implements [push.Sender].
func (s *Sender) Origin(push.Device) string { return s.origin }

// maxToken is how long a registration token may be, in bytes. Google's have about 160.
const maxToken = 4096

// check returns an error, for people, if the token cannot be a registration token.
func check(a push.Address) error {
	token := tokenOf(a)
	switch {
	case token == "":
		return errors.New("token: is missing")
	case len(token) > maxToken:
		return fmt.Errorf("token: has %d bytes: want at most %d", len(token), maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }):
		return errors.New("token: want a registration token, of letters, digits and signs in ASCII")
	}
	return nil
}

const (
	maxConns    = 4                      // each carries a hundred messages at once, or more
	growAfter   = 500 * time.Millisecond // see [h2pool.Options]
	dialTimeout = 5 * time.Second
)

// maxAnswer is how much of an answer of the token endpoint is read, and of any header, in
// bytes.
const maxAnswer = 16 << 10

// Send implements [push.Sender].
func (s *Sender) Send(ctx context.Context, m push.Message) push.Result {
	a := s.account.Load()
	token, r, failed := a.accessToken(ctx)
	if failed {
		return r
	}
	body, err := newRequest(m, s.now()).encode(m.Override)
	if err != nil {
		return push.Result{Outcome: push.Rejected, Reason: "encode"}
	}
	answered, err := s.pool.Send(ctx, h2pool.Request{
		Path: "/v1/projects/" + a.project + "/messages:send", Body: body,
		Header: func(_ any, to []h2pool.Field) ([]h2pool.Field, error) {
			return append(to,
				h2pool.Field{Name: "authorization", Value: "Bearer " + token},
				h2pool.Field{Name: "content-type", Value: "application/json"},
				h2pool.Field{Name: "user-agent", Value: "activityd"},
			), nil
		},
	})
	if err != nil {
		return classifyError(ctx, err)
	}
	r = classify(answered, s.now())
	if r.Status == http.StatusUnauthorized && r.Outcome == push.Credentials && r.Origin && a.refused(token) {
		r.Outcome, r.Pause, r.Origin = push.Wait, failurePause, false // another token will do
	}
	return r
}

// classifyError returns what it means that no answer came.
func classifyError(ctx context.Context, err error) push.Result {
	_, undialled := errors.AsType[*h2pool.DialError](err)
	r := push.Result{Outcome: push.Wait, Reason: "not_sent"}
	switch fate := h2pool.FateOf(err); {
	case fate == h2pool.Written:
		return push.Result{Outcome: push.Ambiguous, Reason: "no_answer"}
	case undialled:
		r.Reason = "dial"
	case fate == h2pool.WentAway:
		r.Reason = push.ReasonGoAway
	case fate == h2pool.Refused:
		r.Reason = push.ReasonRefused
	case ctx.Err() != nil:
		r.Reason = "timeout"
	}
	return r
}

func newTLS(roots *x509.CertPool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
}

// newTransport returns what asks for tokens.
func newTransport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        newTLS(roots),
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		TLSHandshakeTimeout:    dialTimeout,
		IdleConnTimeout:        5 * time.Minute,
		MaxResponseHeaderBytes: maxAnswer,
	}
}
