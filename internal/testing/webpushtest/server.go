// Package webpushtest is a push service for simulated browsers: it makes subscriptions, takes messages by RFC
// 8030, checks the sender by RFC 8292, and decrypts messages as a browser does. It is for tests, the
// benchmark and the demo.
package webpushtest

import (
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/testing/pushtest"
)

// Acceptance is a message that the push service took.
type Acceptance struct {
	At           time.Time
	Subscription string // its ID
	Topic        string // "" if there was none
	TTL          time.Duration
	Urgency      string
	Payload      []byte // decrypted
	Proto        string // of HTTP
	Remote       string // the connection
}

// Answer is the answer to a request. The zero Answer is the push service's own.
type Answer struct {
	Status int // 0: the push service's own
	Header http.Header
	Body   string
	Delay  time.Duration // before the answer
	Hang   bool          // there is no answer until the client goes away; the message is not taken
	Cut    bool          // the message is taken, and then the connection is cut
}

// Options are for [Start].
type Options struct {
	Address string // to listen on; "": a free port of 127.0.0.1
	HTTP1   bool   // HTTP/1.1 only
	// Forget keeps no acceptances and no messages but the number of them, for benchmarks.
	Forget bool
}

// Server is a push service. Its methods are safe for concurrent use.
type Server struct {
	*pushtest.Service

	forget bool

	mu            sync.Mutex
	script        func(Request) Answer
	subscriptions map[string]*Subscription
	accepted      []Acceptance
	taken         int
	refused       []string          // the reasons of the last refusals
	verified      map[string]string // the public keys of headers that were checked
}

// Request is a script's view of a request.
type Request struct {
	N            int // the first one has 0; of those since the script was set
	Subscription string
	Header       http.Header
}

// Start starts a push service. It is to be closed.
func Start(o Options) (*Server, error) {
	service, err := pushtest.Listen(o.Address, o.HTTP1)
	if err != nil {
		return nil, err
	}
	s := &Server{Service: service, forget: o.Forget, subscriptions: make(map[string]*Subscription), verified: make(map[string]string)}
	service.Serve(s)
	return s, nil
}

// Script makes f answer all requests from now on; nil: the push service itself answers. f is called for one
// request at a time.
func (s *Server) Script(f func(Request) Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := -1
	s.script = func(r Request) Answer {
		n++
		r.N = n
		if f == nil {
			return Answer{}
		}
		return f(r)
	}
}

// Sequence is for [Server.Script]: the answers in turn, and then the push service's own.
func Sequence(answers ...Answer) func(Request) Answer {
	return func(r Request) Answer {
		if r.N < len(answers) {
			return answers[r.N]
		}
		return Answer{}
	}
}

// Accepted returns the messages that were taken, in their order.
func (s *Server) Accepted() []Acceptance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.accepted)
}

// Taken returns how many messages were taken.
func (s *Server) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Refused returns why the last requests (100 at most) were refused. It is empty if the
// sender knows its RFCs.
func (s *Server) Refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refused)
}

// ServeHTTP takes a message.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 4097))
	if err != nil {
		return // the client is gone
	}
	id := strings.TrimPrefix(r.URL.Path, "/push/")
	answer := s.scripted(Request{Subscription: id, Header: r.Header})
	if answer.Delay > 0 {
		timer := time.NewTimer(answer.Delay)
		defer timer.Stop()
		select {
		case <-r.Context().Done():
			return
		case <-timer.C:
		}
	}
	maps.Copy(w.Header(), answer.Header)
	switch {
	case answer.Hang:
		<-r.Context().Done()
	case answer.Status != 0:
		w.WriteHeader(answer.Status)
		_, _ = io.WriteString(w, answer.Body)
	default:
		status, why := s.take(r, id, body)
		if answer.Cut {
			pushtest.Cut(r)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, why)
	}
}

func (s *Server) scripted(r Request) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.script == nil {
		return Answer{}
	}
	return s.script(r)
}

var topic = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// take checks a request as a push service and a browser do, and takes its message.
func (s *Server) take(r *http.Request, id string, body []byte) (status int, why string) {
	refuse := func(status int, why string) (int, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = append(s.refused, fmt.Sprint(status, " ", why))
		s.refused = s.refused[max(0, len(s.refused)-100):]
		return status, why
	}
	s.mu.Lock()
	subscription := s.subscriptions[id]
	s.mu.Unlock()
	switch {
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, "not a POST")
	case subscription == nil:
		return refuse(http.StatusNotFound, "no such subscription")
	case subscription.isGone():
		return refuse(http.StatusGone, "unsubscribed")
	case len(body) > 4096:
		return refuse(http.StatusRequestEntityTooLarge, "more than 4096 bytes")
	}
	key, err := s.verify(r.Header.Get("Authorization"))
	if err != nil {
		return refuse(http.StatusUnauthorized, err.Error())
	}
	if subscription.serverKey != "" && key != subscription.serverKey {
		return refuse(http.StatusForbidden, "the subscription is for another key")
	}
	a := Acceptance{
		At: time.Now(), Subscription: id, Topic: r.Header.Get("Topic"), Urgency: r.Header.Get("Urgency"),
		Proto: r.Proto, Remote: r.RemoteAddr,
	}
	if a.TTL, err = checkHeader(r.Header); err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	if a.Payload, err = Decrypt(body, subscription.private, subscription.auth); err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	s.mu.Lock()
	s.taken++
	if !s.forget {
		s.accepted = append(s.accepted, a)
	}
	s.mu.Unlock()
	if !s.forget {
		subscription.take(a)
	}
	return http.StatusCreated, ""
}

// verify caches valid headers, as a token is used for hours.
func (s *Server) verify(header string) (key string, err error) {
	s.mu.Lock()
	key = s.verified[header]
	s.mu.Unlock()
	if key != "" {
		return key, nil
	}
	if key, err = verify(header, s.URL(), time.Now()); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verified[header] = key
	return key, nil
}

func checkHeader(h http.Header) (ttl time.Duration, err error) {
	seconds, err := strconv.ParseUint(h.Get("TTL"), 10, 31)
	switch {
	case err != nil:
		return 0, fmt.Errorf("TTL: %w", err)
	case h.Get("Content-Encoding") != "aes128gcm":
		return 0, errors.New("the encoding is not aes128gcm")
	case h.Get("Topic") != "" && !topic.MatchString(h.Get("Topic")):
		return 0, errors.New("the topic is invalid")
	case !slices.Contains([]string{"", "very-low", "low", "normal", "high"}, h.Get("Urgency")):
		return 0, errors.New("the urgency is invalid")
	}
	return time.Duration(seconds) * time.Second, nil
}

// Subscribe makes a subscription, for the holder of the VAPID key whose public part is
// given as to the browser (applicationServerKey); "": for all.
func (s *Server) Subscribe(applicationServerKey string) (*Subscription, error) {
	private, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	auth := make([]byte, 16)
	_, _ = rand.Read(auth) // it never fails
	id := rand.Text()
	u := &Subscription{id: id, endpoint: s.URL() + "/push/" + id, serverKey: applicationServerKey, private: private, auth: auth, online: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscriptions[id] = u
	return u, nil
}
