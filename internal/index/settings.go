package index

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Settings are part of the meaning of the stored sets: a set of nine members is complete under Min
// 10 and is not under Min 9. So they are stored in Redis too, and a process with other settings
// refuses to use the sets. The id of the database is stored with them: sets that two databases make
// in turns are wrong for both.
type Settings struct {
	Need int // how many candidates a read wants; Max is derived from it
	Max  int // members a set holds at most
	Min  int // a set with fewer members is refilled, unless there are no more contacts
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

// String returns the stored form of the settings, before the id of the database.
func (s Settings) String() string {
	return fmt.Sprintf("need=%d max=%d min=%d", s.Need, s.Max, s.Min)
}

// differ returns an [ErrSettings] that names both stamps and the remedy.
func differ(stored, own string) error {
	const most = 200 // another program may have written it
	if len(stored) > most {
		stored = strings.ToValidUTF8(stored[:most], "") + "…"
	}
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

// The settings and the id of the database are the stamp of the data: see [redisnodes.Options]. They
// are compared when a connection is made, and once a second by [redisnodes.Nodes.Watch]. They
// change in two ways only.
//
//   - An operator stops all processes, runs `activityd reset`, and starts them with other settings.
//     They compare at their start, by [Index.Check].
//   - Redis loses the stamp, with the sets. The next probe deletes the sets made by then, and
//     stores the stamp of its process. If an operator started a process with different settings,
//     against the documentation, the first process to store its stamp is used, and the rest are
//     refused. Only sets made within that second remain, until the audit looks at them.

// databaseField stands before the id of the database in a stamp.
const databaseField = " database="

// stamp is the settings and the id of the database, as [redisnodes.Nodes] store and compare them.
func (o Options) stamp() string {
	if o.Database == nil {
		return o.Settings.String()
	}
	if id := o.Database(); id != "" {
		return o.Settings.String() + databaseField + id
	}
	return ""
}

// Check reports whether the index can be used now: nil, or an error that matches
// [ErrUnavailable], as [ErrNoDatabase] and [ErrHidden] do, or [ErrSettings]. Of a cluster all nodes must
// answer.
func (ix *Index) Check(ctx context.Context) (err error) {
	defer func(start time.Time) { ix.observe(opCheck, start, err) }(time.Now())
	return ix.Probe(ctx).Err()
}
