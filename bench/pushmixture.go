package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/testing/webpushtest"
	"github.com/activityd/activityd/queue"
)

// benchMixture measures the times from actions to messages of what a site does all day: events by all ways in, each of them
// for a member with a phone and one with a browser, and each second one for one more phone.
func (s *suite) benchMixture(ctx context.Context) (err error) {
	p, err := s.pushes(ctx)
	if err != nil {
		return err
	}
	m := &neighbours{pushBench: p, bad: make(map[string]*webpushtest.Hostile)}
	defer m.close()
	if err := m.start(0, nil); err != nil {
		return err
	}
	if err := m.register(ctx, false, nil); err != nil {
		return err
	}
	defer p.slowly()()
	rate := p.options.rate * 2 / 5
	n := min(int(float64(rate)*p.options.paced.Seconds()), p.options.followers/2) / 2 * 2
	var times []float64
	const name = "by the stream, by rows and by requests in turn"
	all, err := p.runs(ctx, []contender{{
		name: name, times: func() []float64 { return times }, after: m.forget,
		run: func(ctx context.Context) (_ int, err error) {
			times, err = m.mixture(ctx, rate, n)
			return len(times), err
		},
	}})
	if err != nil {
		return err
	}
	part := fmt.Sprintf("A mixture: from the action to the message at APNs or, encrypted, at Web Push, %d events/s for 2.5 devices each, answers after %v", rate, answerTime)
	for _, q := range quantiles {
		f := figure{Part: part, Name: name + ", " + q.name, Unit: "ms", Value: all[name].spread(atQuantile(q.q))}
		switch q.name { // of the time until the answer 65 and 200 ms are aimed at
		case "p50":
			f.Aim, f.Each = atMost(25), all[name].expense()
		case "p99":
			f.Aim = atMost(160)
		}
		p.results.add(f)
	}
	return nil
}

// ofMixture is who is notified in a mixture.
const ofMixture = "mixture"

// mixture sends n events at a steady rate, and returns how long each of their messages took from when it was due.
func (m *neighbours) mixture(ctx context.Context, rate, n int) (times []float64, err error) {
	m.begin(n)
	browsers := newCountdown(n)
	m.mu.Lock()
	m.done = browsers
	m.mu.Unlock()
	phones := n / 2 * 3
	arrived := m.await(phones)
	our, stop := m.workAround(ctx, map[push.Platform]push.Sender{apns.Platform: m.pushBench.sender, webpush.Platform: m.sender},
		func(s queue.Store) queue.Store { return s }, queuesOfPush...)
	second := func(i int) int { return n + i } // phone
	due, err := m.pace(ctx, our, rate, n, func(ctx context.Context) error {
		return errors.Join(browsers.wait(ctx), arrived.wait(ctx))
	}, func(ctx context.Context, due func(i int) time.Time, first, some int) error {
		return inParallel(ctx, m.options.producers, 1, followersFrom(first, some), func(ctx context.Context, phone []member.ID) error {
			i := int(phone[0] - firstFollower)
			to := append(phone, member.ID(firstHonest+i%honests))
			if i%2 == 1 {
				to = append(to, followersFrom(second(i), 1)...)
			}
			m.mu.Lock()
			e := m.event(to...)
			e.ID = fmt.Sprintf("mixture-%d", m.events)
			m.due[e.ID] = expected{ofMixture, due(i)}
			m.mu.Unlock()
			return m.act(ctx, our, i, e)
		})
	})
	if err = errors.Join(err, stop()); err != nil {
		return nil, err
	}
	times = m.took[ofMixture]
	for i := range n {
		times = append(times, milliseconds(arrived.after(m.tokens[i], due(i))))
		if i%2 == 1 {
			times = append(times, milliseconds(arrived.after(m.tokens[second(i)], due(i))))
		}
	}
	return times, nil
}

// act brings an event in: by the stream, by a row, or as a request does, in turn.
func (m *neighbours) act(ctx context.Context, our *activityd, i int, e push.Event) error {
	if i%3 == 2 {
		return announce(ctx, our, e)
	}
	text, err := json.Marshal(e)
	switch {
	case err != nil:
	case i%3 == 0:
		err = m.client.XAdd(ctx, &redis.XAddArgs{Stream: stream.Key, Values: []any{stream.Field, fmt.Sprintf(`{"type":"notify","user_id":"%d","event":%s}`, e.Actor, text)}}).Err()
	default:
		_, err = m.db.ExecContext(ctx, insertNotify, e.Actor, string(text))
		our.notifier.Notify(push.QueuePush)
	}
	return err
}
