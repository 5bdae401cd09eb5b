package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/apnstest"
)

// benchFailover measures how long deliveries are held up by the end of the process that has
// them.
func (s *suite) benchFailover(ctx context.Context) (err error) {
	p, err := s.pushes(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f := &failover{pushBench: p, key: filepath.Join(dir, "AuthKey_"+p.apple.KeyID()+".p8"), roots: filepath.Join(dir, "roots.pem")}
	if err := errors.Join(os.WriteFile(f.key, p.apple.Key(), 0o600), os.WriteFile(f.roots, p.apple.RootsPEM(), 0o600)); err != nil {
		return err
	}
	var killed, drained []float64
	first := make([]float64, 0)
	left := 0
	for range p.options.rounds {
		from, to, err := f.killed(ctx)
		if err != nil {
			return fmt.Errorf("kill: %w", err)
		}
		first, killed = append(first, from.Seconds()), append(killed, to.Seconds())
		held, gap, err := f.drained(ctx)
		if err != nil {
			return fmt.Errorf("drain: %w", err)
		}
		left += held
		drained = append(drained, milliseconds(gap))
	}
	// The programs have found that Redis was emptied before, and enqueued refills.
	for _, table := range []string{"tasks", "task_leases", "parked_tasks"} {
		if _, err := p.db.ExecContext(ctx, "DELETE FROM "+table); err != nil {
			return err
		}
	}
	part := fmt.Sprintf("Failover of %d deliveries that a process holds, whose lease is 5 s", p.options.held)
	add := func(name, unit string, values []float64, a *aim) {
		p.results.add(figure{Part: part, Name: name, Unit: unit, Value: spreadOf(values...), Aim: a})
	}
	add("killed by SIGKILL: until the first arrives", "s", first, nil)
	add("killed by SIGKILL: until the last arrives", "s", killed, atMost(5.5))
	add("stopped by SIGTERM: until the last arrives", "ms", drained, nil)
	p.results.add(figure{Part: part, Name: "stopped by SIGTERM: leases that are left", Exact: true, Value: spreadOf(float64(left)), Aim: atMost(0)})
	return nil
}

// failover is two processes: a program, and the workers of this one.
type failover struct {
	*pushBench

	key, roots string // files
}

func (f *failover) program(ctx context.Context) (*program, error) {
	return startProgram(ctx, f.backend, "--role=all", "ACTIVITYD_APNS_KEY="+f.key, "ACTIVITYD_APNS_TEAM_ID="+f.apple.TeamID(), "ACTIVITYD_APNS_TOPIC="+f.apple.Topic(),
		"ACTIVITYD_APNS_URL="+f.apple.URL(), "ACTIVITYD_TLS_ROOTS="+f.roots)
}

// hold has a program send a message to each of some followers, of which the push service
// takes none as long as answer says so. It returns when all have left.
func (f *failover) hold(ctx context.Context, answer apnstest.Answer) (*program, error) {
	one, err := f.program(ctx)
	if err != nil {
		return nil, err
	}
	our := newActivityd(f.backend)
	send := func(n int) error {
		before := f.apple.Stats().Requests
		if err := announce(ctx, our, f.event(followersFrom(0, n)...)); err != nil {
			return err
		}
		return f.apple.Await(ctx, func(s apnstest.Stats) bool { return s.Requests-before >= n })
	}
	f.apple.Answer(nil)
	if err = send(1); err == nil { // until its first answer, a connection carries one message
		f.apple.Answer(func(apnstest.Request) apnstest.Answer { return answer })
		err = send(f.options.held)
	}
	if err != nil {
		err = errors.Join(err, one.Close())
	}
	return one, err
}

// killed returns how long after the end of a program by SIGKILL the first and the last of its
// messages arrive from another one.
func (f *failover) killed(ctx context.Context) (first, last time.Duration, err error) {
	one, err := f.hold(ctx, apnstest.Answer{Ignore: true})
	if err != nil {
		return 0, 0, err
	}
	n := f.options.held
	arrived := f.await(n)
	_, stop := f.work(ctx, f.sender, "", nil, push.QueuePush)
	start := time.Now()
	f.apple.Answer(nil)
	if err = one.kill(); err == nil {
		err = arrived.wait(ctx)
	}
	if err = errors.Join(err, stop()); err != nil {
		return 0, 0, err
	}
	for i, token := range f.tokens[:n] {
		at := arrived.after(token, start)
		if last = max(last, at); i == 0 || at < first {
			first = at
		}
	}
	return first, last, f.forget(ctx)
}

// drained returns how many leases a program leaves that is stopped by SIGTERM while its
// messages are on their way, and how long after the signal the last one is done with.
func (f *failover) drained(ctx context.Context) (left int, took time.Duration, err error) {
	one, err := f.hold(ctx, apnstest.Answer{Delay: answerTime})
	if err != nil {
		return 0, 0, err
	}
	defer f.apple.Answer(nil)
	start := time.Now()
	if err := one.Close(); err != nil { // one signal: a second one would end it at once
		return 0, 0, err
	}
	took = time.Since(start)
	err = f.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM task_leases WHERE queue = 'push'").Scan(&left)
	return left, took, errors.Join(err, f.forget(ctx))
}
