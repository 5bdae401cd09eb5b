package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/retry"
)

const (
	clientConns    = 4000 // connections to the program, opened as they are needed
	clientPatience = time.Second
	// fastInARow is how many fast reads in a row mean that all is as before.
	fastInARow = 20
	// longestRecovery is how long that is waited for.
	longestRecovery = 20 * time.Second
)

// overload offers more reads than fit. Each good answer is compared with what MySQL alone says.
type overload struct {
	*suite
	viewers   []member.ID
	questions []question // the i-th is of the i-th viewer
	targets   map[string]*target
	capacity  map[string]step // by mix: the closed loop with the most good answers
	half      map[string]step // likewise: half of that, offered to activityd
}

// target is a program under load.
type target struct {
	*program
	name     string
	settings []string
	idle     int64 // its memory before any load
}

// The targets.
const (
	ours        = "activityd"
	wired       = "activityd with workers, through wires"
	noLimit     = "no limit"
	ownLimit    = "activityd's limiter"
	bySemaphore = "semaphore"
	byFailsafe  = "failsafe-go"
)

// The mixes of reads.
const (
	allSets  = "all sets there"
	halfSets = "half of the sets missing"
)

// overloads finds what is true, once for all parts. It is closed with the backend.
func (s *suite) overloads(ctx context.Context) (o *overload, err error) {
	if s.overload != nil {
		return s.overload, nil
	}
	o = &overload{
		suite: s, viewers: s.options.site.refilled(), targets: make(map[string]*target),
		capacity: make(map[string]step), half: make(map[string]step),
	}
	s.overload = o
	o.questions, err = s.questions(ctx, o.viewers)
	return o, err
}

// questions ask for the photos of viewers.
func (s *suite) questions(ctx context.Context, viewers []member.ID) ([]question, error) {
	list := make([]question, len(viewers))
	places := make([]int, len(viewers))
	for i := range places {
		places[i] = i
	}
	return list, inParallel(ctx, 4, 64, places, func(ctx context.Context, some []int) (err error) {
		for _, i := range some {
			if list[i], err = s.question(ctx, viewers[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// target starts a program, once. The name may be that of a limiter, which this program serves behind.
func (o *overload) target(ctx context.Context, name string, settings ...string) (t *target, err error) {
	if t := o.targets[name]; t != nil {
		return t, nil
	}
	t = &target{name: name, settings: settings}
	if _, is := limiters[name]; is {
		t.settings = []string{"--limiter=" + name}
		t.program, err = o.startBehind(ctx, t.settings)
	} else {
		t.program, err = startProgram(ctx, o.backend, t.settings...)
	}
	if err != nil {
		return nil, err
	}
	o.targets[name], o.closers = t, append(o.closers, t)
	t.idle, err = residentMemory(int(t.pid.Load()))
	return t, err
}

// startBehind starts this program as one that serves behind a limiter. It is built once.
func (o *overload) startBehind(ctx context.Context, settings []string) (*program, error) {
	for name, t := range o.targets {
		if _, is := limiters[name]; is {
			p := &program{binary: t.binary}
			if err := p.start(o.backend, settings); err != nil {
				return nil, errors.Join(err, p.Close())
			}
			return p, nil
		}
	}
	return buildAndStart(ctx, o.backend, ".", ".", settings)
}

// question asks for a viewer's photos. What is true is found by MySQL alone.
func (s *suite) question(ctx context.Context, viewer member.ID) (q question, err error) {
	v := contacts.Viewer{ID: viewer}
	walked, err := s.store.Walk(ctx, v, shown)
	if err != nil {
		return q, err
	}
	answer := api.Explained(v, recent.Explanation{Answer: recent.Answer{Album: walked.Album}})
	answer.Explain = nil
	text, err := json.Marshal(answer)
	if err != nil {
		return q, err
	}
	return question{
		request: fmt.Appendf(nil, "GET /v1/users/%s/recent-contact-photos HTTP/1.1\r\nHost: localhost\r\n\r\n", viewer),
		want:    text[:len(text)-1], // operators are shown more
	}, nil
}

// mix makes the sets such that reads are of a mix.
func (o *overload) mix(ctx context.Context, name string) error {
	if err := o.fill(ctx, o.viewers); err != nil {
		return err
	}
	if name == halfSets {
		for i, viewer := range o.viewers {
			if i%2 == 0 {
				if err := o.client.Del(ctx, index.UserKey(viewer)).Err(); err != nil {
					return err
				}
			}
		}
	}
	_, err := o.db.ExecContext(ctx, "DELETE FROM tasks")
	return err
}

// step is a load, and what was seen beside it.
type step struct {
	*offered
	cpu  cpuTimes
	seen watched
}

// step offers a load to a target, while something happens, if during is not nil.
func (o *overload) step(ctx context.Context, t *target, l offer, during func(context.Context) error) (s step, err error) {
	l.addr, l.patience, l.seed = t.addr, cmp.Or(l.patience, clientPatience), 1
	if l.questions == nil {
		l.questions = o.questions
	}
	account := o.meter.account
	account.program = int(t.pid.Load())
	before, err := account.read()
	if err != nil {
		return s, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watch := newWatch(t)
	var group errgroup.Group
	group.Go(func() error { return watch.run(watching) })
	if during != nil {
		group.Go(func() error { return during(ctx) })
	}
	s.offered, err = l.run(ctx)
	if during == nil { // else there may be other processes than before
		after, cpuErr := account.read()
		s.cpu, err = after.minus(before), errors.Join(err, cpuErr)
	}
	stop()
	err = errors.Join(err, group.Wait())
	s.seen = watch.watched
	if err != nil {
		return s, err
	}
	if s.wrong+s.failed > 0 {
		fmt.Fprintf(o.out, "%s: an answer that is wrong or failed: %.300q\n", t.name, s.sample)
	}
	seconds := s.took.Seconds()
	fmt.Fprintf(o.out, "%-11s offered %5.0f/s: good %5.0f, refused %5.0f, late %4.0f, failed %3.0f, broken %3.0f, unsent %4.0f; p99 %4.0f ms; cores: generator %.2f, program %.2f, MySQL %.2f, Redis %.2f; lag %.0f ms; %d MB; /readyz: %d of %d 503, %.0f and %.0f ms\n",
		t.name, float64(s.arrivals)/seconds, s.goodput(), float64(s.refused)/seconds, float64(s.late)/seconds, float64(s.failed)/seconds, float64(s.broken)/seconds,
		float64(s.unsent)/seconds, milliseconds(s.goods.quantile(0.99)), s.own.Seconds()/seconds, s.cpu.Program.Seconds()/seconds, s.cpu.MySQL.Seconds()/seconds,
		s.cpu.Redis.Seconds()/seconds, milliseconds(s.lag), s.seen.memory>>20, s.seen.unready, s.seen.asked, milliseconds(s.seen.slowest), milliseconds(s.seen.slowestOwn))
	return s, nil
}

// servers is the processor time of all but the generator.
func (s step) servers() time.Duration { return s.cpu.Program + s.cpu.MySQL + s.cpu.Redis }

// eachGood is the processor time of a good answer, where there is nothing else.
func (s step) eachGood() float64 { return s.servers().Seconds() / float64(max(1, s.good)) }

// eachRefusal is the processor time of a refusal, where a good answer takes each: all that is left.
func (s step) eachRefusal(each float64) float64 {
	return max(0, s.servers().Seconds()-each*float64(s.good)) / float64(max(1, s.refused))
}

// watched is what was seen of a program under load.
type watched struct {
	asked      int           // /readyz, on both listeners
	unready    int           // of them 503
	slowest    time.Duration // of those on the listener of the API
	slowestOwn time.Duration // of those on the listener of its own
	memory     int64         // at most, in bytes
}

type watch struct {
	pid          *atomic.Int64
	api, metrics string // addresses
	mu           sync.Mutex
	watched
}

func newWatch(t *target) *watch { return &watch{pid: &t.pid, api: t.addr, metrics: t.metrics} }

// run looks ten times a second until ctx ends.
func (w *watch) run(ctx context.Context) error {
	var group errgroup.Group
	for _, p := range []struct {
		addr    string
		slowest *time.Duration
	}{{w.api, &w.slowest}, {w.metrics, &w.slowestOwn}} {
		group.Go(func() error {
			client := &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second}
			defer client.CloseIdleConnections()
			for retry.Sleep(ctx, 100*time.Millisecond) == nil {
				w.probe(ctx, client, p.addr, p.slowest)
			}
			return nil
		})
	}
	return group.Wait()
}

// probe asks once whether the program is ready, and reads its memory. An answer that does not come is
// one that took as long as it was waited for.
func (w *watch) probe(ctx context.Context, client *http.Client, addr string, slowest *time.Duration) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return
	}
	start := time.Now()
	response, err := client.Do(request)
	took := time.Since(start)
	if ctx.Err() != nil {
		return
	}
	memory, _ := residentMemory(int(w.pid.Load())) // 0 while it is restarted
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	*slowest = max(*slowest, took)
	w.memory = max(w.memory, memory)
	if err != nil {
		return
	}
	if response.StatusCode != http.StatusOK {
		w.unready++
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
}

// residentMemory is the resident memory of a process, in bytes.
func residentMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm: %q", pid, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// untilFast returns how long it takes until as many reads in a row are fast as [fastInARow] says,
// or how long it waited for that at most.
func (o *overload) untilFast(ctx context.Context, t *target, fast time.Duration) (time.Duration, error) {
	start := time.Now()
	var c *httpClient
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	for row := 0; row < fastInARow && time.Since(start) < longestRecovery; {
		began := time.Now()
		var err error
		if c == nil {
			c, err = dialHTTP(ctx, t.addr)
		}
		if err == nil {
			_, err = c.get(o.viewers[1+2*(row%(len(o.viewers)/2))]) // one with a set, in each mix
		}
		if row++; err != nil || time.Since(began) > fast {
			row = 0
		}
		if err != nil && c != nil {
			_ = c.Close()
			c = nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// benchOverload offers multiples of what fits.
func (s *suite) benchOverload(ctx context.Context) error {
	o, err := s.overloads(ctx)
	if err != nil {
		return err
	}
	for _, mix := range []string{allSets, halfSets} {
		if err := o.findCapacity(ctx, mix); err != nil {
			return err
		}
		if err := o.multiples(ctx, mix); err != nil {
			return err
		}
		if err := o.compare(ctx, mix); err != nil {
			return err
		}
	}
	return nil
}

// findCapacity makes a mix, and finds how many good answers there can be, by closed loops without any
// limit.
func (o *overload) findCapacity(ctx context.Context, mix string) error {
	if err := o.mix(ctx, mix); err != nil {
		return err
	}
	t, err := o.target(ctx, noLimit)
	if err != nil {
		return err
	}
	for _, conns := range []int{4, 8, 16, 32} {
		s, err := o.step(ctx, t, offer{conns: conns, duration: o.options.step / 4}, nil)
		if err != nil {
			return err
		}
		if s.goodput() > o.goodput(mix) {
			o.capacity[mix] = s
		}
	}
	if o.goodput(mix) == 0 {
		return errors.New("no good answer at all")
	}
	return nil
}

// goodput is the capacity of a mix, in good answers a second; 0 before it is found.
func (o *overload) goodput(mix string) float64 {
	if s := o.capacity[mix]; s.offered != nil {
		return s.goodput()
	}
	return 0
}

// halfLoad offers half of what fits to activityd, once for each mix, whose sets there must be.
func (o *overload) halfLoad(ctx context.Context, mix string) (step, error) {
	if s := o.half[mix]; s.offered != nil {
		return s, nil
	}
	t, err := o.target(ctx, ours, "--role=api") // sets that are missing stay so
	if err != nil {
		return step{}, err
	}
	for range 2 { // the first time opens the connections
		if o.half[mix], err = o.at(ctx, t, mix, 0.5); err != nil {
			return step{}, err
		}
	}
	return o.half[mix], nil
}

// at offers a multiple of the capacity of a mix.
func (o *overload) at(ctx context.Context, t *target, mix string, times float64) (step, error) {
	return o.step(ctx, t, offer{conns: clientConns, rate: times * o.goodput(mix), duration: o.options.step}, nil)
}

// left is the share of the cores that a generator leaves, to what it left when the capacity was found.
func (o *overload) left(s step, mix string) float64 {
	cores := float64(o.results.Machine.Cores)
	of := func(s step) float64 { return cores - s.own.Seconds()/s.took.Seconds() }
	return of(s) / of(o.capacity[mix])
}

// multiples measures activityd at multiples of the capacity.
func (o *overload) multiples(ctx context.Context, mix string) error {
	half, err := o.halfLoad(ctx, mix)
	if err != nil {
		return err
	}
	t, capacity := o.targets[ours], o.capacity[mix]
	usual := half.goods.quantile(0.99)
	fast := max(3*usual, 10*time.Millisecond)
	o.curve(mix, 0.5, half)
	leastGood := 0.9
	if mix == halfSets {
		leastGood = 0.8
	}
	var all totals
	for _, times := range o.options.multiples {
		s, err := o.at(ctx, t, mix, times)
		if err != nil {
			return err
		}
		recovered, err := o.untilFast(ctx, t, fast)
		if err != nil {
			return err
		}
		o.curve(mix, times, s)
		all.add(s, t, recovered)
		row := func(what, unit string, value float64, a *aim) {
			o.results.add(figure{Part: overloadPart(mix), Name: multiple(times) + ": " + what, Unit: unit, Value: spreadOf(value), Aim: a})
		}
		row("good answers ÷ capacity", "", s.goodput()/capacity.goodput(), atLeast(leastGood))
		row("good answers ÷ what fits beside the generator", "", s.goodput()/capacity.goodput()/o.left(s, mix), nil)
		p99 := s.goods.quantile(0.99)
		row("p99 of good answers", "ms", milliseconds(p99), atMost(250))
		row("p99 of good answers ÷ at half load", "", float64(p99)/float64(max(usual, 1)), atMost(3))
		if mix == allSets && s.refused > s.good { // else what is left is too little to tell, or good answers are cheaper than at capacity
			row("processor time of a refusal ÷ of a good answer", "", s.eachRefusal(capacity.eachGood())/capacity.eachGood(), atMost(0.1))
		}
		if s.refused > 100 {
			row("time until a refusal, p99", "ms", milliseconds(s.refusals.quantile(0.99)), atMost(50))
		}
	}
	o.addTotals(mix, all)
	return nil
}

func overloadPart(mix string) string { return "Overload, " + mix }

func multiple(times float64) string { return strconv.FormatFloat(times, 'g', -1, 64) + " × capacity" }

// totals are what is bounded in all steps together.
type totals struct {
	memory                   float64
	recovered                time.Duration
	wrong, unready, unsent   int
	arrivals                 int
	slowest, slowestOwn, lag time.Duration
	generator                float64
}

func (a *totals) add(s step, t *target, recovered time.Duration) {
	a.memory = max(a.memory, float64(s.seen.memory)/float64(t.idle))
	a.recovered = max(a.recovered, recovered)
	a.wrong, a.unready = a.wrong+s.wrong, a.unready+s.seen.unready
	a.unsent, a.arrivals = a.unsent+s.unsent, a.arrivals+s.arrivals
	a.slowest, a.slowestOwn, a.lag = max(a.slowest, s.seen.slowest), max(a.slowestOwn, s.seen.slowestOwn), max(a.lag, s.lag)
	a.generator = max(a.generator, s.own.Seconds()/s.took.Seconds())
}

func (o *overload) addTotals(mix string, all totals) {
	row := func(name, unit string, value float64, exact bool, a *aim) {
		o.results.add(figure{Part: overloadPart(mix), Name: "all loads: " + name, Unit: unit, Value: spreadOf(value), Exact: exact, Aim: a})
	}
	row("memory ÷ idle", "", all.memory, false, atMost(3))
	row("after the load: until 20 fast reads in a row", "s", all.recovered.Seconds(), false, atMost(1))
	row("/readyz 503", "", float64(all.unready), true, atMost(0))
	row("/readyz, slowest", "ms", milliseconds(all.slowest), false, atMost(100))
	row("/readyz on a listener of its own, slowest", "ms", milliseconds(all.slowestOwn), false, atMost(100))
	row("wrong answers", "", float64(all.wrong), true, atMost(0))
	row("not sent by the generator", "%", 100*float64(all.unsent)/float64(max(1, all.arrivals)), false, nil)
	row("the generator's largest delay", "ms", milliseconds(all.lag), false, nil)
	row("the generator's processor time, at most", "cores", all.generator, false, nil)
}

// curve adds a point of the curve.
func (o *overload) curve(mix string, times float64, s step) {
	offered, good := float64(s.arrivals)/s.took.Seconds(), s.goodput()
	part, name := "Offered → good a second, "+mix, multiple(times)
	o.results.add(figure{Part: part, Name: name + ", offered", Value: spreadOf(offered), Unit: "/s"})
	o.results.add(figure{Part: part, Name: name + ", good", Value: spreadOf(good), Unit: "/s", Against: "offered", Ratio: spreadOf(good / offered)})
}

// compare offers the same behind all limiters. With sets that are missing that is the least multiple
// alone: others say the same.
func (o *overload) compare(ctx context.Context, mix string) error {
	multiples, each := o.options.compared, o.capacity[mix].eachGood()
	if mix == halfSets {
		multiples = multiples[:1]
	}
	for _, times := range multiples {
		for _, name := range []string{ownLimit, byFailsafe, bySemaphore, noLimit} {
			t, err := o.target(ctx, name)
			if err != nil {
				return err
			}
			s, err := o.at(ctx, t, mix, times)
			if err != nil {
				return err
			}
			if err := o.settle(ctx, t); err != nil {
				return err
			}
			row := func(what, unit string, value float64) {
				o.results.add(figure{Part: "Limiters behind the same handler, " + mix, Name: multiple(times) + ", " + name + ": " + what, Unit: unit, Value: spreadOf(value)})
			}
			row("good answers ÷ capacity", "", s.goodput()/o.goodput(mix))
			row("p99 of good answers", "ms", milliseconds(s.goods.quantile(0.99)))
			if s.refused > 100 {
				row("time until a refusal, p99", "ms", milliseconds(s.refusals.quantile(0.99)))
			}
			if mix == allSets && s.refused > s.good {
				row("processor time of a refusal ÷ of a good answer", "", s.eachRefusal(each)/each)
			}
			row("memory ÷ idle", "", float64(s.seen.memory)/float64(t.idle))
		}
	}
	return nil
}

// settle waits until a target has nothing left to do.
func (o *overload) settle(ctx context.Context, t *target) error {
	_, err := o.untilFast(ctx, t, max(3*o.half[allSets].goods.quantile(0.99), 10*time.Millisecond))
	return err
}
