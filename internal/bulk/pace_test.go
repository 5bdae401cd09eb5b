package bulk_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/bulk"
)

// round is how long five questions take to a server that answers at once.
const round = time.Second

// fake is a server whose answers take as long as the test says.
type fake struct {
	name string
	took atomic.Int64 // nanoseconds
	down atomic.Bool
}

var errDown = errors.New("connection refused")

func (f *fake) takes(d time.Duration) { f.took.Store(int64(d)) }

func (f *fake) probe() bulk.Probe {
	return bulk.Probe{Name: f.name, Ask: func(ctx context.Context) error {
		if f.down.Load() {
			return errDown
		}
		select {
		case <-time.After(time.Duration(f.took.Load())):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

// paced runs a pacer over two fakes, MySQL and Redis, that answer in 1 ms, in
// a bubble.
func paced(t *testing.T, o bulk.PacerOptions, test func(t *testing.T, p *bulk.Pacer, mysql, redis *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mysql, redis := &fake{name: "MySQL"}, &fake{name: "Redis"}
		mysql.takes(time.Millisecond)
		redis.takes(time.Millisecond)
		o.Probes = []bulk.Probe{mysql.probe(), redis.probe()}
		p := bulk.NewPacer(o)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		test(t, p, mysql, redis)
		stop()
		running.Wait()
	})
}

// pass lets time pass in the bubble.
func pass(d time.Duration) { <-time.After(d) }

// wants compares the mode and the number of batches at once.
func wants(t *testing.T, p *bulk.Pacer, mode bulk.Mode, batches int) {
	t.Helper()
	if s := p.Pace(); s.Mode != mode || s.Batches != batches {
		t.Errorf("mode %d with %d batches, want %d with %d: %s", s.Mode, s.Batches, mode, batches, s)
	}
}

func TestItBeginsCarefullyAndAddsOneARound(t *testing.T) {
	t.Parallel()
	paced(t, bulk.PacerOptions{Parallel: 4}, func(t *testing.T, p *bulk.Pacer, _, _ *fake) {
		t.Helper()
		for _, want := range []int{1, 2, 3, 4, 4, 4} {
			wants(t, p, bulk.Free, want)
			pass(round + 10*time.Millisecond)
		}
	})
}

func TestASlowServerHalvesAndThenPauses(t *testing.T) {
	t.Parallel()
	paced(t, bulk.PacerOptions{Parallel: 8}, func(t *testing.T, p *bulk.Pacer, mysql, _ *fake) {
		t.Helper()
		pass(10 * round)
		wants(t, p, bulk.Free, 8)
		mysql.takes(80 * time.Millisecond)
		for _, want := range []int{4, 2, 1} {
			pass(round + 400*time.Millisecond) // five answers take longer now
			wants(t, p, bulk.Slowed, want)
		}
		pass(60 * time.Second)
		wants(t, p, bulk.Slowed, 1)
		s := p.Pace()
		if s.Pause != 3*time.Second || s.Server != "MySQL" {
			t.Errorf("after a minute: %s", s)
		}
		for _, want := range []string{"MySQL answers in 80 ms, usually 1", "a batch every 3s at most"} {
			if !strings.Contains(s.String(), want) {
				t.Errorf("%q does not say %q", s, want)
			}
		}
		mysql.takes(time.Millisecond)
		pass(6 * (round + 10*time.Millisecond)) // 1.5 s, 0.75 s, … 0.1 s, none
		wants(t, p, bulk.Free, 1)
		pass(8 * (round + 10*time.Millisecond))
		wants(t, p, bulk.Free, 8)
	})
}

func TestASilentServerStopsTheWork(t *testing.T) {
	t.Parallel()
	var told []bulk.Pace
	changed := func(s bulk.Pace) { told = append(told, s) }
	paced(t, bulk.PacerOptions{Parallel: 4, Changed: changed}, func(t *testing.T, p *bulk.Pacer, _, redis *fake) {
		t.Helper()
		pass(5 * round)
		redis.down.Store(true)
		pass(round / 2)
		wants(t, p, bulk.Stopped, 0)
		entered := make(chan error, 1)
		go func() {
			_, err := p.Enter(t.Context(), 1)
			entered <- err
		}()
		pass(time.Hour)
		synctest.Wait()
		if len(entered) > 0 {
			t.Error("a batch began while Redis was away")
		}
		redis.down.Store(false)
		pass(6 * time.Second) // it is asked every five seconds by now
		if err := <-entered; err != nil {
			t.Errorf("after the outage: %v", err)
		}
		stops := 0
		for _, s := range told {
			switch {
			case s.Mode == bulk.Free && s.Problem() == nil:
			case s.Mode == bulk.Stopped && errors.Is(s.Problem(), errDown) && strings.Contains(s.String(), "Redis cannot be used"):
				stops++
			default:
				t.Errorf("told %s", s)
			}
		}
		if stops < 100 || told[len(told)-1].Mode != bulk.Free {
			t.Errorf("told %d times in an hour that it stops, and last %s", stops, told[len(told)-1])
		}
	})
}

// A server that hangs answers no question, not even with an error.
func TestAHangingServerStopsTheWork(t *testing.T) {
	t.Parallel()
	paced(t, bulk.PacerOptions{}, func(t *testing.T, p *bulk.Pacer, mysql, _ *fake) {
		t.Helper()
		pass(round / 2)
		mysql.takes(time.Hour)
		pass(3 * time.Second)
		wants(t, p, bulk.Stopped, 0)
		if s := p.Pace(); !strings.Contains(s.String(), "no answer within 2s") {
			t.Errorf("said %q", s)
		}
	})
}

// Noise is no load: neither an outlier, nor a multiple of next to nothing.
func TestNoiseDoesNotSlowDown(t *testing.T) {
	t.Parallel()
	paced(t, bulk.PacerOptions{Parallel: 2}, func(t *testing.T, p *bulk.Pacer, mysql, redis *fake) {
		t.Helper()
		redis.takes(50 * time.Microsecond)
		pass(3 * round)
		redis.takes(9 * time.Millisecond) // 180 times as long, and below the floor
		for range 20 {
			mysql.takes(time.Second)
			pass(time.Second)
			mysql.takes(time.Millisecond)
			pass(3 * time.Second)
			wants(t, p, bulk.Free, 2)
		}
	})
}

// Some minutes of trouble are not taken for the usual; a slower server is, in the end.
func TestTheUsualIsLearnedSlowly(t *testing.T) {
	t.Parallel()
	paced(t, bulk.PacerOptions{Parallel: 2}, func(t *testing.T, p *bulk.Pacer, mysql, _ *fake) {
		t.Helper()
		mysql.takes(5 * time.Millisecond)
		pass(10 * round)
		mysql.takes(45 * time.Millisecond)
		pass(12 * time.Minute)
		wants(t, p, bulk.Slowed, 1)
		pass(time.Hour)
		wants(t, p, bulk.Free, 2)
		mysql.takes(5 * time.Millisecond) // and what is quicker at once
		pass(10 * round)
		mysql.takes(50 * time.Millisecond)
		pass(3 * round)
		if s := p.Pace(); s.Mode != bulk.Slowed {
			t.Errorf("ten times the usual: %s", s)
		}
	})
}

// Work that begins while a server is overloaded does not take that for usual.
func TestAnOverloadIsNotUsual(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mysql := &fake{name: "MySQL"}
		mysql.takes(400 * time.Millisecond)
		p := bulk.NewPacer(bulk.PacerOptions{Parallel: 4, Probes: []bulk.Probe{mysql.probe()}})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		pass(time.Minute)
		wants(t, p, bulk.Slowed, 1)
		if s := p.Pace(); s.Pause != 3*time.Second || !strings.Contains(s.String(), "MySQL answers in 400 ms") {
			t.Errorf("said %q", s)
		}
		mysql.takes(80 * time.Millisecond) // near the ceiling no batch is added
		pass(time.Minute)
		wants(t, p, bulk.Free, 1)
		mysql.takes(5 * time.Millisecond)
		pass(10 * round)
		wants(t, p, bulk.Free, 4)
		stop()
		running.Wait()
	})
}

// A server that is quick by nature is slow before others are.
func TestEachServerHasAFloorOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mysql, redis := &fake{name: "MySQL"}, &fake{name: "Redis"}
		mysql.takes(100 * time.Microsecond)
		redis.takes(100 * time.Microsecond)
		quick := redis.probe()
		quick.Floor = 2 * time.Millisecond
		p := bulk.NewPacer(bulk.PacerOptions{Parallel: 2, Probes: []bulk.Probe{mysql.probe(), quick}})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		pass(5 * round)
		leave, err := p.Enter(ctx, 1) // the work is under way
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		mysql.takes(9 * time.Millisecond)
		redis.takes(1900 * time.Microsecond)
		pass(3 * round)
		wants(t, p, bulk.Free, 2)
		redis.takes(3 * time.Millisecond)
		pass(4 * round)
		wants(t, p, bulk.Slowed, 1)
		if s := p.Pace(); s.Server != "Redis" {
			t.Errorf("said %q", s)
		}
		stop()
		running.Wait()
	})
}

// A server that is as slow while the work pauses is slow for another reason: the work goes on, unless that is an overload.
func TestOthersAreTheReason(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		takes time.Duration
		full  bool
		mode  bulk.Mode
		least int // batches in a minute
		most  int
	}{
		{takes: 20 * time.Millisecond, mode: bulk.Free, least: 300, most: 800},
		{takes: 40 * time.Millisecond, mode: bulk.Slowed, least: 6, most: 60},
		{takes: 40 * time.Millisecond, full: true, mode: bulk.Free, least: 700, most: 800},
	} {
		paced(t, bulk.PacerOptions{Parallel: 4, Full: test.full}, func(t *testing.T, p *bulk.Pacer, mysql, _ *fake) {
			t.Helper()
			pass(5 * round)
			ctx, stop := context.WithCancel(t.Context())
			var working sync.WaitGroup
			var done atomic.Int64
			for range 4 {
				working.Go(func() {
					for {
						leave, err := p.Enter(ctx, 1)
						if err != nil {
							return
						}
						pass(300 * time.Millisecond)
						leave()
						done.Add(1)
					}
				})
			}
			mysql.takes(test.takes)
			pass(time.Minute)
			if n := int(done.Load()); p.Pace().Mode != test.mode || n < test.least || n > test.most {
				t.Errorf("%v: %d batches, %s", test.takes, n, p.Pace())
			}
			stop()
			working.Wait()
		})
	}
}

// Between usual and slow nothing changes: that is where it is to come to rest.
func TestItHoldsBetweenUsualAndSlow(t *testing.T) {
	t.Parallel()
	paced(t, bulk.PacerOptions{Parallel: 9}, func(t *testing.T, p *bulk.Pacer, mysql, _ *fake) {
		t.Helper()
		mysql.takes(10 * time.Millisecond)
		pass(3 * round)
		before := p.Pace().Batches
		mysql.takes(30 * time.Millisecond)
		pass(2 * round)
		before = max(before, p.Pace().Batches) // of the round in which it changed
		pass(20 * round)
		wants(t, p, bulk.Free, before)
	})
}

func TestEnterKeepsToTheNumberAndThePause(t *testing.T) {
	t.Parallel()
	paced(t, bulk.PacerOptions{Parallel: 3}, func(t *testing.T, p *bulk.Pacer, mysql, _ *fake) {
		t.Helper()
		pass(5 * round)
		var leaves []func()
		for range 3 {
			leave, err := p.Enter(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, leave)
		}
		full, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.Enter(full, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a fourth batch entered: %v", err)
		}
		leaves[0]()
		leaves[0]() // once too often
		last, err := p.Enter(t.Context(), 1)
		if err != nil {
			t.Fatalf("after one left: %v", err)
		}
		if _, err := p.Enter(full, 1); err == nil {
			t.Error("a batch that leaves twice makes room for two")
		}
		leaves[1]()
		leaves[2]()
		last()
		mysql.takes(time.Second)
		pass(2 * time.Minute)
		start := time.Now()
		for range 3 {
			leave, err := p.Enter(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			leave()
		}
		if took := time.Since(start); took < 6*time.Second {
			t.Errorf("three batches began within %v", took)
		}
	})
}
