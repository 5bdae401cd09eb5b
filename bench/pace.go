package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// Of the reads beside a backfill.
const (
	paceClosed  = 8 // connections of a closed loop, which say how many reads fit
	paceConns   = 64
	paceViewers = 2000 // who read, at most
	paceWarm    = 2 * time.Second
)

// paces are the values of --pace; "" is no backfill.
var paces = []string{"", "yield", "full"}

// paced is one run of a backfill: how long it took, and the reads that arrived until its end.
type paced struct {
	took   time.Duration
	reads  *offered // nil: there were none
	own    time.Duration
	others cpuTimes // of all but the generator and the backfill
}

// benchPace measures what `activityd backfill` takes of the machine and of reads, alone and beside open-loop
// reads of sets that are there: they cost the same before, during and after it.
func (s *suite) benchPace(ctx context.Context) (err error) {
	members := s.options.site.refilled()
	b := &paceBench{suite: s, within: fmt.Sprintf("%s-%s", members[0], members[len(members)-1]), members: len(members)}
	if err := s.fill(ctx, members); err != nil {
		return err
	}
	if b.questions, err = s.questions(ctx, members[:min(paceViewers, len(members))]); err != nil {
		return err
	}
	if b.program, err = startProgram(ctx, s.backend); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.program.Close()) }()
	closed, err := b.offer(ctx, 0, paceClosed, s.options.step/4, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%.0f reads a second fit\n", closed.goodput())
	loads := append([]float64{0}, s.options.beside...)
	all := make(map[float64]map[string][]paced)
	for _, load := range loads {
		all[load] = make(map[string][]paced)
	}
	for round := range s.options.rounds {
		for _, load := range loads {
			for i := range paces {
				pace := paces[(round+i)%len(paces)]
				if load == 0 && pace == "" {
					continue
				}
				p, err := b.measure(ctx, load*closed.goodput(), pace)
				if err != nil {
					return err
				}
				all[load][pace] = append(all[load][pace], p)
			}
		}
	}
	b.report(loads, all)
	return nil
}

// paceBench runs backfills of so many members beside a program.
type paceBench struct {
	*suite
	*program
	questions []question
	within    string // the range of the members
	members   int
}

// offer offers reads until duration or stop ends.
func (b *paceBench) offer(ctx context.Context, rate float64, conns int, duration time.Duration, stop <-chan struct{}) (*offered, error) {
	o, err := offer{
		addr: b.addr, questions: b.questions, rate: rate, conns: conns, patience: clientPatience, duration: duration, stop: stop, seed: 1,
	}.run(ctx)
	if err == nil && o.wrong+o.failed+o.broken > 0 {
		err = fmt.Errorf("%d reads were wrong, %d failed, %d broke: %.300q", o.wrong, o.failed, o.broken, o.sample)
	}
	return o, err
}

// measure runs a backfill, or waits a while for no pace, while reads arrive at a rate, if it is not 0.
func (b *paceBench) measure(ctx context.Context, rate float64, pace string) (p paced, err error) {
	if rate > 0 {
		if _, err := b.offer(ctx, rate, paceConns, paceWarm, nil); err != nil {
			return p, err
		}
	}
	account := b.meter.account
	account.program = int(b.pid.Load())
	before, err := account.read()
	if err != nil {
		return p, err
	}
	stop, filled := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(stop)
		start := time.Now()
		if pace == "" {
			select {
			case <-time.After(b.options.step / 6):
			case <-ctx.Done():
			}
		} else if err := b.backfill(ctx, pace, &p); err != nil {
			filled <- err
			return
		}
		p.took = time.Since(start)
		filled <- nil
	}()
	if rate > 0 {
		p.reads, err = b.offer(ctx, rate, paceConns, 10*time.Minute, stop)
	}
	if err = errors.Join(<-filled, err); err != nil {
		return p, err
	}
	after, err := account.read()
	p.others = after.minus(before)
	p.others.Own = 0 // the generator's
	fmt.Fprintf(b.out, "%.0f reads a second, --pace=%s: %.0f members/s, %s\n", rate, pace, b.rate(p), p)
	return p, err
}

// String returns what was measured, for people.
func (p paced) String() string {
	seconds := p.took.Seconds()
	text := fmt.Sprintf("cores: backfill %.2f, program %.2f, MySQL %.2f, Redis %.2f", p.own.Seconds()/seconds,
		p.others.Program.Seconds()/seconds, p.others.MySQL.Seconds()/seconds, p.others.Redis.Seconds()/seconds)
	if o := p.reads; o != nil {
		text += fmt.Sprintf(", generator %.2f; good %.0f/s, refused %d, late %d; p50 %.2f ms, p99 %.2f ms",
			o.own.Seconds()/seconds, o.goodput(), o.refused, o.late+o.unsent,
			milliseconds(o.goods.quantile(0.5)), milliseconds(o.goods.quantile(0.99)))
	}
	return text
}

// rate is members a second.
func (b *paceBench) rate(p paced) float64 { return float64(b.members) / p.took.Seconds() }

// backfill refills all members by a process of its own, and adds its processor time.
func (b *paceBench) backfill(ctx context.Context, pace string, p *paced) error {
	cmd := exec.CommandContext(ctx, b.binary, "backfill", b.within, "--existing", "--progress=0", "--pace="+pace, //nolint:gosec // our own program
		"--mysql-dsn="+b.mysql.DSN(database), "--redis-url="+b.redis.URL())
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("backfill: %w: %s", err, text)
	}
	p.own = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return nil
}

// report adds the figures.
func (b *paceBench) report(loads []float64, all map[float64]map[string][]paced) {
	values := func(list []paced, of func(paced) float64) *spread {
		all := make([]float64, len(list))
		for i, p := range list {
			all[i] = of(p)
		}
		return spreadOf(all...)
	}
	over := func(list, others []paced, of func(paced) float64) *spread {
		ratios := make([]float64, len(list))
		for i, p := range list {
			ratios[i] = of(p) / of(others[i])
		}
		return spreadOf(ratios...)
	}
	name := func(load float64, pace string) string {
		beside := "no reads"
		if load > 0 {
			beside = strconv.FormatFloat(100*load, 'f', -1, 64) + " % of the reads that fit"
		}
		if pace == "" {
			return beside + ", no backfill"
		}
		return beside + ", --pace=" + pace
	}
	alone := name(0, "full")
	for _, load := range loads {
		for _, pace := range []string{"full", "yield"} {
			f := figure{Part: "A backfill beside reads", Name: name(load, pace), Unit: "members/s", Value: values(all[load][pace], b.rate)}
			if f.Name != alone {
				f.Against, f.Ratio = alone, over(all[load][pace], all[0]["full"], b.rate)
			}
			b.results.add(f)
		}
	}
	for _, q := range []float64{0.5, 0.99} {
		of := func(p paced) float64 { return milliseconds(p.reads.goods.quantile(q)) }
		for _, load := range loads[1:] {
			for _, pace := range paces {
				f := figure{Part: fmt.Sprintf("Reads beside a backfill, p%.0f", 100*q), Name: name(load, pace), Unit: "ms", Value: values(all[load][pace], of)}
				if pace != "" {
					f.Against, f.Ratio = name(load, ""), over(all[load][pace], all[load][""], of)
				}
				b.results.add(f)
			}
		}
	}
	for _, load := range loads {
		for _, pace := range paces {
			if list := all[load][pace]; len(list) > 0 {
				b.results.add(figure{
					Part: "Cores in use beside a backfill, but for the generator", Name: name(load, pace), Value: values(list, func(p paced) float64 {
						return (p.own + p.others.sum()).Seconds() / p.took.Seconds()
					}),
				})
			}
		}
	}
}
