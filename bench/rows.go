package main

import (
	"context"
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
)

// lines are a reader's own connections over wires that count. There is only one to
// MySQL, so that its session counters tell what a read cost.
type lines struct {
	*suite
	mysqlWire, redisWire *wire
	own                  *suite // the same suite over the wires
}

// newLines makes connections that are closed with the backend.
func (s *suite) newLines(ctx context.Context) (l *lines, err error) {
	l = &lines{suite: s}
	if l.mysqlWire, err = s.newWire(ctx, s.mysql.Addr()); err != nil {
		return nil, err
	}
	if l.redisWire, err = s.newWire(ctx, s.redis.Addr()); err != nil {
		return nil, err
	}
	db, err := s.openDBAt(l.mysqlWire.addr(), mysql.WithMaxOpen(1))
	if err != nil {
		return nil, err
	}
	client, err := s.openRedisAt("unix://" + l.redisWire.addr())
	if err != nil {
		return nil, err
	}
	ix, err := newIndex(client)
	if err != nil {
		return nil, err
	}
	own := *s.backend
	own.db, own.client, own.index, own.closers = db, client, ix, nil
	l.own = &suite{backend: &own, options: s.options, results: s.results, out: s.out, store: contacts.NewMySQL(db)}
	return l, nil
}

func (b *backend) newWire(ctx context.Context, server string) (*wire, error) {
	w, err := newWire(ctx, server)
	if err == nil {
		b.closers = append(b.closers, w)
	}
	return w, err
}

// readCost is what one read cost on the wires.
type readCost struct {
	RedisTrips, MySQLTrips int64
	Bytes                  int64
	Rows                   float64
	Proof                  recent.Proof
	Shown                  int
}

// costOf returns what a read costs. Once a second a connection asks before it is used whether
// its server is the primary: of a few reads, the one with the fewest trips did not.
func (l *lines) costOf(ctx context.Context, viewer member.ID) (t readCost, err error) {
	const tries = 3
	t, err = l.costOfOne(ctx, viewer)
	for try := 1; try < tries && err == nil && t.MySQLTrips > 1; try++ {
		var again readCost
		if again, err = l.costOfOne(ctx, viewer); again.MySQLTrips < t.MySQLTrips {
			t = again
		}
	}
	return t, err
}

// costOfOne reads once to warm up, and once to count.
func (l *lines) costOfOne(ctx context.Context, viewer member.ID) (t readCost, err error) {
	reader := l.own.reader()
	if _, err := reader.Read(ctx, contacts.Viewer{ID: viewer}, shown); err != nil {
		return t, err
	}
	nothing, err := l.rowsOf(ctx, func() error { return nil })
	if err != nil {
		return t, err
	}
	t.Rows, err = l.rowsOf(ctx, func() error {
		before := readCost{RedisTrips: l.redisWire.trips.Load(), MySQLTrips: l.mysqlWire.trips.Load(), Bytes: l.redisWire.bytes.Load() + l.mysqlWire.bytes.Load()}
		a, err := reader.Read(ctx, contacts.Viewer{ID: viewer}, shown)
		t.RedisTrips, t.MySQLTrips = l.redisWire.trips.Load()-before.RedisTrips, l.mysqlWire.trips.Load()-before.MySQLTrips
		t.Bytes = l.redisWire.bytes.Load() + l.mysqlWire.bytes.Load() - before.Bytes
		t.Proof, t.Shown = a.Trace.Proof, len(a.Photos)
		return err
	})
	t.Rows -= nothing
	return t, err
}

// rowsOf returns how many rows and index entries were read while do ran.
func (l *lines) rowsOf(ctx context.Context, do func() error) (float64, error) {
	before, err := statusOf(ctx, l.own.db, "SESSION")
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := statusOf(ctx, l.own.db, "SESSION")
	return rowsIn(after) - rowsIn(before), err
}

// benchRows counts what reads cost. Nothing here depends on time.
func (s *suite) benchRows(ctx context.Context) error {
	site := s.options.site
	if err := s.fill(ctx, append(site.viewers(), hiddenViewer, openViewer, closeViewer)); err != nil {
		return err
	}
	l, err := s.newLines(ctx)
	if err != nil {
		return err
	}
	for i, n := range site.Contacts {
		if err := l.countRead(ctx, fmt.Sprintf("%d contacts", n), site.viewer(i)); err != nil {
			return err
		}
	}
	if err := l.countRead(ctx, fmt.Sprintf("the owner's newest %d photos are private", site.Private), hiddenViewer); err != nil {
		return err
	}
	if err := l.countRead(ctx, "the viewer is friend and family of the owner", closeViewer); err != nil {
		return err
	}
	return l.countOrdinary(ctx)
}

// The aims of a read.
const (
	maxTrips = 2
	// maxRows bounds the rows and index entries that are read for each photo that may be
	// returned: one in each of the four classes, as many again out of the temporary
	// table that joins them, one to sort them, and less than one for the relationship.
	maxRows = 10
)

func (l *lines) countRead(ctx context.Context, name string, viewer member.ID) error {
	const part = "What a read costs on the wire"
	t, err := l.costOf(ctx, viewer)
	if err != nil {
		return err
	}
	trips, each := spreadOf(float64(t.RedisTrips+t.MySQLTrips)), spreadOf(t.Rows/float64(max(1, t.Shown)))
	l.results.add(figure{Part: part, Exact: true, Name: name + ": round trips", Value: trips, Aim: atMost(maxTrips)})
	l.results.add(figure{Part: part, Exact: true, Name: name + ": rows read by MySQL", Value: spreadOf(t.Rows), Against: fmt.Sprintf("%d rows returned", t.Shown), Ratio: each, Aim: atMost(maxRows)})
	l.results.add(figure{Part: part, Exact: true, Name: name + ": bytes", Value: spreadOf(float64(t.Bytes))})
	return nil
}

// countOrdinary counts reads of ordinary members, by what proved them.
func (l *lines) countOrdinary(ctx context.Context) error {
	const part = "What reads of ordinary members cost on the wire, by what proved them"
	users := l.options.site.refilled()
	if err := l.fill(ctx, users); err != nil {
		return err
	}
	trips, rows := make(map[recent.Proof][]float64), make(map[recent.Proof][]float64)
	for i := range min(len(users), 200) {
		t, err := l.costOf(ctx, users[i*7919%len(users)])
		if err != nil {
			return err
		}
		trips[t.Proof] = append(trips[t.Proof], float64(t.RedisTrips+t.MySQLTrips))
		rows[t.Proof] = append(rows[t.Proof], t.Rows)
	}
	for _, p := range []struct {
		proof recent.Proof
		name  string
	}{{recent.ByNext, "the first candidate"}, {recent.ByLowest, "all candidates"}, {recent.ByAll, "all candidates, which are all contacts"}, {recent.ByWalk, "the walk"}} {
		if n := len(trips[p.proof]); n > 0 {
			l.results.add(figure{Part: part, Exact: true, Name: fmt.Sprintf("%s (%d reads): round trips", p.name, n), Value: spreadOf(trips[p.proof]...)})
			l.results.add(figure{Part: part, Exact: true, Name: p.name + ": rows read by MySQL", Value: spreadOf(rows[p.proof]...)})
		}
	}
	return nil
}
