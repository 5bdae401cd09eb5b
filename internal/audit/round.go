package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// round is where a sweep over all sets is: first those of all members, in the
// order of their ids, then those of nobody. It is kept in Redis; one that is lost
// with it starts anew.
type round struct {
	Began    int64     `json:"began"`          // unix milliseconds, as the other times; 0: no round was begun
	Lost     int64     `json:"lost,omitzero"`  // the last loss of Redis before it began
	After    member.ID `json:"after,omitzero"` // the last member that was looked at
	Members  bool      `json:"members,omitzero"`
	Done     int64     `json:"done"`
	Total    int64     `json:"total"`
	Hurried  bool      `json:"hurried,omitzero"`
	Wrong    int       `json:"wrong,omitzero"`    // sets with an error
	Repaired int       `json:"repaired,omitzero"` // refills that were enqueued
	Deferred int       `json:"deferred,omitzero"` // those that were left for later
	Ended    int64     `json:"ended,omitzero"`    // of the round before
	Took     int64     `json:"took,omitzero"`
}

// parseRound reads what String wrote. What cannot be understood is no round.
func parseRound(state string) (r round) {
	if json.Unmarshal([]byte(state), &r) != nil {
		return round{}
	}
	return r
}

func (r round) String() string {
	state, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("audit: encoding %T: %v", r, err)) // it is made of numbers
	}
	return string(state)
}

// count adds to the round what was found, and done about it.
func (s *sweeper) count(found Report, done repairs) {
	s.round.Wrong += found.Erroneous
	s.round.Repaired += done.enqueued
	s.round.Deferred += done.deferred
}

// reason says why a round hurried.
func (r round) reason() string {
	if r.Lost == 0 {
		return "nobody knows when that was done last"
	}
	return "Redis lost data, or may have"
}

// isBehind tells whether Redis lost data that this round may have passed before.
func (s *sweeper) isBehind() bool { return s.lost.Load() > s.round.Lost }

// isOvertaken tells whether the round should give way to one that hurries. One that
// hurries already goes on, and another one follows: each set is looked at as soon
// as if it began anew, and a Redis that loses data all the time cannot keep it from
// its end.
func (s *sweeper) isOvertaken() bool { return s.isBehind() && !s.round.Hurried }

// begin begins a round. Which loss was the last is read first, so that one that
// comes meanwhile is seen to be later. A round that hurries does not wait for the
// members to be counted again.
func (s *sweeper) begin(ctx context.Context, hurried bool) error {
	began, lost, total := s.options.Now().UnixMilli(), s.lost.Load(), s.round.Total
	if total == 0 || !hurried {
		counted, err := s.options.Members.CountMembers(ctx, 1, math.MaxUint64)
		if err != nil {
			return err
		}
		total = counted
	}
	s.round = round{
		Began: began, Lost: lost, Total: total, Hurried: hurried && total > 0, Ended: s.round.Ended, Took: s.round.Took,
	}
	return nil
}

// errOvertaken ends the look for the sets of nobody when Redis lost data.
var errOvertaken = errors.New("data was lost meanwhile")

// sweepOrphans looks for the sets of who is no member, and ends the round. It
// cannot be resumed, but starts anew; it is quick, since it only asks who is a
// member.
func (s *sweeper) sweepOrphans(ctx context.Context) error {
	err := s.options.Ledger.EachStored(ctx, func(ctx context.Context, users []member.ID) error {
		if s.isOvertaken() {
			return errOvertaken
		}
		start := time.Now()
		if err := s.checkOrphans(ctx, users); err != nil {
			return err
		}
		if err := s.save(ctx); err != nil { // it takes a while: others are to know that it goes on
			return err
		}
		s.rest(ctx, start, 0, time.Since(start))
		return ctx.Err()
	})
	if errors.Is(err, errOvertaken) {
		return nil // the next step begins a round
	}
	if err != nil {
		return err
	}
	return s.end(ctx)
}

// checkOrphans checks the sets of those of users who are no members.
func (s *sweeper) checkOrphans(ctx context.Context, users []member.ID) error {
	members, err := s.options.Members.Existing(ctx, users)
	if err != nil {
		return err
	}
	strangers := make([]member.ID, 0, len(users))
	for _, id := range users {
		if !members[id] {
			strangers = append(strangers, id)
		}
	}
	if len(strangers) == 0 {
		return nil
	}
	r, done, err := s.check(ctx, OfSweep, strangers)
	if err == nil {
		s.count(r, done)
	}
	return err
}

// end ends the round and begins the next one. It hurries when Redis lost data
// since the round began, and after a hurried one while there was more to repair
// than could be.
func (s *sweeper) end(ctx context.Context) error {
	now := s.options.Now().UnixMilli()
	s.round.Ended, s.round.Took = now, now-s.round.Began
	if s.round.Hurried && !s.isBehind() {
		s.teller.tell(ctx, true) // what it found, before that it found no more
		s.options.Log.InfoContext(ctx, "all sets were looked at", "because", s.round.reason(), "members", s.round.Done,
			"took", time.Duration(s.round.Took)*time.Millisecond, "wrong", s.round.Wrong, "repairs", s.round.Repaired, "repairs_left", s.round.Deferred)
	}
	s.wait(ctx, s.options.Round-time.Duration(s.round.Took)*time.Millisecond) // a small site is not swept all the time
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.begin(ctx, s.isBehind() || s.round.Hurried && s.round.Deferred > 0)
}
