package fcm

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

// DefaultURL is Google's.
const DefaultURL = "https://fcm.googleapis.com"

// Options are for [New].
type Options struct {
	Credentials []byte         // a service account's JSON
	URL         string         // "": DefaultURL
	RootCAs     *x509.CertPool // nil: the system's
	Log         *slog.Logger
}

// Sender sends to FCM. It implements [push.Sender].
type Sender struct {
	address string // host:port
	account atomic.Pointer[account]
	pool    *conn.Pool // also to the token endpoint
	log     *slog.Logger
	now     func() time.Time

	ctx     context.Context // of the requests for tokens: they belong to no message
	stop    context.CancelFunc
	fetches sync.WaitGroup
}

var _ push.Sender = (*Sender)(nil)

// New returns a sender. It connects to nothing. Its error is for people.
func New(o Options) (*Sender, error) {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	address, err := push.ParseOrigin(o.URL)
	if err != nil {
		return nil, fmt.Errorf("URL: %w", err)
	}
	s := &Sender{address: address, log: o.Log, now: time.Now}
	if err := s.SetCredentials(o.Credentials); err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.pool = conn.New(conn.Options{RootCAs: o.RootCAs, Count: push.CountConnections(Platform)})
	return s, nil
}

// SetCredentials replaces the service account. After an error the account before stays.
func (s *Sender) SetCredentials(text []byte) error {
	c, err := parseCredentials(text)
	if err != nil {
		return err
	}
	s.account.Store(&account{credentials: c, sender: s})
	return nil
}

// Close closes the connections when the last message is answered. No message may begin afterwards.
func (s *Sender) Close() {
	s.stop()
	s.fetches.Wait()
	s.pool.Close()
}

// Origin implements [push.Sender].
func (s *Sender) Origin(push.Device) string { return "https://" + s.address }

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

// Send implements [push.Sender].
func (s *Sender) Send(ctx context.Context, m push.Message) push.Result {
	a := s.account.Load()
	token, r, failed := a.accessToken(ctx)
	if failed {
		return r
	}
	body, err := Payload(&m, s.now())
	if err != nil {
		return push.Result{Outcome: push.Rejected, Reason: "encode"}
	}
	to := &url.URL{Scheme: "https", Host: s.address, Path: "/v1/projects/" + a.project + "/messages:send"}
	answered, none := s.pool.Post(ctx, to, http.Header{
		"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "User-Agent": {"activityd"},
	}, body, m.Before)
	if none != nil {
		return conn.Unanswered(none)
	}
	r = classify(answered, s.now())
	if r.Status == http.StatusUnauthorized && r.Outcome == push.Credentials && r.Origin && a.refused(token) {
		r.Outcome, r.Pause, r.Origin = push.Wait, failurePause, false // another token will do
	}
	return r
}
