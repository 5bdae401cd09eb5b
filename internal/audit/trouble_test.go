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
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
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

// Repairs of the sets of nobody that had to wait make the next round hurry, too.
func TestRepairsOfOrphansThatWaitAreCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s := newSwept(b, 0, audit.PatrolOptions{Rate: 50, Repair: true, RepairsPerMinute: 1})
		s.ledger.state = ""
		for id := member.ID(7001); id <= 7003; id++ {
			b.store.AddMember(id, "leaves")
			b.store.SetContact(id, 11, false, false)
			b.refill(t, id)
			b.store.DeleteMember(id)
			s.ledger.stored = append(s.ledger.stored, id)
		}
		stop := running(t, s.patrol.Run)
		<-time.After(25 * time.Second)
		stop()
		if s.rounds() == 0 || s.deferred() == 0 || !s.last().Hurried {
			t.Errorf("%d rounds, %d repairs deferred, then %+v", s.rounds(), s.deferred(), s.last())
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
