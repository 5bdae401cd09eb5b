package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/apnstest"
	"github.com/activityd/activityd/queue"
)

// pushBench measures notifications, whose push service is a fake in this process: the
// machine pays for both ends.
//
// Its site are an uploader, followers with a device each, and one more member with a device,
// who is sent urgent events.
type pushBench struct {
	*suite

	apple  *apnstest.Server
	sender *apns.Sender
	accept atomic.Pointer[func(apnstest.Request)] // is called with each message that was accepted
	events int                                    // so far
	tokens []string                               // of the devices, by follower
}

// Ids, beyond those of the other site.
const (
	pushUploader  = 501
	pushUrgent    = 502 // who is sent urgent events
	pushPhoto     = 900_000_000
	firstFollower = 9_000_001
)

// inFlight is how many messages a service has in flight at most: six workers with a share of
// a claim each.
const inFlight = 3 * tasks.DefaultBatch

// pushes returns the benchmark of notifications, whose site and push service are made when
// the first part needs them.
func (s *suite) pushes(ctx context.Context) (*pushBench, error) {
	if s.push != nil {
		return s.push, nil
	}
	p := &pushBench{suite: s}
	for i := range s.options.followers {
		p.tokens = append(p.tokens, tokenOf(firstFollower+i))
	}
	if err := p.load(ctx); err != nil {
		return nil, fmt.Errorf("make the followers: %w", err)
	}
	var err error
	p.apple, err = apnstest.New(apnstest.Options{Discard: true, OnAccept: func(r apnstest.Request) {
		if f := p.accept.Load(); f != nil {
			(*f)(r)
		}
	}})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, closing(p.apple.Close))
	if p.sender, err = p.newSender(); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, closing(p.sender.Close))
	s.push = p
	return p, nil
}

// closing is a close that cannot fail.
type closing func()

// Close implements [io.Closer].
func (c closing) Close() error { c(); return nil }

// tokenOf is the device token of a member.
func tokenOf(id int) string {
	hash := sha256.Sum256([]byte(strconv.Itoa(id)))
	return hex.EncodeToString(hash[:])
}

// load makes the site.
func (p *pushBench) load(ctx context.Context) error {
	numbers := " FROM (WITH RECURSIVE r (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i < 999) SELECT a.i * 1000 + b.i AS n FROM r a JOIN r b) AS q" +
		" WHERE n < " + strconv.Itoa(p.options.followers)
	const device = "INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) "
	for _, statement := range []string{
		fmt.Sprintf("INSERT INTO users (id, username) VALUES (%d, 'publisher'), (%d, 'urgent')", pushUploader, pushUrgent),
		fmt.Sprintf("INSERT INTO photos (id, owner_id, title, visibility, date_upload) VALUES (%d, %d, 'photo', 'public', %d)", pushPhoto, pushUploader, epoch),
		fmt.Sprintf("INSERT INTO users (id, username) SELECT %d + n, CONCAT('follower', n)", firstFollower) + numbers,
		fmt.Sprintf("INSERT INTO contacts (user_id, contact_id, is_friend, is_family) SELECT %d + n, %d, 0, 0", firstFollower, pushUploader) + numbers,
		fmt.Sprintf(device+"SELECT %d + n, %[1]d + n, 'apns', UNHEX(SHA2(%[1]d + n, 256)), JSON_OBJECT('token', SHA2(%[1]d + n, 256)), 1", firstFollower) + numbers,
		fmt.Sprintf(device+"VALUES (%d, %[1]d, 'apns', UNHEX('%s'), JSON_OBJECT('token', '%[2]s'), 1)", pushUrgent, tokenOf(pushUrgent)),
		"ANALYZE TABLE users, contacts, photos, push_devices",
	} {
		if _, err := p.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// newSender returns a sender that has no connection yet.
func (p *pushBench) newSender() (*apns.Sender, error) {
	return apns.New(apns.Options{
		KeyPEM: p.apple.Key(), KeyID: p.apple.KeyID(), TeamID: p.apple.TeamID(), Topic: p.apple.Topic(),
		URL: p.apple.URL(), RootCAs: p.apple.RootCAs(), Log: p.log,
	})
}

// ended counts the tasks of a kind once their end is committed, deliver tasks by their devices.
type ended struct {
	queue.Store
	kind string
	done *countdown
}

// Finish implements [queue.Store].
func (e ended) Finish(ctx context.Context, results []queue.Result) (lost int, err error) {
	lost, err = e.Store.Finish(ctx, results)
	if err == nil {
		finished := 0
		for _, r := range results {
			switch {
			case r.Err != nil || r.Task.Kind != e.kind || lost > 0:
			case e.kind != push.Deliver:
				finished++
			default:
				finished += devicesOf(r.Task.Payload)
				for _, rest := range r.Next {
					finished -= devicesOf(rest.Payload)
				}
			}
		}
		e.done.done(finished)
	}
	return lost, err
}

// devicesOf returns how many devices a deliver task is for.
func devicesOf(payload json.RawMessage) int {
	var d push.Delivery
	if err := json.Unmarshal(payload, &d); err != nil {
		return 0
	}
	return len(d.To)
}

// work starts the workers of some queues, with those numbers of them that a service has, and
// messages go over a sender. What they end of a kind, done is told, unless it is nil.
func (p *pushBench) work(ctx context.Context, sender *apns.Sender, kind string, done *countdown, queues ...string) (our *activityd, stop func() error) {
	around := func(s queue.Store) queue.Store { return s }
	if done != nil {
		around = func(s queue.Store) queue.Store { return ended{s, kind, done} }
	}
	return p.workAround(ctx, map[push.Platform]push.Sender{apns.Platform: sender}, around, queues...)
}

// workAround is work over the senders of several platforms, on what a function returns around the queue.
func (p *pushBench) workAround(
	ctx context.Context, senders map[push.Platform]push.Sender, around func(queue.Store) queue.Store, queues ...string,
) (our *activityd, stop func() error) {
	our = newActivityd(p.backend)
	our.pool.Workers = slices.DeleteFunc(our.pool.Workers, func(w queue.Workers) bool { return !slices.Contains(queues, w.Queue) })
	kept := push.NewMySQL(p.db)
	deliveries := push.NewDeliveries(push.DeliveryOptions{
		Store: kept, Senders: senders, ByMembers: map[push.Platform]bool{webpush.Platform: true}, Log: p.log,
	})
	handlers := tasks.Handlers(p.index, our.store, our.queue, tasks.HandlerOptions{
		Push: push.Handler{Targeting: push.NewTargeting(push.TargetingOptions{Store: kept, Followers: our.store}), Deliveries: deliveries},
	})
	end := our.workWith(ctx, around(our.queue), handlers)
	return our, func() error {
		err := end()
		deliveries.Wait()
		return err
	}
}

// queuesOfPush are the queues of notifications.
var queuesOfPush = []string{push.QueuePush, push.QueueUrgent}

// event is one about the uploader's photo.
func (p *pushBench) event(recipients ...member.ID) push.Event {
	p.events++
	return push.Event{
		Type: "upload", Actor: pushUploader, Object: fmt.Sprintf("photo:%d", pushPhoto), Recipients: recipients, Followers: len(recipients) == 0,
		Title: "Ann", Body: "A new photo: Harbour at dawn", Data: []byte(`{"photo":"901"}`),
	}
}

// announce enqueues events.
func announce(ctx context.Context, our *activityd, events ...push.Event) error {
	batch := make([]queue.New, len(events))
	for i, e := range events {
		var err error
		if batch[i], err = push.NewNotify(e); err != nil {
			return err
		}
	}
	_, err := our.queue.Enqueue(ctx, batch)
	return err
}

// followersFrom returns the ids of n followers, from the i-th on.
func followersFrom(i, n int) (ids []member.ID) {
	for ; n > 0; n-- {
		ids = append(ids, member.ID(firstFollower+i))
		i++
	}
	return ids
}

// toAll are events that reach n followers, by a thousand.
func (p *pushBench) toAll(n int) (events []push.Event) {
	for i := 0; i < n; i += push.MaxRecipients {
		e := p.event(followersFrom(i, min(push.MaxRecipients, n-i))...)
		e.ID = fmt.Sprintf("event-%d", p.events)
		events = append(events, e)
	}
	return events
}

// exactly runs what has n messages accepted, and fails if there were more or fewer.
func (p *pushBench) exactly(n int, run func(context.Context) error) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		before := p.apple.Stats()
		if err := run(ctx); err != nil {
			return 0, err
		}
		after := p.apple.Stats()
		if got := after.Accepted - before.Accepted; got != n {
			return 0, fmt.Errorf("%d messages were accepted, want %d", got, n)
		}
		return n, nil
	}
}

// The ways to send. The first is the whole of it; what follows it are its two steps by
// themselves.
const (
	wayEvents  = "activityd: events targeted and delivered"
	wayTarget  = "activityd: events targeted"
	wayDeliver = "activityd: deliveries that wait"
	wayBare    = "activityd's sender in a bare loop, as many in flight"
	wayAPNs2   = "apns2, 8 workers"
)

// benchDeliveries measures deliveries beside loops that have no queue and no database, and
// how many connections they take.
func (s *suite) benchDeliveries(ctx context.Context) error {
	p, err := s.pushes(ctx)
	if err != nil {
		return err
	}
	foreign, err := newAPNs2(p.apple)
	if err != nil {
		return err
	}
	defer foreign.CloseIdleConnections()
	n := p.options.pushes
	all, err := p.runs(ctx, []contender{
		{name: wayEvents, run: p.exactly(n, p.byEvents), after: p.forget},
		{
			name: wayTarget, run: func(ctx context.Context) (int, error) { return n, p.target(ctx, n) },
			next: &contender{name: wayDeliver, run: p.exactly(n, p.byTasks), after: p.forget},
		},
		{name: wayBare, run: p.exactly(n, p.bySender)},
		{name: wayAPNs2, run: p.exactly(n, func(ctx context.Context) error { return p.byAPNs2(ctx, foreign) })},
	})
	if err != nil {
		return err
	}
	const unit = "deliveries/s"
	part := fmt.Sprintf("Deliveries of %d, both ends of TLS on this machine", n)
	p.results.rates(part, all, wayBare, unit, "", nil)
	p.results.rates(part, all, wayAPNs2, unit, wayBare, nil)
	p.results.rates(part, all, wayDeliver, unit, wayBare, nil)
	p.results.rates(part, all, wayEvents, unit, wayBare, nil)
	p.results.rates(part, all, wayTarget, unit, wayBare, nil)
	for _, of := range []struct {
		way         string
		ratio, rate float64 // aimed at
	}{{wayDeliver, 0.9, 30_000}, {wayEvents, 0.6, 20_000}} {
		p.results.add(figure{Part: part, Name: of.way, Against: wayAPNs2, Ratio: all[of.way].over(all[wayAPNs2], sample.rate), Aim: atLeast(of.ratio)})
		p.results.add(figure{Part: part, Name: of.way + ", alone", Unit: unit, Value: all[of.way].spread(sample.rate), Aim: atLeast(of.rate)})
	}

	conns, err := p.coldStart(ctx, 500)
	p.results.add(figure{
		Part: "A cold start with 500 deliveries that wait", Name: "connections", Exact: true, Value: spreadOf(float64(conns)), Aim: atMost(2),
	})
	return err
}

// byEvents enqueues events that are targeted and delivered.
func (p *pushBench) byEvents(ctx context.Context) error {
	delivered := p.delivered(p.options.pushes)
	our, stop := p.work(ctx, p.sender, "", nil, queuesOfPush...)
	err := announce(ctx, our, p.toAll(p.options.pushes)...)
	if err == nil {
		err = delivered(ctx)
	}
	return errors.Join(err, stop())
}

// target makes n deliveries, which wait, by one worker.
func (p *pushBench) target(ctx context.Context, n int) error {
	events, our := p.toAll(n), newActivityd(p.backend)
	targeting := push.NewTargeting(push.TargetingOptions{Store: push.NewMySQL(p.db), Followers: our.store})
	if err := announce(ctx, our, events...); err != nil {
		return err
	}
	for left := len(events); left > 0; {
		claimed, err := our.queue.Claim(ctx, push.QueuePush, left, time.Minute) // the deliveries come behind all events
		if err != nil {
			return err
		}
		results := make([]queue.Result, len(claimed))
		for i, o := range targeting.Handle(ctx, claimed) {
			results[i] = queue.Result{Task: claimed[i], Err: o.Err, Next: o.Next}
			if o.Err == nil {
				left--
			}
		}
		if _, err := our.queue.Finish(ctx, results); err != nil {
			return err
		}
	}
	return nil
}

// byTasks works off the deliveries that wait.
func (p *pushBench) byTasks(ctx context.Context) error {
	return p.deliver(ctx, p.sender, p.options.pushes)
}

func (p *pushBench) deliver(ctx context.Context, sender *apns.Sender, n int) error {
	done := newCountdown(n)
	_, stop := p.work(ctx, sender, push.Deliver, done, push.QueuePush)
	return errors.Join(done.wait(ctx), stop())
}

// left returns how many tasks of notifications, or claims of some, there are.
func (p *pushBench) left(ctx context.Context) (n int, err error) {
	err = p.db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM tasks WHERE type IN ('notify', 'target', 'deliver'))"+
		" + (SELECT COUNT(*) FROM task_leases WHERE queue IN ('push', 'push_urgent'))"+
		" + (SELECT COUNT(*) FROM parked_tasks WHERE type IN ('notify', 'target', 'deliver'))").Scan(&n)
	return n, err
}

// delivered returns what waits until n messages more than now are accepted, and no task is left.
func (p *pushBench) delivered(n int) func(ctx context.Context) error {
	n += p.apple.Stats().Accepted
	return func(ctx context.Context) error {
		if err := p.apple.Await(ctx, func(s apnstest.Stats) bool { return s.Accepted >= n }); err != nil {
			return err
		}
		for {
			left, err := p.left(ctx)
			if err != nil || left == 0 {
				return err
			}
			if err := retry.Sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
}

// forget empties what runs leave behind, as the purge of a service does a day later.
func (p *pushBench) forget(ctx context.Context) error {
	left, err := p.left(ctx)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d tasks are left", left)
	}
	if err != nil {
		return err
	}
	for _, table := range []string{"push_receipts", "push_runs"} {
		if _, err := p.db.ExecContext(ctx, "TRUNCATE TABLE "+table); err != nil {
			return err
		}
	}
	return nil
}

// loop calls do for the devices of the first followers from a number of goroutines.
func (p *pushBench) loop(ctx context.Context, goroutines int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range goroutines {
		group.Go(func() error {
			for i := next.Add(1); i <= int64(p.options.pushes); i = next.Add(1) {
				if err := do(ctx, int(i-1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// bySender sends the same messages with nothing around the sender.
func (p *pushBench) bySender(ctx context.Context) error {
	e := p.event()
	return p.loop(ctx, inFlight, func(ctx context.Context, i int) error {
		r := p.sender.Send(ctx, push.Message{
			ID:     fmt.Sprintf("00000000-0000-8000-8000-%012x", i),
			Device: push.Device{Platform: apns.Platform, Address: apns.NewAddress(p.tokens[i], false)},
			Notification: push.Notification{
				Event: "1", Type: e.Type, Actor: e.Actor, Object: e.Object, Title: e.Title, Body: e.Body, Data: e.Data, Count: 1,
				Collapse: strings.Repeat("c", 32),
			},
		})
		if r.Outcome != push.Accepted {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

// coldStart delivers what waits over a sender without a connection, and returns how many it
// opens.
func (p *pushBench) coldStart(ctx context.Context, n int) (conns int, err error) {
	if err := p.target(ctx, n); err != nil {
		return 0, err
	}
	sender, err := p.newSender()
	if err != nil {
		return 0, err
	}
	defer sender.Close()
	before := p.apple.Stats()
	if _, err = p.exactly(n, func(ctx context.Context) error { return p.deliver(ctx, sender, n) })(ctx); err != nil {
		return 0, err
	}
	return p.apple.Stats().Conns - before.Conns, p.forget(ctx)
}
