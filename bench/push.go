package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sideshow/apns2"
	"github.com/sideshow/apns2/token"
	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/testing/apnstest"
)

// pushBench is notifications to a fake push service in this process: the machine pays for both ends of TLS.
// Each of the first readers has a device.
type pushBench struct {
	*bench
	apple  *apnstest.Server
	events int // so far

	mu      sync.Mutex
	arrived map[string]time.Time // at the push service, by token; nil: nobody wants to know
}

// tokenOf is the token of the i-th reader's device.
func tokenOf(i int) string {
	hash := sha256.Sum256([]byte(strconv.Itoa(i)))
	return hex.EncodeToString(hash[:])
}

// accepted is called with each message.
func (p *pushBench) accepted(r apnstest.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arrived != nil {
		p.arrived[r.Token] = time.Now()
	}
}

// startPush starts the push service, and returns activityd's settings for it.
func (b *bench) startPush() (p *pushBench, settings []string, err error) {
	p = &pushBench{bench: b}
	if p.apple, err = apnstest.New(apnstest.Options{Discard: true, OnAccept: p.accepted}); err != nil {
		return nil, nil, err
	}
	b.closers = append(b.closers, closing(p.apple.Close))
	key, roots := filepath.Join(b.dir, "AuthKey_"+p.apple.KeyID()+".p8"), filepath.Join(b.dir, "roots.pem")
	for file, text := range map[string][]byte{key: p.apple.Key(), roots: p.apple.RootsPEM()} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, nil, err
		}
	}
	return p, []string{
		"ACTIVITYD_APNS_KEY=" + key, "ACTIVITYD_APNS_TEAM_ID=" + p.apple.TeamID(),
		"ACTIVITYD_APNS_TOPIC=" + p.apple.Topic(), "ACTIVITYD_APNS_URL=" + p.apple.URL(), "SSL_CERT_FILE=" + roots, "ACTIVITYD_AUDIT_SWEEP_RATE=0",
	}, nil
}

// benchPush compares durable deliveries with apns2, which keeps nothing, and measures a mixture
// of small events.
func (b *bench) benchPush(ctx context.Context) error {
	if err := b.makeSite(ctx); err != nil {
		return err
	}
	p, settings, err := b.startPush()
	if err != nil {
		return err
	}
	return b.with(func(served *program) error {
		conns, closeAll, err := dials(ctx, served.addr, 16)
		if err != nil {
			return err
		}
		defer closeAll()
		if err := p.register(ctx, conns, p.size.followers); err != nil {
			return err
		}
		if err := p.compareWithAPNs2(ctx, conns); err != nil {
			return err
		}
		return p.benchMixture(ctx, conns)
	}, settings...)
}

// register gives the first n readers a device.
func (p *pushBench) register(ctx context.Context, conns []*conn, n int) error {
	return parallel(ctx, len(conns), n, func(_ context.Context, worker, i int) error {
		_, err := conns[worker].must(http.MethodPut, fmt.Sprintf("/v1/users/%d/devices", firstMember+i),
			fmt.Sprintf(`{"platform":"apns","token":"%s","environment":"production"}`, tokenOf(i)), http.StatusOK)
		return err
	})
}

// event is an event about the uploader, for n readers from the first on.
func (p *pushBench) event(first, n int) string {
	p.events++
	recipients := make([]string, n)
	for i := range recipients {
		recipients[i] = strconv.Itoa(firstMember + first + i)
	}
	to, _ := json.Marshal(recipients)
	return fmt.Sprintf(`{"id":"bench-%d","type":"comment","recipients":%s,"title":"Ann","body":"A new comment: Harbour at dawn","data":{"photo":"901"}}`, p.events, to)
}

// post sends an event by a request. The request names its actor.
func post(c *conn, event string) error {
	_, err := c.must(http.MethodPost, "/v1/events", fmt.Sprintf(`{"events":[{"actor_id":"%d",%s]}`, uploader, event[1:]), http.StatusAccepted)
	return err
}

// await waits until so many messages more than before were accepted.
func (p *pushBench) await(ctx context.Context, before apnstest.Stats, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := p.apple.Await(ctx, func(s apnstest.Stats) bool { return s.Accepted-before.Accepted >= n })
	if got := p.apple.Stats().Accepted - before.Accepted; err != nil || got != n {
		return fmt.Errorf("%d messages were accepted, want %d: %w", got, n, err)
	}
	return nil
}

// compareWithAPNs2 sends to all followers, by events of a thousand.
func (p *pushBench) compareWithAPNs2(ctx context.Context, conns []*conn) error {
	const ours, theirs, each = "activityd, durably, from the request on", "apns2, by 8 workers", 1000
	client, err := p.newAPNs2()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	n := p.size.followers
	all, err := p.rounds(ctx, contender{name: ours, run: func(ctx context.Context) (outcome, error) {
		before := p.apple.Stats()
		for first := 0; first < n; first += each {
			if err := post(conns[0], p.event(first, min(each, n-first))); err != nil {
				return outcome{}, err
			}
		}
		return outcome{ops: n}, p.await(ctx, before, n)
	}}, contender{name: theirs, run: func(ctx context.Context) (outcome, error) {
		before := p.apple.Stats()
		err := parallel(ctx, 8, n, func(ctx context.Context, _, i int) error {
			r, err := client.PushWithContext(ctx, &apns2.Notification{
				ApnsID: fmt.Sprintf("00000000-0000-8000-8000-%012x", i), DeviceToken: tokenOf(i), Topic: p.apple.Topic(), CollapseID: "c",
				Expiration: time.Now().Add(time.Hour), Priority: apns2.PriorityHigh, PushType: apns2.PushTypeAlert,
				Payload: []byte(`{"aps":{"alert":{"title":"Ann","body":"A new comment: Harbour at dawn"}},"event":"bench","type":"comment","actor":"501","count":1,"data":{"photo":"901"}}`),
			})
			if err == nil && !r.Sent() {
				err = fmt.Errorf("%d %s", r.StatusCode, r.Reason)
			}
			return err
		})
		if err != nil {
			return outcome{}, err
		}
		return outcome{ops: n}, p.await(ctx, before, n)
	}})
	if err != nil {
		return err
	}
	part := fmt.Sprintf("%d notifications, both ends of TLS on this machine", n)
	p.report.rates(part, "deliveries/s", all, map[string]bound{ours: atLeast(0.5)}, theirs, ours)
	return nil
}

// newAPNs2 returns a client of the package that most Go programs send to APNs with.
func (p *pushBench) newAPNs2() (*apns2.Client, error) {
	key, err := token.AuthKeyFromBytes(p.apple.Key())
	if err != nil {
		return nil, err
	}
	client := apns2.NewTokenClient(&token.Token{AuthKey: key, KeyID: p.apple.KeyID(), TeamID: p.apple.TeamID()})
	client.Host = p.apple.URL()
	client.HTTPClient.Transport = &http2.Transport{TLSClientConfig: &tls.Config{RootCAs: p.apple.RootCAs(), MinVersion: tls.VersionTLS12}}
	return client, nil
}

// The push service of a mixture answers after answerTime, as Apple's does; its events are for two and three devices in turn.
const (
	answerTime   = 50 * time.Millisecond
	devicesOfTwo = 5
)

// benchMixture measures the daily work of a site: small events by requests, rows and the stream
// in turn, at a steady rate.
func (p *pushBench) benchMixture(ctx context.Context, conns []*conn) error {
	p.apple.Answer(func(apnstest.Request) apnstest.Answer { return apnstest.Answer{Delay: answerTime} })
	defer p.apple.Answer(nil)
	events := min(p.size.events, p.size.followers/devicesOfTwo*2) / 2 * 2
	const name = "from the event to the push service, which answers after 50 ms"
	all, err := p.rounds(ctx, contender{name: name, run: func(ctx context.Context) (outcome, error) { return p.mixture(ctx, conns, events) }})
	if err != nil {
		return err
	}
	part := fmt.Sprintf("%d events/s for 2.5 devices each, by requests, rows and the stream in turn", p.size.rate)
	p.report.times(part, all[name], name, map[string]bound{"p50": atMost(70)})
	p.report.Figures = append(p.report.Figures, figure{
		Part: part, Name: "processor time of activityd and the database a delivery", Unit: "µs", Value: spreadOf(all[name].ours), Bound: atMost(550),
	})
	return nil
}

func (p *pushBench) mixture(ctx context.Context, conns []*conn, events int) (outcome, error) {
	messages := events / 2 * devicesOfTwo
	texts, due := make([]string, events), make([]time.Time, events)
	start := time.Now().Add(20 * time.Millisecond)
	of := make(map[string]int, messages) // the event of a token
	for i, first := 0, 0; i < events; i++ {
		n := 2 + i%2
		texts[i], due[i] = p.event(first, n), start.Add(time.Duration(i)*time.Second/time.Duration(p.size.rate))
		for range n {
			of[tokenOf(first)] = i
			first++
		}
	}
	p.mu.Lock()
	p.arrived = make(map[string]time.Time, messages)
	p.mu.Unlock()
	before := p.apple.Stats()
	err := parallel(ctx, len(conns), events, func(ctx context.Context, worker, i int) error {
		select {
		case <-time.After(time.Until(due[i])):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return p.act(ctx, conns[worker], i%3, texts[i])
	})
	if err == nil {
		err = p.await(ctx, before, messages)
	}
	if err != nil {
		return outcome{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o := outcome{ops: messages}
	for token, at := range p.arrived {
		o.times = append(o.times, milliseconds(at.Sub(due[of[token]])))
	}
	p.arrived = nil
	return o, nil
}

// act brings an event in: by a request, by a row or by the stream.
func (p *pushBench) act(ctx context.Context, c *conn, way int, event string) (err error) {
	switch way {
	case 0:
		err = post(c, event)
	case 1:
		if _, err = p.db.ExecContext(ctx, "INSERT INTO tasks (queue, type, subject, args) VALUES ('push', 'notify', ?, ?)", uploader, event); err == nil {
			err = p.client.Publish(ctx, "activityd_wake", "push").Err()
		}
	default:
		err = p.client.XAdd(ctx, &redis.XAddArgs{
			Stream: "activityd_events", Values: []any{"task", fmt.Sprintf(`{"type":"notify","user_id":"%d","event":%s}`, uploader, event)},
		}).Err()
	}
	return err
}
