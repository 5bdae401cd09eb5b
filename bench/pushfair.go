package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/webpushtest"
	"github.com/activityd/activityd/queue"
)

// Ids of members with browsers, beyond those of the other parts.
const (
	firstHonest  = 20_000_001 // with one each, at one push service
	firstStarter = 20_100_001 // with one each, at a push service of its own that is new in each run
	firstMadeUp  = 20_200_001 // with push.MaxDevices each, at push services that fail
)

const (
	honestRate = 50 // notifications a second
	honests    = 50
	starters   = 5
	badEvents  = 10
	// starterTime is how long after the last notification a run waits for those that are late.
	starterTime = 30 * time.Second
)

// neighbours is browsers: those of honest members, and those of members that someone made up,
// with their push services.
type neighbours struct {
	*pushBench

	honest []*webpushtest.Server           // that of the honest members, and one for each who is new
	bad    map[string]*webpushtest.Hostile // by contender
	sender *webpush.Sender

	mu   sync.Mutex
	due  map[string]expected  // by event
	took map[string][]float64 // ms, by who was notified
	done *countdown
}

// benchNeighbours measures what honest members notice of one who has made up members with browsers
// at hundreds of push services that fail.
func (s *suite) benchNeighbours(ctx context.Context) (err error) {
	p, err := s.pushes(ctx)
	if err != nil {
		return err
	}
	n := &neighbours{pushBench: p, bad: make(map[string]*webpushtest.Hostile)}
	defer n.close()
	half := p.options.hostile / 2
	const alone = "alone"
	sound := fmt.Sprintf("beside %d at one that accepts all", 2*half)
	silent, broken := fmt.Sprintf("beside %d that never answer and %d that answer 6 of 12", half, half), fmt.Sprintf("beside %d that reset, drip or never end", 2*half)
	if err := n.start(2*half, map[string][]webpushtest.Manner{
		silent: {webpushtest.Hangs, webpushtest.Wavers},
		broken: {webpushtest.Resets, webpushtest.Drips, webpushtest.Endless},
	}); err != nil {
		return err
	}
	var list []contender
	seen := make(map[string][]crowding)
	firsts := make(map[string]samples)
	for _, name := range []string{alone, sound, silent, broken} {
		var times []float64
		list = append(list, contender{
			name: name, times: func() []float64 { return times }, prepare: func(ctx context.Context) error { return n.register(ctx, name != alone, n.bad[name]) }, after: n.forget,
			run: func(ctx context.Context) (int, error) {
				c, err := n.run(ctx, name != alone, n.bad[name])
				if err != nil {
					return 0, err
				}
				times = n.took[ofHonest]
				seen[name] = append(seen[name], c)
				firsts[name] = append(firsts[name], sample{times: n.took[ofStarter]})
				return len(times), nil
			},
		})
	}
	all, err := p.runs(ctx, list)
	if err != nil {
		return err
	}
	part := fmt.Sprintf("Web Push to honest members, %d/s, from the event's row to the push service, answers after %v; %d events, one a second, for each of the others", honestRate, answerTime, badEvents)
	for _, c := range list {
		last := func(of func(crowding) float64) *spread {
			var values []float64
			for _, one := range seen[c.name][len(seen[c.name])-len(all[c.name]):] {
				values = append(values, of(one))
			}
			return spreadOf(values...)
		}
		for _, q := range []float64{0.5, 0.99} {
			f := figure{Part: part, Name: fmt.Sprintf("%s, p%v", c.name, 100*q), Unit: "ms", Value: all[c.name].spread(atQuantile(q))}
			if q == 0.5 {
				f.Each = all[c.name].expense()
			}
			if c.name != alone {
				f.Against, f.Ratio = fmt.Sprintf("%s, p%v", alone, 100*q), all[c.name].over(all[alone], atQuantile(q))
			}
			p.results.add(f)
		}
		p.results.add(figure{Part: part, Name: c.name + ", to a push service that is new, the last", Unit: "ms", Value: firsts[c.name][len(firsts[c.name])-len(all[c.name]):].spread(atQuantile(1))})
		if c.name == alone {
			continue
		}
		if c.name != sound {
			p.results.add(figure{Part: part, Name: c.name + ", connections to them, at most", Value: last(func(c crowding) float64 { return c.conns })})
			p.results.add(figure{Part: part, Name: c.name + ", put off", Unit: "/s", Value: last(func(c crowding) float64 { return c.postponed })})
		}
		p.results.add(figure{Part: part, Name: c.name + ", p99, less " + alone, Unit: "ms", Value: all[c.name].less(all[alone], atQuantile(0.99)), Aim: atMost(50)})
		p.results.add(figure{Part: part, Name: c.name + ", goroutines, at most", Value: last(func(c crowding) float64 { return c.goroutines })})
	}
	return nil
}

// start starts the push services.
func (n *neighbours) start(bad int, manners map[string][]webpushtest.Manner) (err error) {
	roots := x509.NewCertPool()
	for range 1 + starters {
		server, err := webpushtest.Start(webpushtest.Options{Forget: true, OnAccept: n.accepted})
		if err != nil {
			return err
		}
		n.honest = append(n.honest, server)
		server.Script(func(webpushtest.Request) webpushtest.Answer { return webpushtest.Answer{Delay: answerTime} })
		roots.AppendCertsFromPEM(server.RootPEM())
	}
	for name, list := range manners {
		if n.bad[name], err = webpushtest.StartHostile(bad, list...); err != nil {
			return err
		}
		roots.AppendCertsFromPEM(n.bad[name].RootPEM())
	}
	keys, err := webpush.GenerateKey()
	if err != nil {
		return err
	}
	n.sender, err = webpush.New(webpush.Options{
		Key: keys.PEM, Subject: "mailto:push@photos.example", RootCAs: roots, Log: n.log, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	return err
}

func (n *neighbours) close() {
	for _, s := range n.bad {
		if s != nil {
			s.Close()
		}
	}
	for _, s := range n.honest {
		s.Close()
	}
	if n.sender != nil {
		n.sender.Close()
	}
}

// register makes all browsers new ones.
func (n *neighbours) register(ctx context.Context, crowd bool, bad *webpushtest.Hostile) error {
	if _, err := n.db.ExecContext(ctx, "DELETE FROM push_devices WHERE platform = 'webpush'"); err != nil {
		return err
	}
	store := push.NewMySQL(n.db)
	add := func(id member.ID, a push.Address) error {
		if _, err := n.db.ExecContext(ctx, "INSERT IGNORE INTO users (id, username) VALUES (?, ?)", id, fmt.Sprint("member", id)); err != nil {
			return err
		}
		_, err := store.Register(ctx, id, webpush.Platform, a)
		return err
	}
	subscribe := func(id member.ID, at *webpushtest.Server) error {
		s, err := at.Subscribe("")
		if err != nil {
			return err
		}
		return add(id, addressOf(s))
	}
	for i := range honests {
		if err := subscribe(member.ID(firstHonest+i), n.honest[0]); err != nil {
			return err
		}
	}
	for i := range starters {
		if err := subscribe(member.ID(firstStarter+i), n.honest[1+i]); err != nil {
			return err
		}
	}
	for i := 0; crowd && i < n.options.hostile/2*2; i++ {
		id := member.ID(firstMadeUp + i/push.MaxDevices)
		err := error(nil)
		if bad == nil {
			err = subscribe(id, n.honest[0])
		} else {
			err = add(id, addressOf(bad.Subscription(i)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addressOf returns the address of a browser.
func addressOf(s *webpushtest.Subscription) push.Address {
	return webpush.NewAddress(s.Endpoint(), s.P256DH(), s.Auth())
}

// forget is the end of a run: what waits for the others goes, too.
func (n *neighbours) forget(ctx context.Context) error {
	var errs []error
	for _, table := range []string{"tasks", "task_leases", "parked_tasks"} {
		_, err := n.db.ExecContext(ctx, "DELETE FROM "+table)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, n.pushBench.forget(ctx))...)
}

// accepted takes note of a message to an honest member.
func (n *neighbours) accepted(a webpushtest.Acceptance) {
	var message struct {
		Event string `json:"event"`
	}
	_ = json.Unmarshal(a.Payload, &message) // then it has no event
	n.mu.Lock()
	defer n.mu.Unlock()
	if e, ok := n.due[message.Event]; ok {
		n.took[e.who] = append(n.took[e.who], milliseconds(a.At.Sub(e.at)))
		delete(n.due, message.Event)
		n.done.done(1)
	}
}

// expected is a notification of an honest member.
type expected struct {
	who string // one of the constants
	at  time.Time
}

const (
	ofHonest  = "honest"
	ofStarter = "starter"
)

// crowding is what the others do in a run.
type crowding struct {
	postponed         float64 // a second
	conns, goroutines float64 // at most
}

// turns counts the deliveries that were put off.
type turns struct {
	queue.Store
	postponed atomic.Int64
}

// Finish implements [queue.Store].
func (t *turns) Finish(ctx context.Context, results []queue.Result) (int, error) {
	for _, r := range results {
		if r.Task.Kind == push.Deliver && r.Err != nil {
			t.postponed.Add(int64(devicesOf(r.Task.Payload)))
		}
		for _, rest := range r.Next {
			if rest.Kind == push.Deliver && rest.Delay > 0 {
				t.postponed.Add(int64(devicesOf(rest.Payload)))
			}
		}
	}
	return t.Store.Finish(ctx, results)
}

// run sends notifications to honest members at a steady rate, beside some events for the others.
func (n *neighbours) run(ctx context.Context, crowd bool, bad *webpushtest.Hostile) (c crowding, err error) {
	counted := &turns{}
	our, stop := n.workAround(ctx, map[push.Platform]push.Sender{webpush.Platform: n.sender}, func(s queue.Store) queue.Store {
		counted.Store = s
		return counted
	}, queuesOfPush...)
	defer func() { err = errors.Join(err, stop()) }()
	notifications := max(starters, int(2*n.options.paced.Seconds()*honestRate))
	n.begin(notifications + starters)
	send := func(who string, to int, at time.Time) error {
		e := n.event(member.ID(to))
		e.ID = fmt.Sprintf("neighbour-%d", n.events)
		n.mu.Lock()
		n.due[e.ID] = expected{who, at}
		n.mu.Unlock()
		return announce(ctx, our, e)
	}
	warm := newCountdown(honests)
	n.mu.Lock()
	n.done = warm
	n.mu.Unlock()
	for i := range honests {
		if err := send("", firstHonest+i, time.Now()); err != nil {
			return c, err
		}
	}
	if err := warm.wait(ctx); err != nil {
		return c, err
	}
	done := newCountdown(notifications + starters)
	n.mu.Lock()
	n.done = done
	n.mu.Unlock()
	postponed, start := counted.postponed.Load(), time.Now()
	for i := range notifications {
		due := start.Add(time.Duration(i) * time.Second / honestRate)
		if err := retry.Sleep(ctx, time.Until(due)); err != nil {
			return c, err
		}
		if crowd && i%honestRate == 0 && i/honestRate < badEvents {
			if err := announce(ctx, our, n.event(n.crowd()...)); err != nil {
				return c, err
			}
		}
		if err := send(ofHonest, firstHonest+i%honests, due); err != nil {
			return c, err
		}
		if each := notifications / starters; (i+1)%each == 0 && (i+1)/each <= starters {
			if err := send(ofStarter, firstStarter+i/each, due); err != nil {
				return c, err
			}
		}
		c.goroutines = max(c.goroutines, float64(runtime.NumGoroutine()))
	}
	took := time.Since(start).Seconds()
	c.postponed = float64(counted.postponed.Load()-postponed) / took
	if bad != nil {
		_, most, _ := bad.Conns()
		c.conns = float64(most)
	}
	waiting, cancel := context.WithTimeout(ctx, starterTime)
	defer cancel()
	if err := done.wait(waiting); ctx.Err() != nil {
		return c, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.due { // it takes longer than that
		n.took[e.who] = append(n.took[e.who], milliseconds(time.Since(e.at)))
	}
	clear(n.due)
	return c, nil
}

// begin forgets what came in the run before.
func (n *neighbours) begin(most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.due, n.took = make(map[string]expected), make(map[string][]float64, most)
}

// crowd returns the members that were made up.
func (n *neighbours) crowd() (all []member.ID) {
	for i := 0; i < n.options.hostile/2*2; i += push.MaxDevices {
		all = append(all, member.ID(firstMadeUp+i/push.MaxDevices))
	}
	return all
}
