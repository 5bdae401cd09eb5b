package audit_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// Whatever the sweep does when Redis loses data, a round that hurries follows.
func TestALossIsNeverForgotten(t *testing.T) {
	for name, prepare := range map[string]func(s *swept, lose func()){
		"between two steps": func(_ *swept, lose func()) {
			go func() {
				<-time.After(time.Second)
				lose()
			}()
		},
		"in the rest after a round": func(_ *swept, lose func()) {
			go func() {
				<-time.After(30 * time.Minute)
				lose()
			}()
		},
		"while it looks for the sets of nobody": func(s *swept, lose func()) {
			s.ledger.orphanPause = 10 * time.Second
			for range 60 {
				s.ledger.stored = append(s.ledger.stored, viewer)
			}
			s.ledger.orphans = func(seen int) {
				if seen == 30 {
					lose()
				}
			}
		},
		"while members are counted": func(s *swept, lose func()) {
			s.truth.count = func() {
				if s.truth.counts == 1 { // the one for the second round
					lose()
					<-time.After(10 * time.Second)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSwept(newBench(t), 100, audit.PatrolOptions{Rate: 10, Round: time.Hour, Watch: true})
				var lost time.Time
				prepare(s, sync.OnceFunc(func() { lost = time.Now(); s.ledger.rewind() }))
				stop := running(t, s.patrol.Run)
				<-time.After(3 * time.Hour)
				stop()
				if s.lost(audit.Rewound) != 1 || !s.hurriedSince(lost, time.Minute) {
					t.Errorf("%d losses, and no round hurried soon after %v: %+v", s.losses(), lost, s.last())
				}
				if s.last().Hurried {
					t.Errorf("it still hurries: %+v", s.last())
				}
			})
		})
	}
}

// What one process noticed the one that sweeps learns, though it saw nothing.
func TestALossThatAnotherNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 100, audit.PatrolOptions{Rate: 1, Watch: true})
		stop := running(t, s.patrol.Run)
		<-time.After(time.Minute)
		before := s.rounds()
		must(t, s.ledger.NoteLoss(t.Context(), time.Now().UnixMilli()))
		<-time.After(20 * time.Second)
		stop()
		if s.rounds() == before || s.losses() != 0 {
			t.Errorf("%d rounds ended, as before; %d losses of its own", before, s.losses())
		}
	})
}

// Processes that notice the same loss one after the other speak of one.
func TestALossThatAllNoticeIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 5000, audit.PatrolOptions{Rate: 1000, Watch: true})
		other := audit.NewPatrol(audit.PatrolOptions{Ledger: s.ledger, Watch: true, Log: s.log.logger(), Tick: 3 * time.Second})
		stop, stopOther := running(t, s.patrol.Run), running(t, other.Run)
		<-time.After(61 * time.Second) // who sweeps notices after a second, the other one after two
		s.ledger.rewind()
		<-time.After(time.Minute)
		rounds := map[time.Time]bool{}
		for _, p := range s.steps() {
			if p.Hurried {
				rounds[p.Began] = true
			}
		}
		stop()
		stopOther()
		if len(rounds) != 1 {
			t.Errorf("%d rounds hurried, want one", len(rounds))
		}
	})
}

// A loss that could not be noted is noted later.
func TestALossIsNotedWhenRedisIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 1, audit.PatrolOptions{Rate: 1, Watch: true})
		stop := running(t, s.patrol.Run)
		<-time.After(10 * time.Second)
		s.ledger.rewind()
		<-time.After(10 * time.Second)
		s.ledger.mu.Lock()
		first := s.ledger.lost
		s.ledger.lost = 0 // it was lost as well
		s.ledger.mu.Unlock()
		<-time.After(10 * time.Second)
		stop()
		if first == 0 || s.ledger.lost != first {
			t.Errorf("noted is %d, want %d again", s.ledger.lost, first)
		}
	})
}

// Where nothing is kept of a sweep, nothing may be left of the sets.
func TestASweepThatKnowsNothingHurries(t *testing.T) {
	for state, hurries := range map[string]bool{"": true, "not understood": true, oldRound: false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSwept(newBench(t), 5000, audit.PatrolOptions{Rate: 10})
			s.ledger.state = state
			stop := running(t, s.patrol.Run)
			<-time.After(20 * time.Second)
			stop()
			if ended := s.rounds() > 0; ended != hurries { // at ten a second it would take minutes
				t.Errorf("%q: %d rounds ended, want hurry: %v", state, s.rounds(), hurries)
			}
		})
	}
}

// Servers that replace one another all the time, as behind a proxy, make the sweep
// hurry, but never begin anew.
func TestServersThatAreReplacedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 5000, audit.PatrolOptions{Rate: 50, Watch: true})
		run := 0
		s.ledger.server = func() string { run++; return fmt.Sprint("run ", run%2) }
		stop := running(t, s.patrol.Run)
		<-time.After(10 * time.Minute)
		stop()
		if s.rounds() < 20 || s.furthest() != 5011 {
			t.Errorf("%d rounds in ten minutes, at most %d members in one", s.rounds(), s.furthest())
		}
		if s.truth.counts > 5 {
			t.Errorf("members were counted %d times", s.truth.counts)
		}
		if n := strings.Count(s.log.String(), "\n"); n < 2 || n > 11 {
			t.Errorf("%d lines in the log", n)
		}
	})
}

// Lost sets are all looked at three times, with rests. These must not be waited for
// one after the other.
func TestTheHurryOverLostSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s := newSwept(b, 12_000, audit.PatrolOptions{Rate: 50, Watch: true})
		for id := member.ID(1000); id < 13_000; id++ {
			b.store.SetContact(id, 11, false, false)
		}
		stop := running(t, s.patrol.Run)
		<-time.After(10 * time.Second)
		s.ledger.rewind()
		<-time.After(5 * time.Second)
		before := s.sweeps()
		<-time.After(6 * time.Second)
		n := s.sweeps() - before
		stop()
		if n < 4000 || n > 8000 {
			t.Errorf("%d sets in 6 s, want 1000 a second", n)
		}
	})
}

// Redis comes back with data of minutes ago, and so does activityd: nobody is left
// who saw anything else.
func TestALossWhileEverythingIsDown(t *testing.T) {
	g := inMemory(t)
	viewers, owners := from(100, 30), from(1000, 20)
	g.settle(t, viewers, owners, 8)
	r := record(t)
	patrol := func() *audit.Patrol {
		return g.patrolOf(r, audit.PatrolOptions{Rate: 1, Repair: true, Watch: true, Log: (&logged{}).logger()})
	}
	marks := func() int { n, _ := g.client.Get(t.Context(), "activityd_mark").Int(); return n }
	stop := running(t, patrol().Run)
	eventually(t, "the first round ended", func() bool { return marks() > 3 && r.rounds() > 0 })
	must(t, g.client.Save(t.Context()).Err())
	for i, owner := range owners {
		_, err := g.site.Upload(t.Context(), photoOf(owner, 5_000_000-uint64(i)))
		must(t, err)
	}
	stopWork := g.work(t)
	g.quiet(t)
	stop()
	stopWork()
	rounds := r.rounds()
	must(t, g.redis.Kill())
	must(t, g.redis.Restart(t.Context()))
	eventually(t, "Redis answers", func() bool { return g.client.Ping(t.Context()).Err() == nil })
	report, err := g.Check(t.Context(), viewers)
	must(t, err)
	if report.Erroneous == 0 {
		t.Fatal("nothing was lost")
	}
	g.work(t)
	running(t, patrol().Run)
	eventually(t, "a hurried round ends", func() bool { return r.rounds() > rounds })
	g.quiet(t)
	report, err = g.Check(t.Context(), viewers)
	must(t, err)
	found(t, report)
	if r.lost(audit.Replaced) != 1 {
		t.Errorf("%d losses", r.losses())
	}
}

func TestALossIsToldAsWhatItIs(t *testing.T) {
	for rate, want := range map[int]string{1: "all sets are looked at", 0: "run `activityd verify --repair`"} {
		synctest.Test(t, func(t *testing.T) {
			s := newSwept(newBench(t), 1, audit.PatrolOptions{Rate: rate, Watch: true})
			stop := running(t, s.patrol.Run)
			<-time.After(5 * time.Second)
			s.ledger.mu.Lock()
			s.ledger.tickErr = index.ErrUnavailable
			s.ledger.mu.Unlock()
			<-time.After(5 * time.Second)
			s.ledger.rewind()
			s.ledger.mu.Lock()
			s.ledger.tickErr = nil
			s.ledger.mu.Unlock()
			<-time.After(5 * time.Second)
			stop()
			if !strings.Contains(s.log.String(), want) || s.lost(audit.Rewound) != 1 {
				t.Errorf("%d losses, the log says %s", s.losses(), s.log.String())
			}
		})
	}
}

// When all sets were looked at after a loss, what was found is told then and there,
// not a minute later, when it is long mended.
func TestAfterALossTheResultIsTold(t *testing.T) {
	for repair, then := range map[bool]string{true: "refills are enqueued", false: "activityd verify --repair enqueues refills"} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			s := newSwept(b, 2000, audit.PatrolOptions{Rate: 1000, Watch: true, Repair: repair})
			for id := member.ID(1000); id < 3000; id++ { // without a set
				b.store.SetContact(id, 15, false, false)
			}
			s.ledger.state = ""
			s.ledger.rewind()
			stop := running(t, s.patrol.Run)
			<-time.After(20 * time.Second)
			text := s.log.String()
			stop()
			sum, end := strings.LastIndex(text, `cause="lost set" count=`), strings.Index(text, `msg="all sets were looked at"`)
			if sum < 0 || end < sum {
				t.Fatalf("the sum is at %d, the end at %d of\n%s", sum, end, text)
			}
			enqueued := 0
			if repair {
				enqueued = 2000
			}
			wants := []string{"wrong=2000", fmt.Sprintf("repairs=%d", enqueued), "repairs_left=0", then}
			for _, want := range wants {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
		})
	}
}
