package audit_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
	"github.com/activityd/activityd/queue"
)

const sweepLease = time.Minute // by default

// another returns the patrol of another process, which stands by for the sweep of s.
func (s *swept) another(t *testing.T, n *notify.Notifier, l audit.Ledger) (*audit.Patrol, *recorder) {
	t.Helper()
	r := record(t)
	return audit.NewPatrol(audit.PatrolOptions{
		Auditor: audit.New(audit.Options{Sets: newBench(t).index, Truth: s.truth, Tasks: queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)}),
		Members: s.truth, EachStored: s.ledger.EachStored, Ledger: recorded{l, r}, Rate: 10, Log: s.log.logger(),
		Once: r.once(s.locks.Memory, n), LostAt: s.ledger.lost.Load, Build: s.build,
	}), r
}

// A step that takes longer than the lease does not lose it.
func TestALongStepKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 500, audit.PatrolOptions{Rate: 50})
		s.truth.fail = func([]member.ID) error { <-time.After(10 * time.Minute); return nil }
		second, _ := s.another(t, nil, s.ledger)
		stop := running(t, s.patrol.Run)
		<-time.After(time.Second)
		stopSecond := running(t, second.Run)
		<-time.After(9 * time.Minute)
		s.truth.mu.Lock()
		asked := s.truth.asked
		s.truth.mu.Unlock()
		stop()
		stopSecond()
		if asked != 1 {
			t.Errorf("MySQL was asked %d times, want once, by one process", asked)
		}
	})
}

// A process that sweeps no longer does not go on among the sets of no member: it notices
// with the next extension of its lease, or when its position is refused.
func TestASweepThatIsTakenStops(t *testing.T) {
	for name, test := range map[string]struct {
		begins bool // the other process has begun to sweep
		most   int
	}{"it is noticed in time": {false, 13}, "the other one has begun": {true, 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSwept(newBench(t), 0, audit.PatrolOptions{Rate: 50})
				seen := 0
				for range 100 {
					s.ledger.stored = append(s.ledger.stored, viewer)
				}
				s.ledger.orphanPause = sweepLease / 6
				s.ledger.orphans = func(i int) {
					if seen = i; i == 10 {
						fence := s.locks.usurp(t)
						if test.begins {
							_, _, err := s.ledger.BeginSweep(context.Background(), uint64(fence))
							must(t, err)
						}
					}
				}
				stop := running(t, s.patrol.Run)
				<-time.After(50 * time.Minute)
				stop()
				if seen < 10 || seen > test.most {
					t.Errorf("it went on until %d, want 10 to %d", seen, test.most)
				}
			})
		})
	}
}

// A process that is stopped hands the sweep over at once.
func TestAStoppedSweepIsTakenOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notify.Notifier
		s := newSwept(newBench(t), 1000, audit.PatrolOptions{Rate: 50})
		first, _ := s.another(t, &n, s.ledger)
		second, r := s.another(t, &n, s.ledger)
		stop := running(t, first.Run)
		<-time.After(5 * time.Second)
		stopSecond := running(t, second.Run)
		<-time.After(10 * sweepLease)
		if !r.standsBy() || len(r.steps()) != 0 {
			t.Fatalf("the second one stands by: %v, and took %d steps", r.standsBy(), len(r.steps()))
		}
		stop()
		stopped := time.Now()
		for len(r.steps()) == 0 && time.Since(stopped) < sweepLease {
			<-time.After(100 * time.Millisecond)
		}
		took := time.Since(stopped)
		stopSecond()
		if took > 5*time.Second { // a batch of the sweep
			t.Errorf("the next step came after %v", took)
		}
	})
}

// The sweep of a process that died is taken over when its lease ends.
func TestASweepWhoseProcessDiedIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 1000, audit.PatrolOptions{Rate: 50})
		_, err := s.locks.Memory.Apply(t.Context(), sweepName, once.Operation{
			Action: once.Acquire, Owner: "dead", Terms: once.Terms{Lease: sweepLease, Keep: time.Hour},
		})
		must(t, err)
		stop := running(t, s.patrol.Run)
		<-time.After(sweepLease - time.Second)
		before := len(s.steps())
		<-time.After(10 * time.Second)
		after := len(s.steps())
		stop()
		if before != 0 || after == 0 {
			t.Errorf("%d steps within the lease of the dead process, %d soon after, want 0 and some", before, after)
		}
	})
}

// A process that cannot extend its lease stops before another one begins.
func TestTwoNeverSweepAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 6000, audit.PatrolOptions{Rate: 10})
		second, r := s.another(t, nil, s.ledger)
		stop := running(t, s.patrol.Run)
		<-time.After(5 * time.Second)
		stopSecond := running(t, second.Run)
		<-time.After(sweepLease)
		s.locks.away.Store(true) // for the first one
		cut, last, first := time.Now(), time.Time{}, time.Time{}
		for steps := len(s.steps()); time.Since(cut) < 3*sweepLease; <-time.After(100 * time.Millisecond) {
			if n := len(s.steps()); n > steps {
				steps, last = n, time.Now()
			}
			if first.IsZero() && len(r.steps()) > 0 {
				first = time.Now()
			}
		}
		stop()
		stopSecond()
		if first.IsZero() || first.Sub(cut) > sweepLease+5*time.Second || last.After(first) {
			t.Errorf("after the cut the first one took its last step at %v, the second one its first at %v", last.Sub(cut), first.Sub(cut))
		}
		if n := strings.Count(s.log.String(), "stands still"); n != 1 {
			t.Errorf("told %d times: %s", n, s.log.String())
		}
	})
}

// A sweep goes on where it was when MySQL was away for longer than its lease, and logs
// it once.
func TestTheSweepOutlastsMySQL(t *testing.T) {
	for _, outage := range []time.Duration{10 * time.Second, 10 * sweepLease} {
		synctest.Test(t, func(t *testing.T) {
			s := newSwept(newBench(t), 6000, audit.PatrolOptions{Rate: 10})
			stop := running(t, s.patrol.Run)
			<-time.After(2 * time.Minute)
			s.locks.away.Store(true)
			s.truth.failing(func([]member.ID) error { return mysql.ErrUnavailable })
			<-time.After(outage)
			before := s.last()
			steps := len(s.steps())
			s.locks.away.Store(false)
			s.truth.failing(nil)
			<-time.After(sweepLease + 30*time.Second)
			stop()
			if len(s.steps()) == steps {
				t.Fatalf("after %v it does not go on", outage)
			}
			if next := s.steps()[steps]; before.Done == 0 || !next.Began.Equal(before.Began) || next.Done <= before.Done {
				t.Errorf("after %v it goes on at %+v, after %+v", outage, next, before)
			}
			if n := strings.Count(s.log.String(), "stands still"); n != 1 {
				t.Errorf("told %d times: %s", n, s.log.String())
			}
		})
	}
}

// Another process gets its chance where this one meets errors only.
func TestASweepThatMeetsErrorsIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notify.Notifier
		s := newSwept(newBench(t), 1000, audit.PatrolOptions{Rate: 50})
		cutOff, _ := s.another(t, &n, redisless{s.ledger})
		second, r := s.another(t, &n, s.ledger)
		stop := running(t, cutOff.Run)
		<-time.After(time.Second)
		stopSecond := running(t, second.Run)
		<-time.After(2 * sweepLease)
		steps := len(r.steps())
		stop()
		stopSecond()
		if steps == 0 {
			t.Error("the other process does not sweep")
		}
	})
}

// Redis lost the position, and that this process sweeps: nothing may be left of the sets.
func TestASweepWhosePositionIsLostHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 5000, audit.PatrolOptions{Rate: 10})
		stop := running(t, s.patrol.Run)
		<-time.After(time.Minute)
		lost := time.Now()
		s.ledger.set("", 0)
		<-time.After(time.Minute)
		stop()
		if !s.hurriedSince(lost, 10*time.Second) {
			t.Errorf("no round hurried: %+v", s.last())
		}
		if text := s.log.String(); strings.Contains(text, "stands still") {
			t.Errorf("the log says %s", text)
		}
	})
}

// Fences that have gone back, as after a restore of MySQL, are told, and waited out.
func TestASweepWhoseFenceIsTooLowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 1000, audit.PatrolOptions{Rate: 50})
		s.ledger.set(oldRound, 1000)
		stop := running(t, s.patrol.Run)
		<-time.After(time.Hour)
		before := len(s.steps())
		s.ledger.set(oldRound, 0) // it has expired
		<-time.After(2 * time.Minute)
		after := len(s.steps())
		stop()
		if before != 0 || after == 0 {
			t.Errorf("%d steps before and %d after, want 0 and some", before, after)
		}
		if text := s.log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "a process with a higher fence has begun to sweep") {
			t.Errorf("the log says %s", text)
		}
	})
}

// redisless is a ledger whose Redis is away.
type redisless struct{ audit.Ledger }

func (redisless) BeginSweep(context.Context, uint64) (state string, begun bool, err error) {
	return "", false, index.ErrUnavailable
}
