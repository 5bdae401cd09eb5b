package audit_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// errTooLong is an error that will not pass.
var errTooLong = errors.New("Error 3024: maximum statement execution time exceeded")

// failAt makes MySQL give up at some members.
func failAt(bad ...member.ID) func([]member.ID) error {
	return func(users []member.ID) error {
		if slices.ContainsFunc(users, func(id member.ID) bool { return slices.Contains(bad, id) }) {
			return errTooLong
		}
		return nil
	}
}

// How many of the three members a line counts depends on the pauses between the batches.
var notCheckedLine = regexp.MustCompile(`cause="not checked" count=[1-9]\d* example="user (1105|1106|1900): .*maximum statement execution time`)

// A member at whom MySQL gives up is left out, counted and told of; all others are
// looked at.
func TestAMemberAtWhomMySQLGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 1000, audit.PatrolOptions{Rate: 50})
		s.truth.fail = failAt(1105, 1106, 1900)
		stop := running(t, s.patrol.Run)
		<-time.After(3 * time.Minute)
		stop()
		if s.rounds() < 1 || s.furthest() != 1011 || s.failed() < 3 {
			t.Errorf("%d rounds, %d members, %d failed", s.rounds(), s.furthest(), s.failed())
		}
		text := s.log.String()
		if !notCheckedLine.MatchString(text) {
			t.Errorf("the log says %s", text)
		}
		if strings.Contains(text, "stands still") {
			t.Errorf("it stood still: %s", text)
		}
	})
}

func TestASampleAtWhichMySQLGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 10, audit.PatrolOptions{Share: 1})
		s.truth.fail = failAt(1005)
		stop := running(t, s.patrol.Run)
		for id := member.ID(1000); id < 1010; id++ {
			s.patrol.Note(id)
		}
		<-time.After(10 * time.Second)
		stop()
		if s.reads() != 9 || s.failed() != 1 {
			t.Errorf("%d sets checked, %d failed, want 9 and 1", s.reads(), s.failed())
		}
	})
}

// What fails for everybody is nobody's fault: the sweep waits.
func TestAnErrorOfAllStopsTheSweep(t *testing.T) {
	for name, failure := range map[string]error{
		"a table is missing": errors.New("Error 1146: no such table"), "away": mysql.ErrUnavailable, "other settings": index.ErrSettings,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSwept(newBench(t), 1000, audit.PatrolOptions{Rate: 50})
				s.truth.fail = func([]member.ID) error { return failure }
				stop := running(t, s.patrol.Run)
				<-time.After(time.Hour)
				stop()
				if s.furthest() != 0 || s.failed() != 0 || s.truth.asked > 300 {
					t.Errorf("%d members passed, %d failed, asked %d times", s.furthest(), s.failed(), s.truth.asked)
				}
				if n := strings.Count(s.log.String(), "stands still"); n != 1 {
					t.Errorf("told %d times: %s", n, s.log.String())
				}
			})
		})
	}
}

func TestEachOutageIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 1000, audit.PatrolOptions{Rate: 50})
		stop := running(t, s.patrol.Run)
		for range 3 {
			<-time.After(10 * time.Minute)
			s.truth.failing(func([]member.ID) error { return mysql.ErrUnavailable })
			<-time.After(5 * time.Minute)
			s.truth.failing(nil)
		}
		<-time.After(10 * time.Minute)
		stop()
		if n := strings.Count(s.log.String(), "stands still"); n != 3 {
			t.Errorf("three outages were told %d times: %s", n, s.log.String())
		}
	})
}

// A task that waits for days, as in a queue that somebody paused, is not waited for.
func TestALagThatLastsIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.upload(20, 300)
		b.enqueue(t, tasks.NewUpload(20))
		r := record(t)
		p := audit.NewPatrol(audit.PatrolOptions{Auditor: b.Auditor, Share: 1, Repair: true, Log: (&logged{}).logger()})
		stop := running(t, p.Run)
		p.Note(viewer)
		<-time.After(10 * time.Second)
		early := r.enqueued()
		b.clock.add(audit.DefaultLagLimit + time.Second)
		p.Note(viewer)
		<-time.After(10 * time.Second)
		stop()
		if early != 0 || r.enqueued() != 1 {
			t.Errorf("%d refills at first, then %d, want 0 and 1", early, r.enqueued())
		}
		list, err := b.queue.List(context.Background(), queue.Filter{Kinds: []string{tasks.Refill}}, 10)
		must(t, err)
		if len(list) != 1 || list[0].Key != uint64(viewer) {
			t.Errorf("tasks %+v", list)
		}
	})
}

// While a node of Redis is away the sweep leaves out the sets on it, says so, and goes on
// with the others.
func TestTheSweepPassesANodeThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s := newSwept(b, 1000, audit.PatrolOptions{Rate: 50, Repair: true, Probes: answering})
		b.upload(20, 300)
		b.index.FailIf = evenAway
		s.ledger.stored = []member.ID{viewer}
		s.ledger.fail(index.ErrUnavailable) // what is kept of the sweep is on that node, as well
		stop := running(t, s.patrol.Run)
		<-time.After(10 * time.Minute)
		r, a, text := s.enqueued(), s.away(), s.log.String()
		stop()
		if s.rounds() < 2 || s.furthest() != 1011 || a < 2*505 || s.failed() != 0 || r == 0 {
			t.Errorf("%d rounds, %d members, %d of them left out, %d failed; %d refills", s.rounds(), s.furthest(), a, s.failed(), r)
		}
		list, err := b.queue.List(context.Background(), queue.Filter{}, 10)
		must(t, err)
		if len(list) != 1 || list[0].Key != uint64(viewer) {
			t.Errorf("tasks %+v", list)
		}
		if strings.Contains(text, "stands still") || !strings.Contains(text, `cause="node away"`) || strings.Count(text, `cause="node away"`) > 11 {
			t.Errorf("the log says %s", text)
		}
	})
}

// evenAway is the failure of a node with the sets of all members whose ids are even.
func evenAway(_ string, user member.ID) (bool, error) {
	if user%2 == 0 {
		return false, index.ErrUnavailable
	}
	return true, nil
}

// answering are probes of servers of which some nodes, at least, answer.
var answering = []bulk.Probe{{Name: "Redis", Ask: func(context.Context) error { return nil }}}

// A sweep that could not be kept for a while goes on where it was kept last.
func TestTheSweepGoesOnWhereItWasKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwept(newBench(t), 5000, audit.PatrolOptions{Rate: 10, Probes: answering})
		s.ledger.state = `{"began":1,"total":5011,"after":"3000","counts":{"seen":2011}}`
		s.ledger.fail(index.ErrUnavailable)
		stop := running(t, s.patrol.Run)
		<-time.After(time.Minute)
		s.ledger.fail(nil)
		<-time.After(time.Minute)
		stop()
		if kept := audit.ProgressOf(s.ledger.state); kept.Began.UnixMilli() != 1 || kept.Done <= 2011 {
			t.Errorf("kept is %+v", kept)
		}
	})
}

// What is built after a loss is not held up by a node that is away: its sets are built when
// it is back soon, or else after the loss that it comes back with.
func TestBuildingPassesANodeThatIsAway(t *testing.T) {
	for name, test := range map[string]struct {
		away       time.Duration
		unbuilt    int  // by the first round
		losesAgain bool // when it is back
	}{"it is back soon": {20 * time.Second, 0, false}, "it stays away": {10 * time.Minute, 1000, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				s := newSwept(b, 2000, audit.PatrolOptions{Rate: 1, Probes: answering})
				for id := member.ID(1000); id < 3000; id++ {
					b.store.SetContact(id, 15, false, false)
				}
				back := time.Now().Add(test.away)
				b.index.FailIf = func(operation string, user member.ID) (bool, error) {
					if time.Now().Before(back) && user >= 1000 {
						return evenAway(operation, user)
					}
					return true, nil
				}
				s.ledger.lose()
				stop := running(t, s.patrol.Run)
				<-time.After(10 * time.Second)
				others := s.built()
				<-time.After(5 * time.Minute)
				first, away, rounds := s.built(), s.away(), s.rounds()
				<-time.After(6 * time.Minute)
				if test.losesAgain {
					s.ledger.lose()
				}
				<-time.After(10 * time.Second)
				all := s.built()
				stop()
				if others != 1000 || first != 2000-test.unbuilt || away < test.unbuilt || rounds == 0 || all != 2000 {
					t.Errorf("built were %d, %d (%d left out) and %d; %d rounds", others, first, away, all, rounds)
				}
				if strings.Contains(s.log.String(), "stands still") {
					t.Errorf("the log says %s", s.log.String())
				}
			})
		})
	}
}

// An error of all servers stops the building as well.
func TestAnErrorOfAllStopsTheBuilding(t *testing.T) {
	for name, failure := range map[string]error{"MySQL is away": mysql.ErrUnavailable, "a table is missing": errors.New("Error 1146: no such table")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				s := newSwept(b, 0, audit.PatrolOptions{Rate: 1})
				b.index.Forget(viewer)
				s.truth.fail = func([]member.ID) error { return failure }
				s.ledger.lose()
				stop := running(t, s.patrol.Run)
				<-time.After(time.Hour)
				before := s.built()
				s.truth.failing(nil)
				<-time.After(time.Minute)
				stop()
				if n := strings.Count(s.log.String(), "stands still"); before != 0 || s.built() != 1 || s.failed() != 0 || n != 1 {
					t.Errorf("%d sets were built, then %d; %d failed; logged %d times: %s", before, s.built(), s.failed(), n, s.log.String())
				}
			})
		})
	}
}
