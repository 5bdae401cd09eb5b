package push

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
)

var _ Looker = (*MySQL)(nil)

// lookedEvent is an event of the argument of lookText, and its candidates.
type lookedEvent struct {
	Number uint64  `json:"n"`
	Actor  uint64  `json:"a"`
	Photo  *uint64 `json:"p,omitempty"`
	Burst  BurstID `json:"b,omitzero"`
	Object string  `json:"o"`
	User   string  `json:"u"` // the actor, as an object
	// Each is its place among all, a member, and a device.
	Candidates [][3]uint64 `json:"m"`
}

// lookText reads a row of each table that is about the event, by its key; for a candidate without a device, an entry of
// the index of devices; and for each device of a candidate a row of each further table, by its key.
//
// Objects are compared in the character set of the column, as the index is not used
// otherwise. The hint keeps MySQL from scanning tables that are small today, or were when it
// last counted their rows; MariaDB does not need it.
var lookText = `
SELECT /*+ NO_BNL() */ c.i, ` + deviceColumns + `,
  s.types, COALESCE(s.quiet_from, 0), COALESCE(s.quiet_to, 0), COALESCE(s.time_zone, ''),
  GREATEST(COALESCE(mo.until_at, 0), COALESCE(mu.until_at, 0)),
  ` + contacts.Found("bv.user_id") + ` OR ` + contacts.Found("ba.user_id") + `,
  q.p IS NULL OR ` + contacts.Sight + `,
  COALESCE(r.state = 'accepted', FALSE), COALESCE(r.state = 'failed', FALSE),
  COALESCE(r.state = 'pending', FALSE), IF(q.b IS NULL, NULL, (` + lastOfBurst + `)), ` + contacts.IfFound("a.id", "a.username", "''") + `, NOT ` + contacts.Found("a.id") + `, ` + mysql.Now + `
FROM JSON_TABLE(?, '$[*]' COLUMNS (
  n BIGINT UNSIGNED PATH '$.n', a BIGINT UNSIGNED PATH '$.a',
  p BIGINT UNSIGNED PATH '$.p', b CHAR(32) PATH '$.b', o VARCHAR(100) PATH '$.o', u VARCHAR(100) PATH '$.u',
  m JSON PATH '$.m')) AS q
LEFT JOIN users a ON a.id = q.a` + contacts.PhotoJoins("q.p") + `
STRAIGHT_JOIN JSON_TABLE(q.m, '$[*]' COLUMNS (i INT UNSIGNED PATH '$[0]', m BIGINT UNSIGNED PATH '$[1]', d BIGINT UNSIGNED PATH '$[2]')) AS c
STRAIGHT_JOIN push_devices d FORCE INDEX (members) ON d.member_id = c.m AND d.gone_at IS NULL AND (c.d = 0 OR c.d = d.id)
STRAIGHT_JOIN users v ON v.id = d.member_id
LEFT JOIN push_settings s ON s.member_id = v.id
LEFT JOIN push_mutes mo ON mo.member_id = v.id AND mo.object = CONVERT(q.o USING ascii) COLLATE ascii_bin
LEFT JOIN push_mutes mu ON mu.member_id = v.id AND mu.object = CONVERT(q.u USING ascii) COLLATE ascii_bin
LEFT JOIN blocks bv ON bv.user_id = v.id AND bv.blocked_id = q.a
LEFT JOIN blocks ba ON ba.user_id = q.a AND ba.blocked_id = v.id
LEFT JOIN push_receipts r ON r.event_number = q.n AND r.member_id = v.id AND r.device_id = d.id` + contacts.ViewerJoins

// lastOfBurst selects when an event of the burst was last accepted for a device. All columns are named, and the state is an
// ASCII literal, so that a single entry of the index is read and nothing is sorted: as in newestFirst of package contacts.
const lastOfBurst = "SELECT l.at FROM push_receipts l FORCE INDEX (bursts) WHERE l.state = _ascii'accepted' AND l.burst = UNHEX(q.b) AND l.device_id = d.id" +
	" ORDER BY l.burst DESC, l.device_id DESC, l.state DESC, l.at DESC LIMIT 1"

// Look implements [Looker].
func (m *MySQL) Look(ctx context.Context, candidates []Candidate) ([]Facts, error) {
	if len(candidates) == 0 {
		return nil, nil
	}
	question, err := questionOf(candidates)
	if err != nil {
		return nil, err
	}
	rows, err := mysql.Select(ctx, m.prepared, scanFacts, lookText, question)
	slices.SortFunc(rows, byCandidate)
	rows = slices.CompactFunc(rows, func(a, b Facts) bool { return byCandidate(a, b) == 0 }) // a site's blocks may be there twice
	return rows, mysql.Translate(ctx, fmt.Sprintf("look at %d members to be notified", len(candidates)), err)
}

func byCandidate(a, b Facts) int {
	return cmp.Or(cmp.Compare(a.Candidate, b.Candidate), cmp.Compare(a.Device.ID, b.Device.ID))
}

// looked returns the event as lookText takes it, with its candidates.
func (e *StoredEvent) looked(candidates [][3]uint64) lookedEvent {
	l := lookedEvent{
		Number: e.Number, Actor: uint64(e.Actor), Burst: e.Burst(), Object: e.Object, User: "user:" + e.Actor.String(), Candidates: candidates,
	}
	if id, is := e.Photo(); is {
		l.Photo = &id
	}
	return l
}

// questionOf returns the argument of lookText.
func questionOf(candidates []Candidate) (string, error) {
	var events []*StoredEvent
	of := make(map[uint64][][3]uint64)
	for i, c := range candidates {
		if of[c.Event.Number] == nil {
			events = append(events, c.Event)
		}
		of[c.Event.Number] = append(of[c.Event.Number], [3]uint64{uint64(i), uint64(c.Member), c.Device})
	}
	list := make([]lookedEvent, len(events))
	for i, e := range events {
		list[i] = e.looked(of[e.Number])
	}
	text, err := json.Marshal(list)
	return string(text), err // a string: the driver marks bytes as binary, and MySQL takes no binary for JSON
}

func scanFacts(rows *sql.Rows) (f Facts, err error) {
	var types []byte
	dest := append([]any{&f.Candidate}, f.Device.dest()...)
	dest = append(dest, &types, &f.Settings.Quiet.From, &f.Settings.Quiet.To, &f.Settings.Quiet.Zone,
		(*instant)(&f.Muted), &f.Blocked, &f.Visible, &f.Accepted, &f.Failed, &f.Pending,
		(*instant)(&f.Burst), &f.Actor, &f.Departed, (*instant)(&f.Now))
	if err := rows.Scan(dest...); err != nil {
		return f, err
	}
	f.Settings.Types, err = parseTypes(types)
	if err != nil {
		err = fmt.Errorf("the push settings of member %s: %w", strconv.FormatUint(uint64(f.Device.Member), 10), err)
	}
	return f, err
}

// parseTypes reads the column types of push_settings.
func parseTypes(text []byte) (types map[string]bool, err error) {
	if len(text) > len("{}") {
		err = json.Unmarshal(text, &types)
	}
	return types, err
}
