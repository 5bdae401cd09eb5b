package audit_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
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
				s := newSwept(newBench(t), 100, audit.PatrolOptions{Rate: 10, Round: time.Hour})
				var lost time.Time
				prepare(s, sync.OnceFunc(func() { lost = time.Now(); s.ledger.lose() }))
				stop := running(t, s.patrol.Run)
				<-time.After(3 * time.Hour)
				stop()
				rounds := map[time.Time]bool{}
				for _, p := range s.steps() {
					if p.Hurried {
						rounds[p.Began] = true
					}
				}
				if s.losses() != 1 || len(rounds) != 1 || !s.hurriedSince(lost, time.Minute) {
					t.Errorf("%d losses, %d rounds hurried, want one soon after %v: %+v", s.losses(), len(rounds), lost, s.last())
				}
				if s.last().Hurried {
					t.Errorf("it still hurries: %+v", s.last())
				}
			})
		})
	}
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

// If data are lost again and again, the sweep hurries every round, and its rounds end.
func TestLossesAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 5000, audit.PatrolOptions{Rate: 50})
		stop := running(t, s.patrol.Run)
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); <-time.After(time.Second) {
			s.ledger.lose()
		}
		stop()
		if s.rounds() < 10 || s.furthest() != 5011 {
			t.Errorf("%d rounds in two minutes, at most %d members in one", s.rounds(), s.furthest())
		}
		if s.truth.counts > 5 {
			t.Errorf("members were counted %d times", s.truth.counts)
		}
		if n := strings.Count(s.log.String(), "\n"); n > 2 {
			t.Errorf("%d lines in the log: %s", n, s.log.String())
		}
	})
}

// After a loss the sets that are missing are built, and not called wrong: no bound on the
// repairs holds them up, and sets that are there are not compared.
func TestWhatIsLostIsBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s := newSwept(b, 12_000, audit.PatrolOptions{Rate: 1, Repair: true, RepairsPerMinute: 1})
		s.ledger.state = `{"began":1,"total":12011,"after":"12999"}` // the round is nearly at its end
		for id := member.ID(1000); id < 13_000; id++ {
			b.store.SetContact(id, 15, false, false)
		}
		s.ledger.lose()
		stop := running(t, s.patrol.Run)
		<-time.After(9 * time.Second)
		looked := s.sweeps()
		<-time.After(2 * time.Second) // after a rest it is logged, and all are compared again
		text := s.log.String()
		stop()
		if s.built() != 12_000 || looked != 0 || s.enqueued()+s.deferred() != 0 {
			t.Errorf("%d sets were built, %d were compared, %d refills enqueued, %d left", s.built(), looked, s.enqueued(), s.deferred())
		}
		for id := member.ID(1000); id < 13_000; id++ {
			if !b.index.Memory.Look(t.Context(), []member.ID{id})[0].Known {
				t.Fatalf("the set of %s is missing", id)
			}
		}
		began, ended := strings.Index(text, `level=WARN msg="redis is new or lost data" rebuild="all missing sets" members=12011`),
			strings.Index(text, `level=INFO msg="missing sets rebuilt" members=12011 built=12000 failed=0 unreachable=0`)
		if began < 0 || ended < began || strings.Count(text, "\n") != 2 {
			t.Errorf("the log says %s", text)
		}
	})
}

// A process that is stopped while it builds leaves the rest to the next one.
func TestBuildingIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s := newSwept(b, 2000, audit.PatrolOptions{Rate: 1})
		for id := member.ID(1000); id < 3000; id++ {
			b.store.SetContact(id, 15, false, false)
		}
		s.truth.fail = func(users []member.ID) error {
			if users[len(users)-1] > 2000 {
				return mysql.ErrUnavailable
			}
			return nil
		}
		s.ledger.lose()
		stop := running(t, s.patrol.Run)
		<-time.After(5 * time.Minute)
		stop()
		kept := audit.ProgressOf(s.ledger.state)
		if !kept.Hurried || kept.Done == 0 || kept.Done >= 2011 {
			t.Fatalf("kept is %+v", kept)
		}
		s.truth.failing(nil)
		second, r := s.another(t, nil, s.ledger)
		stop = running(t, second.Run)
		<-time.After(15 * time.Second)
		stop()
		if first := r.steps()[0]; !first.Began.Equal(kept.Began) || first.Done < kept.Done {
			t.Errorf("it goes on at %+v after %+v", first, kept)
		}
		if r.rounds() == 0 {
			t.Error("no round has ended")
		}
	})
}

// Where only the sets of members that read are kept, no round hurries after a loss.
func TestALossWhereReadsBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.activeOnly = true
		s := newSwept(b, 100, audit.PatrolOptions{Rate: 1})
		stop := running(t, s.patrol.Run)
		<-time.After(30 * time.Second)
		before := s.last()
		s.ledger.lose()
		<-time.After(30 * time.Second)
		stop()
		if after := s.last(); after.Hurried || !after.Began.Equal(before.Began) || s.built() != 0 {
			t.Errorf("%+v after %+v, %d sets were built", after, before, s.built())
		}
		if text := s.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `msg="redis is new or lost data" rebuild="as members read"`) {
			t.Errorf("the log says %s", text)
		}
	})
}

// A process that does not sweep logs what to do, for losses since its start only.
func TestALossWhereNothingSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 1, audit.PatrolOptions{})
		s.ledger.lose()
		<-time.After(time.Second)
		stop := running(t, s.patrol.Run)
		<-time.After(5 * time.Second)
		before := s.log.String()
		s.ledger.lose()
		<-time.After(5 * time.Second)
		stop()
		if text := s.log.String(); before != "" || strings.Count(text, `command="activityd backfill"`) != 1 || s.losses() != 1 {
			t.Errorf("%d losses, the log says %s, then %s", s.losses(), before, text)
		}
	})
}

// Redis comes back with data of minutes ago, and activityd is restarted: no process is left
// that saw newer data.
func TestALossWhileEverythingIsDown(t *testing.T) {
	g := inMemory(t)
	viewers, owners := from(100, 30), from(1000, 20)
	g.settle(t, viewers, owners, 8)
	must(t, g.index.Probe(t.Context()).Err())
	must(t, g.client.Save(t.Context()).Err())
	for i, owner := range owners {
		_, err := g.site.Upload(t.Context(), photoOf(owner, 5_000_000-uint64(i)))
		must(t, err)
	}
	stopWork := g.work(t)
	g.quiet(t)
	stopWork()
	must(t, g.redis.Kill())
	must(t, g.redis.Restart(t.Context()))
	eventually(t, "Redis answers", func() bool { return g.client.Ping(t.Context()).Err() == nil })
	g.connect(t)
	report, err := g.Check(t.Context(), viewers)
	must(t, err)
	if len(report.Unreachable) != len(viewers) || !errors.Is(report.Away, index.ErrUnknown) {
		t.Fatalf("sets that may be old are believed: %+v", report)
	}
	g.watch(t)
	r := record(t)
	running(t, g.patrolOf(r, audit.PatrolOptions{Rate: 1, Repair: true, Log: (&logged{}).logger()}).Run)
	eventually(t, "all sets are built", func() bool {
		report, err = g.Check(t.Context(), viewers)
		must(t, err)
		return report.Checked == len(viewers) && len(report.Findings) == 0
	})
}
