package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/retry"
)

// trouble is something that makes servers slow, or takes them away.
type trouble struct {
	name  string
	lasts time.Duration
	away  bool // MySQL answers nothing, and /readyz may say so
	// do makes it, and ends it when ctx does. What ends it is done in any case.
	do func(ctx context.Context) error
}

// through is a target with all roles, whose ways to the servers are wires.
type through struct {
	*overload
	*target

	mysqlWire, redisWire *wire
	keys                 []auth.ViewerKey // that sign the tokens of viewers
}

// throughWires starts it, once, and finds the capacity and half of it, which all is compared with.
func (s *suite) throughWires(ctx context.Context) (t *through, err error) {
	if s.wired != nil {
		return s.wired, nil
	}
	t = &through{}
	if t.overload, err = s.overloads(ctx); err != nil {
		return nil, err
	}
	if t.goodput(allSets) == 0 {
		if err := t.findCapacity(ctx, allSets); err != nil {
			return nil, err
		}
	} else if err := t.mix(ctx, allSets); err != nil {
		return nil, err
	}
	if _, err := t.halfLoad(ctx, allSets); err != nil {
		return nil, err
	}
	if t.mysqlWire, err = s.newWire(ctx, s.mysql.Addr()); err != nil {
		return nil, err
	}
	if t.redisWire, err = s.newWire(ctx, s.redis.Addr()); err != nil {
		return nil, err
	}
	key, err := auth.NewViewerKey("bench", auth.HS256)
	if err != nil {
		return nil, err
	}
	t.keys = []auth.ViewerKey{key}
	file := filepath.Join(filepath.Dir(t.mysqlWire.addr()), "viewer-keys.json") // goes with the wire
	if err := auth.AddViewerKey(ctx, file, key); err != nil {
		return nil, err
	}
	t.target, err = t.overload.target(ctx, wired, "--role=all", "--mysql-dsn="+strings.Replace(s.mysql.DSN(database), s.mysql.Addr(), t.mysqlWire.addr(), 1),
		"--redis-url=unix://"+t.redisWire.addr(), "--viewer-keys="+file)
	s.wired = t
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
		{"nothing, for comparison", short, false, func(ctx context.Context) error {
			until(ctx)
			return nil
		}},
		{"MySQL ten times slower", long, false, func(ctx context.Context) error { return slowly(ctx, t.mysql.Pause, t.mysql.Resume) }},
		{"Redis takes 300 ms", short, false, func(ctx context.Context) error {
			t.redisWire.delay.Store(int64(150 * time.Millisecond)) // in each direction
			defer t.redisWire.delay.Store(0)
			until(ctx)
			return nil
		}},
		{"no commit ends, as on a disk that stalls", short, false, t.holding("FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES")},
		{"the rows of a viewer and its contacts are locked", short, false, t.holding("BEGIN",
			fmt.Sprintf("SELECT COUNT(*) FROM users JOIN contacts ON contacts.user_id = users.id WHERE users.id = %s FOR UPDATE", t.viewers[0]), "ROLLBACK")},
		{"2 % of the packets are lost", short, false, func(ctx context.Context) error {
			for _, w := range []*wire{t.mysqlWire, t.redisWire} {
				w.lost.Store(20)
				defer w.lost.Store(0)
			}
			until(ctx)
			return nil
		}},
		{"activityd hangs", short, false, hanging(t.signal(syscall.SIGSTOP), t.signal(syscall.SIGCONT))},
		{"Redis hangs", short, false, hanging(t.redis.Pause, t.redis.Resume)},
		{"MySQL hangs", short, true, hanging(t.mysql.Pause, t.mysql.Resume)},
	}
}

// signal returns a function that sends one to the program.
func (t *through) signal(signal os.Signal) func() error {
	return func() error { return t.cmd.Process.Signal(signal) }
}

// benchSlow measures what slow servers do to reads, at half of what fits.
func (s *suite) benchSlow(ctx context.Context) error {
	t, err := s.throughWires(ctx)
	if err != nil {
		return err
	}
	return t.underAll(ctx, "Slow servers, half of what fits is offered", 0.5, t.troubles())
}

// underAll offers a load in each of some troubles.
func (t *through) underAll(ctx context.Context, part string, times float64, list []trouble) error {
	wrong, unready := 0, 0
	for _, trouble := range list {
		s, err := t.under(ctx, part, times, trouble)
		if err != nil {
			return fmt.Errorf("%s: %w", trouble.name, err)
		}
		if wrong += s.wrong; !trouble.away {
			unready += s.seen.unready
		}
	}
	t.results.add(figure{Part: part, Name: "/readyz 503 while MySQL answers", Value: spreadOf(float64(unready)), Exact: true, Aim: atMost(0)})
	t.results.add(figure{Part: part, Name: "wrong answers", Value: spreadOf(float64(wrong)), Exact: true, Aim: atMost(0)})
	return nil
}

// benchHerd measures what comes together, when all that fits is offered.
func (s *suite) benchHerd(ctx context.Context) error {
	t, err := s.throughWires(ctx)
	if err != nil {
		return err
	}
	err = t.underAll(ctx, "Herds, all that fits is offered", 1, []trouble{
		{"FLUSHALL", 0, false, func(ctx context.Context) error { return t.client.FlushAll(context.WithoutCancel(ctx)).Err() }},
		{"activityd is killed, and started again", 0, false, func(context.Context) error { return t.restart(t.backend, t.settings) }},
		{"MySQL is killed, and started again", min(time.Minute, t.options.step/2), true, t.withoutMySQL},
	})
	if err != nil {
		return err
	}
	return t.wakeUp(ctx)
}

// withoutMySQL kills MySQL, and starts it again when ctx ends.
func (t *through) withoutMySQL(ctx context.Context) (err error) {
	if err := t.mysql.Kill(); err != nil {
		return err
	}
	until(ctx)
	ctx = context.WithoutCancel(ctx)
	if err := t.mysql.Restart(ctx); err != nil {
		return err
	}
	t.meter.account, err = newAccountant(ctx, t.backend, t.meter.servers)
	return err
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
		conns: clientConns, rate: times * t.goodput(allSets), duration: begin + trouble.lasts + rest,
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
		row("good answers ÷ offered in that time", "", s.between(begin, ended))
	}
	row("p99 of good answers", "ms", milliseconds(s.goods.quantile(0.99)))
	row("memory ÷ idle", "", float64(s.seen.memory)/float64(t.idle))
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

// wakeUp lets widgets ask together, and again as they do when they are refused. Each knows an answer, and
// asks whether it still holds.
func (t *through) wakeUp(ctx context.Context) error {
	if err := t.settle(ctx, t.target); err != nil {
		return err
	}
	questions, err := t.widgets(ctx)
	if err != nil {
		return err
	}
	widgets := t.options.widgets
	s, err := t.step(ctx, t.target, offer{
		questions: questions, conns: clientConns, together: widgets, patience: widgetPatience, duration: 10 * time.Minute,
	}, nil)
	if err != nil {
		return err
	}
	const part = "Widgets that wake up together"
	least := float64(widgets) / t.goodput(allSets)
	row := func(name, unit string, value float64, exact bool, a *aim) {
		t.results.add(figure{Part: part, Name: name, Unit: unit, Value: spreadOf(value), Exact: exact, Aim: a})
	}
	row("widgets", "", float64(widgets), false, nil)
	row("of them answered", "%", 100*float64(s.good)/float64(widgets), false, nil)
	row("of the answers 304, as the photos are the same", "%", 100*float64(s.unchanged)/float64(max(1, s.good)), false, nil)
	row("until the last is answered", "s", s.last.Seconds(), false, nil)
	row("until the last is answered ÷ at capacity", "", s.last.Seconds()/least, false, nil)
	row("requests for each answer", "", float64(s.sent)/float64(max(1, s.good)), false, nil)
	row("memory ÷ idle", "", float64(s.seen.memory)/float64(t.idle), false, nil)
	row("/readyz 503", "", float64(s.seen.unready), true, atMost(0))
	row("wrong answers", "", float64(s.wrong), true, atMost(0))
	return nil
}

// widgetPatience is how long a widget waits for an answer.
const widgetPatience = 20 * time.Second

// widgets returns the questions of widgets that have the answers.
func (t *through) widgets(ctx context.Context) ([]question, error) {
	list := make([]question, len(t.viewers))
	for i, viewer := range t.viewers {
		token, err := t.keys[0].Sign(viewer, time.Hour, "")
		if err != nil {
			return nil, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.addr+"/v1/me/recent-contact-photos", nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(body, t.questions[i].want) {
			return nil, fmt.Errorf("viewer %s is answered %d: %.300q", viewer, response.StatusCode, body)
		}
		tag := response.Header.Get("ETag")
		list[i] = question{
			request: fmt.Appendf(nil, "GET /v1/me/recent-contact-photos HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nIf-None-Match: %s\r\n\r\n", token, tag),
			want:    t.questions[i].want, tag: []byte("\r\nEtag: " + tag + "\r\n"),
		}
	}
	return list, nil
}
