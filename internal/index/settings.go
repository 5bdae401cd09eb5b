package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

// Settings are part of what the stored sets mean: a set of nine members is
// complete under Min 10 and is not under Min 9. So they are stored in Redis too,
// and a process with other settings refuses to use the sets. With them the id of the database is
// stored, for sets that two databases make in turns are wrong for both.
type Settings struct {
	Need int // how many candidates a read wants; Max is derived from it
	Max  int // members a set holds at most
	Min  int // members below which a set is refilled, unless there are no more contacts
}

// NewSettings derives Max from need and the headroom in percent, rounded up.
// Min is minimum, or need if minimum is 0. An error names the number that is wrong.
func NewSettings(need, headroomPercent, minimum int) (Settings, error) {
	const maxNeed = 10_000
	switch {
	case need < 1 || need > maxNeed:
		return Settings{}, fmt.Errorf("need is %d: want 1 to %d", need, maxNeed)
	case headroomPercent < 0 || headroomPercent > 1000:
		return Settings{}, fmt.Errorf("headroom is %d %%: want 0 to 1000", headroomPercent)
	}
	s := Settings{Need: need, Max: need + (need*headroomPercent+99)/100, Min: minimum}
	if minimum == 0 {
		s.Min = need
	}
	if s.Min < 1 || s.Min > s.Max {
		return Settings{}, fmt.Errorf("min is %d: want 1 to %d (need %d plus %d %%)", minimum, s.Max, need, headroomPercent)
	}
	return s, nil
}

// String is the form in which the settings are stored, before the id of the database.
func (s Settings) String() string {
	return fmt.Sprintf("need=%d max=%d min=%d", s.Need, s.Max, s.Min)
}

// differ returns an [ErrSettings] that names both stamps and what to do.
func differ(stored, own string) error {
	_, storedID, _ := strings.Cut(stored, databaseField)
	_, ownID, _ := strings.Cut(own, databaseField)
	if storedID != ownID {
		return fmt.Errorf("%w: the sets in Redis are those of another database: they were built with %q, this process has %q: "+
			"give this site a Redis database of its own, as in redis://host:6379/1, or, if the sets are to be those of this database from now on, "+
			"stop all processes of both and run `activityd reset --yes`, after which the sets are built again from MySQL", ErrSettings, stored, own)
	}
	return fmt.Errorf("%w: the sets in Redis were built with %q, this process was started with %q: "+
		"start it with the numbers of the sets, or stop all processes and run `activityd reset --yes`, "+
		"after which the sets are built again from MySQL", ErrSettings, stored, own)
}

// The settings are the stamp of the data: see [redisnodes.Stamp]. It is trusted for some seconds after
// a comparison, in which the methods use sets without comparing again. A comparison goes in the
// pipeline that is sent anyway; Add, which would have written by then, makes a round trip for it.
//
// The stored settings change in two ways only.
//
//   - An operator stops all processes, runs `activityd reset`, and starts them with other
//     settings. They compare at their start, by [Index.Check].
//   - Redis loses them, with the sets: by a FLUSHALL, a restart without persistence, or a
//     failover to a replica that lacks them. The processes that run go on, all with the
//     settings that were stored. What must not happen is that a set is made before they
//     are stored again, for a process with other settings could store its own beside it.
//     A set is made only by an update whose Begin found it missing (I4). So such a Begin
//     stores and compares, however recent the last comparison was; and if Redis is
//     emptied after it, the guard is gone, and Apply conflicts.
//
// What remains: Redis is emptied while processes run, or comes back with a backup from
// before a reset, and before one of them makes a set, a process is started with other
// settings, against the documentation. Then the old ones may change the sets of the new
// one until their trust ends: for five seconds, or one second where [redisnodes.Nodes.Watch]
// runs, whose probe compares.

// databaseField stands before the id of the database in a stamp.
const databaseField = " database="

// stamp is the settings and the id of the database, as [redisnodes.Nodes] store and compare them.
func (o Options) stamp() redisnodes.Stamp {
	value := func() string {
		if o.Database == nil {
			return o.Settings.String()
		}
		id := o.Database()
		if id == "" {
			return ""
		}
		return o.Settings.String() + databaseField + id
	}
	return redisnodes.Stamp{Name: settingsKey, Value: value, Differ: func(stored string) error { return differ(stored, value()) }}
}

// Check reports whether the index can be used now: nil, or an error that matches
// [ErrUnavailable], as [ErrNoDatabase] does, or [ErrSettings]. Of a cluster all nodes must
// answer.
func (ix *Index) Check(ctx context.Context) (err error) {
	defer func(start time.Time) { ix.observe(opCheck, start, err) }(time.Now())
	nodes, err := ix.Masters(ctx)
	if err != nil {
		return redisnodes.Translate(ctx, "find the nodes", err)
	}
	var wrong, away error
	for _, n := range nodes {
		switch err := ix.CheckStamp(ctx, n); {
		case errors.Is(err, ErrSettings):
			wrong = cmp.Or(wrong, err)
		default:
			away = cmp.Or(away, err)
		}
	}
	return cmp.Or(wrong, away)
}

// byNode returns the nodes of the users' sets, and the users of each by their place. A user
// whose node cannot be found has an error.
func (ix *Index) byNode(ctx context.Context, users []member.ID) (nodes map[*redisnodes.Node][]int, failed map[int]error) {
	nodes = make(map[*redisnodes.Node][]int)
	for i, user := range users {
		n, err := ix.Of(ctx, UserKey(user))
		if err != nil {
			if failed == nil {
				failed = make(map[int]error)
			}
			failed[i] = redisnodes.Translate(ctx, "find the node of "+user.String(), err)
			continue
		}
		nodes[n] = append(nodes[n], i)
	}
	return nodes, failed
}
