package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// trouble is something that makes servers slow, or takes them away.
type trouble struct {
	name  string
	lasts time.Duration
	// do makes it, and ends it when ctx does. What ends it is done in any case.
	do func(ctx context.Context) error
}

// through is a target with all roles, whose ways to the servers are wires.
type through struct {
	*overload
	*target
	mysqlWire, redisWire *wire
}

func (o *overload) openThrough(ctx context.Context) (t *through, err error) {
	t = &through{overload: o}
	if t.mysqlWire, err = o.newWire(ctx, o.mysql.Addr()); err != nil {
		return nil, err
	}
	if t.redisWire, err = o.newWire(ctx, o.redis.Addr()); err != nil {
		return nil, err
	}
	err = o.open(ctx, wired, "--role=all", "--mysql-dsn="+strings.Replace(o.mysql.DSN(database), o.mysql.Addr(), t.mysqlWire.addr(), 1),
		"--redis-url=unix://"+t.redisWire.addr())
	t.target = o.targets[wired]
	return t, err
}

// until waits until ctx ends.
func until(ctx context.Context) { <-ctx.Done() }

// slowly makes a server run for a tenth of the time.
func slowly(ctx context.Context, pause, resume func() error) (err error) {
	const on = 3 * time.Millisecond
	for ctx.Err() == nil {
		if err := pause(); err != nil {
			return err
		}
		_ = retry.Sleep(ctx, 9*on)
		if err := resume(); err != nil {
			return err
		}
		_ = retry.Sleep(ctx, on)
	}
	return nil
}

// hanging stops a server by SIGSTOP.
func hanging(pause, resume func() error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := pause(); err != nil {
			return err
		}
		until(ctx)
		return resume()
	}
}

// holding runs statements on a connection, which hold something until it ends.
func (t *through) holding(statements ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		background := context.WithoutCancel(ctx)
		conn, err := t.db.Conn(background)
		if err != nil {
			return err
		}
		for _, statement := range statements[:len(statements)-1] {
			if _, err := conn.ExecContext(background, statement); err != nil {
				return errors.Join(err, conn.Close())
			}
		}
		until(ctx)
		_, err = conn.ExecContext(background, statements[len(statements)-1])
		return errors.Join(err, conn.Close())
	}
}

func (t *through) troubles() []trouble {
	long, short := min(30*time.Second, t.options.step/2), min(5*time.Second, t.options.step/3)
	return []trouble{
		{"nothing, for comparison", short, func(ctx context.Context) error {
			until(ctx)
			return nil
		}},
		{"MySQL ten times slower", long, func(ctx context.Context) error { return slowly(ctx, t.mysql.Pause, t.mysql.Resume) }},
		{"Redis takes 300 ms", short, func(ctx context.Context) error {
			t.redisWire.delay.Store(int64(150 * time.Millisecond)) // in each direction
			defer t.redisWire.delay.Store(0)
			until(ctx)
			return nil
		}},
		{"no commit ends, as on a disk that stalls", short, t.holding("FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES")},
		{"the rows of a viewer and its contacts are locked", short, t.holding("BEGIN",
			fmt.Sprintf("SELECT COUNT(*) FROM users JOIN contacts ON contacts.user_id = users.id WHERE users.id = %s FOR UPDATE", t.viewers[0]), "ROLLBACK")},
		{"2 % of the packets are lost", short, func(ctx context.Context) error {
			for _, w := range []*wire{t.mysqlWire, t.redisWire} {
				w.lost.Store(20)
				defer w.lost.Store(0)
			}
			until(ctx)
			return nil
		}},
		{"Redis hangs", short, hanging(t.redis.Pause, t.redis.Resume)},
		{"MySQL hangs", short, hanging(t.mysql.Pause, t.mysql.Resume)},
	}
}

// slow measures what slow servers do to reads, at half of what fits.
func (o *overload) slow(ctx context.Context) error {
	t, err := o.openThrough(ctx)
	if err != nil {
		return err
	}
	return t.underAll(ctx, "Slow servers, half of what fits is offered", 0.5, t.troubles())
}

// underAll offers a load in each of some troubles.
func (t *through) underAll(ctx context.Context, part string, times float64, list []trouble) error {
	memory, wrong := 0.0, 0
	for _, trouble := range list {
		s, err := t.under(ctx, part, times, trouble)
		if err != nil {
			return fmt.Errorf("%s: %w", trouble.name, err)
		}
		memory, wrong = max(memory, float64(s.seen.memory)/float64(t.idle)), wrong+s.wrong
	}
	t.results.add(figure{Part: part, Name: "all of them: memory ÷ idle", Value: spreadOf(memory), Aim: atMost(3)})
	t.results.add(figure{Part: part, Name: "all of them: wrong answers", Value: spreadOf(float64(wrong)), Exact: true, Aim: atMost(0)})
	return nil
}

// herd measures what comes together, when all that fits is offered.
func (o *overload) herd(ctx context.Context) error {
	t := &through{overload: o, target: o.targets[wired]}
	short := min(5*time.Second, o.options.step/3)
	err := t.underAll(ctx, "All that fits is offered", 1, []trouble{
		{"FLUSHALL", 0, func(ctx context.Context) error { return o.client.FlushAll(context.WithoutCancel(ctx)).Err() }},
		{"the process is killed, and started again", 0, func(context.Context) error { return t.restart(o.backend, t.settings) }},
		{"MySQL is killed, and started again", short, func(ctx context.Context) error {
			err := o.mysql.Kill()
			if err != nil {
				return err
			}
			until(ctx)
			ctx = context.WithoutCancel(ctx)
			if err := o.mysql.Restart(ctx); err != nil {
				return err
			}
			o.meter.account, err = newAccountant(ctx, o.backend, o.meter.servers)
			return err
		}},
	})
	if err != nil {
		return err
	}
	return t.wakeUp(ctx)
}

// under offers a load, and makes trouble in its middle.
func (t *through) under(ctx context.Context, part string, times float64, trouble trouble) (s step, err error) {
	if err := t.settle(ctx, t.target); err != nil {
		return s, err
	}
	begin, rest := t.options.step/10, t.options.step/5
	var ended time.Duration
	start := time.Now()
	s, err = t.step(ctx, t.target, offer{
		conns: clientConns, rate: times * t.capacity[allSets].goodput(), duration: begin + trouble.lasts + rest,
	}, func(ctx context.Context) error {
		if err := retry.Sleep(ctx, begin); err != nil {
			return err
		}
		lasting, cancel := context.WithTimeout(ctx, trouble.lasts)
		defer cancel()
		err := trouble.do(lasting)
		ended = time.Since(start)
		return err
	})
	if err != nil {
		return s, err
	}
	recovered, err := t.recovered(ctx, s, ended)
	if err != nil {
		return s, err
	}
	row := func(what, unit string, value float64) {
		t.results.add(figure{Part: part, Name: trouble.name + ": " + what, Unit: unit, Value: spreadOf(value)})
	}
	if trouble.lasts > 0 {
		row("good answers ÷ offered meanwhile", "", s.between(begin, ended))
	}
	row("p99 of good answers", "ms", milliseconds(s.goods.quantile(0.99)))
	row("until as before", "s", recovered.Seconds())
	return s, nil
}

// between is good answers ÷ arrivals from one time to another.
func (s step) between(from, to time.Duration) float64 {
	var sum slot
	for _, slot := range s.slots[from/slotTime : min(int(to/slotTime)+1, len(s.slots))] {
		sum.arrivals, sum.good = sum.arrivals+slot.arrivals, sum.good+slot.good
	}
	return float64(sum.good) / float64(max(1, sum.arrivals))
}

// recovered is the time from the end of a trouble until nine of ten arrivals are good within half
// a second. When that is not within the load, the time until single reads are fast is added.
func (t *through) recovered(ctx context.Context, s step, ended time.Duration) (time.Duration, error) {
	const slots = 5
	for i := int(ended / slotTime); i+slots <= int(s.took/slotTime); i++ {
		if s.between(time.Duration(i)*slotTime, time.Duration(i+slots-1)*slotTime) >= 0.9 {
			return max(0, time.Duration(i)*slotTime-ended), nil
		}
	}
	more, err := t.untilFast(ctx, t.target, max(3*t.half[allSets].goods.quantile(0.99), 10*time.Millisecond))
	return s.took - ended + more, err
}

// wakeUp lets widgets ask together, and again as they do when they are refused.
func (t *through) wakeUp(ctx context.Context) error {
	if err := t.settle(ctx, t.target); err != nil {
		return err
	}
	widgets := int(min(100_000, t.capacity[allSets].goodput()*t.options.step.Seconds()/3))
	s, err := t.step(ctx, t.target, offer{conns: clientConns, together: widgets, duration: 4 * t.options.step}, nil)
	if err != nil {
		return err
	}
	const part = "Widgets that wake up together"
	least := float64(widgets) / t.capacity[allSets].goodput()
	row := func(name, unit string, value float64, exact bool, a *aim) {
		t.results.add(figure{Part: part, Name: name, Unit: unit, Value: spreadOf(value), Exact: exact, Aim: a})
	}
	row("widgets, of as many as fit into a third of a step", "", float64(widgets), false, nil)
	row("of them answered", "%", 100*float64(s.good)/float64(widgets), false, nil)
	row("until the last is answered ÷ at capacity", "", s.last.Seconds()/least, false, nil)
	row("requests for each answer", "", float64(s.arrivals+s.retries)/float64(max(1, s.good)), false, nil)
	row("/readyz 503", "", float64(s.seen.unready), true, atMost(0))
	row("wrong answers", "", float64(s.wrong), true, atMost(0))
	return nil
}
