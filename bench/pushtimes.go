package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/testing/apnstest"
	"github.com/activityd/activityd/internal/testing/streamtest"
)

// answerTime is how long the push service takes to answer. It is not part of the times from
// an action on: a message counts as accepted when it has come in.
const answerTime = 40 * time.Millisecond

// arrivals takes note of when messages come in, by the device's token.
type arrivals struct {
	*countdown

	mu sync.Mutex
	at map[string]time.Time
}

// await starts to take note of so many messages.
func (p *pushBench) await(n int) *arrivals {
	a := &arrivals{countdown: newCountdown(n), at: make(map[string]time.Time, n)}
	note := func(r apnstest.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.at[r.Token] = r.Time
		a.done(1)
	}
	p.accept.Store(&note)
	return a
}

// after returns how long after a time the message of a device came in.
func (a *arrivals) after(token string, start time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at[token].Sub(start)
}

// slowly has the push service take its time to answer.
func (p *pushBench) slowly() (undo func()) {
	p.apple.Answer(func(apnstest.Request) apnstest.Answer { return apnstest.Answer{Delay: answerTime} })
	return func() { p.apple.Answer(nil) }
}

// way is a way in: it sends notifications of some followers, each of whom has an event of its
// own, and all of which are due now.
type way struct {
	name string
	send func(ctx context.Context, our *activityd, first, n int) error
}

func (p *pushBench) ways() []way {
	return []way{
		{"XADD", p.byStream},
		{"rows of the site", p.byRows},
	}
}

// byStream adds the events to the stream.
func (p *pushBench) byStream(ctx context.Context, _ *activityd, first, n int) error {
	_, err := p.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := first; i < first+n; i++ {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream.Key, Values: []any{stream.Field, fmt.Sprintf(
				`{"type":"notify","user_id":"%d","event":{"type":"comment","object":"photo:%d","recipients":["%d"],"title":"Ann","body":"How beautiful"}}`,
				pushUploader, pushPhoto, firstFollower+i)}})
		}
		return nil
	})
	return err
}

// insertNotify is what a site adds to the transaction of its change.
const insertNotify = "INSERT INTO tasks (type, subject, args, queue) VALUES ('notify', ?, ?, 'push')"

// byRows inserts a row for each event, a transaction each, as requests to a site do that come
// at the same moment, and has the workers notified.
func (p *pushBench) byRows(ctx context.Context, our *activityd, first, n int) error {
	return inParallel(ctx, p.options.producers, 1, followersFrom(first, n), func(ctx context.Context, to []member.ID) error {
		_, err := p.db.ExecContext(ctx, insertNotify, pushUploader, fmt.Sprintf(
			`{"type":"comment","object":"photo:%d","recipients":["%s"],"title":"Ann","body":"How beautiful"}`, pushPhoto, to[0]))
		our.notifier.Notify(push.QueuePush)
		return err
	})
}

// benchLatency measures the times from actions, which come at a steady rate, to the messages
// at the push service.
func (s *suite) benchLatency(ctx context.Context) error {
	p, err := s.pushes(ctx)
	if err != nil {
		return err
	}
	defer p.slowly()()
	var list []contender
	for _, w := range p.ways() {
		var times []float64
		n := min(int(float64(p.options.rate)*p.options.paced.Seconds()), p.options.followers)
		list = append(list, contender{
			name: w.name, times: func() []float64 { return times }, after: p.forget,
			run: p.exactly(n, func(ctx context.Context) (err error) {
				times, err = p.paceOut(ctx, w, n)
				return err
			}),
		})
	}
	all, err := p.runs(ctx, list)
	if err != nil {
		return err
	}
	part := fmt.Sprintf("From the action to the message at the push service, %d events/s with one recipient each, answers after %v", p.options.rate, answerTime)
	for _, c := range list {
		for _, q := range quantiles {
			f := figure{Part: part, Name: c.name + ", " + q.name, Unit: "ms", Value: all[c.name].spread(atQuantile(q.q))}
			switch q.name {
			case "p50":
				f.Aim, f.Each = atMost(15), all[c.name].expense()
			case "p99":
				f.Aim = atMost(60)
			}
			p.results.add(f)
		}
	}
	return nil
}

// paceOut sends n events at the steady rate, and returns how long each took from when it was
// due: what the producer is late with counts.
func (p *pushBench) paceOut(ctx context.Context, w way, n int) ([]float64, error) {
	arrived := p.await(n)
	delivered := p.delivered(n)
	our, stop := p.work(ctx, p.sender, "", nil, queuesOfPush...)
	due, err := p.pace(ctx, our, p.options.rate, n, delivered, func(ctx context.Context, _ func(int) time.Time, first, n int) error {
		return w.send(ctx, our, first, n)
	})
	err = errors.Join(err, stop())
	times := make([]float64, n)
	for i := range times {
		times[i] = milliseconds(arrived.after(p.tokens[i], due(i)))
	}
	return times, err
}

// pace sends n events at a steady rate, also those that come over the stream, and waits until they are delivered. It
// returns when each was due.
func (p *pushBench) pace(
	ctx context.Context, our *activityd, rate, n int, delivered func(context.Context) error, send func(ctx context.Context, due func(i int) time.Time, first, n int) error,
) (due func(i int) time.Time, err error) {
	consuming, end := context.WithCancel(ctx)
	var consumer sync.WaitGroup
	consumer.Go(func() { _ = stream.New(p.client, our.queue, p.log, stream.Options{Name: "bench"}).Run(consuming) }) // its end is no error
	defer consumer.Wait()
	defer end()
	start := time.Now()
	due = func(i int) time.Time { return start.Add(time.Duration(i) * time.Second / time.Duration(rate)) }
	for sent := 0; sent < n && err == nil; {
		ready := sent
		for now := time.Now(); ready < n && !due(ready).After(now); {
			ready++
		}
		if ready > sent {
			err = send(ctx, due, sent, ready-sent)
			sent = ready
			continue
		}
		err = retry.Sleep(ctx, time.Until(due(sent)))
	}
	if err == nil {
		err = delivered(ctx)
	}
	return due, err
}

// benchAudience measures an event for all followers, and urgent events in the middle of it
// and by themselves.
func (s *suite) benchAudience(ctx context.Context) error {
	p, err := s.pushes(ctx)
	if err != nil {
		return err
	}
	defer p.slowly()()
	n := p.options.followers
	contend := func(name string, n int, run func(context.Context) ([]float64, error)) contender {
		var times []float64
		return contender{
			name: name, times: func() []float64 { return times }, after: p.forget,
			run: p.exactly(n+p.options.urgents, func(ctx context.Context) (err error) {
				times, err = run(ctx)
				return err
			}),
		}
	}
	const plain, burst, idle = "an event without a collapse key", "an event of a burst, as by default", "nothing else"
	all, err := p.runs(ctx, []contender{
		contend(plain, n, func(ctx context.Context) ([]float64, error) { return p.tell(ctx, n, "") }),
		contend(burst, n, func(ctx context.Context) ([]float64, error) { return p.tell(ctx, n, fmt.Sprintf("burst-%d", p.events)) }),
		contend(idle, 0, func(ctx context.Context) ([]float64, error) { return p.tell(ctx, 0, "") }),
	})
	if err != nil {
		return err
	}
	part := fmt.Sprintf("An event to %d followers, each with a device", n)
	for _, name := range []string{plain, burst} {
		p.results.rates(part, all, name, "deliveries/s", "", nil)
		p.results.add(figure{Part: part, Name: name + ", until the last is accepted", Unit: "s", Value: all[name].spread(func(s sample) float64 { return s.Wall.Seconds() })})
	}
	part = fmt.Sprintf("An urgent event, from its task to the message, %d in each round", p.options.urgents)
	p.results.add(figure{Part: part, Name: "beside " + idle + ", p50", Unit: "ms", Value: all[idle].spread(atQuantile(0.5))})
	for _, name := range []string{plain, burst} {
		p.results.add(figure{
			Part: part, Name: "in the middle of " + name + ", p50", Unit: "ms", Value: all[name].spread(atQuantile(0.5)),
			Against: "beside " + idle + ", p50", Ratio: all[name].over(all[idle], atQuantile(0.5)), Aim: atMost(2),
		})
	}
	return nil
}

// tell has n followers told of an event, and, each time that a further share of them was,
// another member of an urgent one. It returns how long the urgent ones took.
func (p *pushBench) tell(ctx context.Context, n int, collapse string) ([]float64, error) {
	delivered := p.delivered(n + p.options.urgents)
	our, stop := p.work(ctx, p.sender, "", nil, queuesOfPush...)
	times, err := p.tellBy(ctx, our, n, collapse)
	if err == nil {
		err = delivered(ctx)
	}
	return times, errors.Join(err, stop())
}

func (p *pushBench) tellBy(ctx context.Context, our *activityd, n int, collapse string) (times []float64, err error) {
	before := p.apple.Stats().Accepted
	if n > 0 {
		e := p.event()
		e.Collapse = collapse
		if err := announce(ctx, our, e); err != nil {
			return nil, err
		}
	}
	for i := range p.options.urgents {
		after := before + i + n*(i+1)/(p.options.urgents+1)
		if err := p.apple.Await(ctx, func(s apnstest.Stats) bool { return s.Accepted >= after }); err != nil {
			return nil, err
		}
		if n == 0 { // the one before is answered
			if err := retry.Sleep(ctx, 2*answerTime); err != nil {
				return nil, err
			}
		}
		took, err := p.hurry(ctx, our)
		if err != nil {
			return nil, err
		}
		times = append(times, milliseconds(took))
	}
	return times, nil
}

// hurry sends an urgent event, and returns how long it took.
func (p *pushBench) hurry(ctx context.Context, our *activityd) (time.Duration, error) {
	came := make(chan time.Time, 1)
	note := func(r apnstest.Request) {
		if r.Token == tokenOf(pushUrgent) {
			came <- r.Time
		}
	}
	p.accept.Store(&note)
	e := p.event(member.ID(pushUrgent))
	e.Urgent, e.Type, e.ID = true, "call", fmt.Sprintf("urgent-%d", p.events)
	start := time.Now()
	if err := announce(ctx, our, e); err != nil {
		return 0, err
	}
	select {
	case at := <-came:
		return at.Sub(start), nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// benchProducer measures what a site pays for an event, beside a PING.
func (s *suite) benchProducer(ctx context.Context) error {
	const part = "What the producer pays: one XADD"
	client, err := s.openRedis()
	if err != nil {
		return err
	}
	var rounds []streamtest.Costs
	for range s.options.rounds + 1 { // the first warms up
		costs, err := streamtest.Producer(ctx, client, s.options.entries)
		if err != nil {
			return err
		}
		rounds = append(rounds, costs)
	}
	rounds = rounds[1:]
	each := func(value func(streamtest.Costs) float64) *spread {
		var values []float64
		for _, costs := range rounds {
			values = append(values, value(costs))
		}
		return spreadOf(values...)
	}
	for _, q := range quantiles {
		ping := func(c streamtest.Costs) float64 { return milliseconds(streamtest.Quantile(c.Ping, q.q)) }
		xadd := func(c streamtest.Costs) float64 { return milliseconds(streamtest.Quantile(c.XAdd, q.q)) }
		s.results.add(figure{Part: part, Name: "PING, " + q.name, Unit: "ms", Value: each(ping)})
		f := figure{
			Part: part, Name: "XADD, " + q.name, Unit: "ms", Value: each(xadd), Against: "PING, " + q.name,
			Ratio: each(func(c streamtest.Costs) float64 { return xadd(c) / ping(c) }),
		}
		if q.name == "p50" {
			f.Aim = atMost(2)
		}
		s.results.add(f)
	}
	bytes, err := streamtest.Bytes(ctx, client)
	if err != nil {
		return err
	}
	s.results.add(figure{Part: part, Name: "memory of Redis for an entry", Unit: "bytes", Value: spreadOf(bytes)})
	return client.Del(ctx, stream.Key).Err()
}
