//go:build unix

package endtoend_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
)

// taken is a message that a push service accepted.
type taken struct {
	at       time.Time
	device   *pushDevice
	event    string
	title    string
	collapse string
	count    int
}

// fateKey is an event for a device.
type fateKey struct {
	event  string
	device uint64
}

// burstKey is what makes events a burst.
type burstKey struct{ kind, collapse string }

// fate is what activityd says became of an event for a device.
type fate struct {
	state, reason string
	at            time.Time
}

// pushJudge compares what the push services accepted with what was to be.
type pushJudge struct {
	*pushSite
	t        *testing.T
	ended    time.Time
	taken    map[fateKey][]taken
	bursts   map[fateKey][]taken // by collapse id
	fates    map[fateKey]fate
	collapse map[burstKey]string // the collapse ids
	notified map[string]bool     // events that were put into the queue

	messages, accepted, counted, unseen, unwanted, away int
	faults                                              int // that were found
}

// newPushJudge reads everything, when all is done.
func newPushJudge(t *testing.T, s *pushSite) *pushJudge {
	t.Helper()
	j := &pushJudge{
		pushSite: s, t: t, ended: time.Now(), taken: make(map[fateKey][]taken), bursts: make(map[fateKey][]taken),
		fates: make(map[fateKey]fate), notified: make(map[string]bool), collapse: make(map[burstKey]string),
	}
	for _, r := range s.apns.Accepted() {
		j.take(r.Time, r.Token, r.Collapse, r.Payload)
	}
	for _, a := range s.web.Accepted() {
		j.take(a.At, a.Subscription, a.Topic, a.Payload)
	}
	j.read("SELECT id, 0, '', '', 0 FROM notified", func(id string, _ uint64, _ fate) { j.notified[id] = true })
	j.read("SELECT e.id, r.device_id, r.state, r.reason, r.at FROM push_receipts r JOIN push_events e ON e.number = r.event_number",
		func(id string, device uint64, f fate) {
			if d := j.byID[device]; d != nil {
				device = d.id
			}
			if k := (fateKey{id, device}); j.fates[k].state != "accepted" {
				j.fates[k] = f
			}
		})
	return j
}

func (j *pushJudge) take(at time.Time, key, collapse string, payload []byte) {
	var shown struct {
		Title string `json:"title"`
		APS   struct {
			Alert struct {
				Title string `json:"title"`
			} `json:"alert"`
		} `json:"aps"`
		Event string `json:"event"`
		Count int    `json:"count"`
	}
	must(j.t, json.Unmarshal(payload, &shown))
	m := taken{at, j.byKey[key], shown.Event, shown.Title + shown.APS.Alert.Title, collapse, shown.Count}
	j.messages++
	k := fateKey{m.event, m.device.id}
	j.taken[k] = append(j.taken[k], m)
	if e := j.sent[m.event]; e != nil && e.collapse != "" {
		j.collapse[burstKey{e.kind, e.collapse}] = collapse
	}
	k.event = collapse
	j.bursts[k] = append(j.bursts[k], m)
}

func (j *pushJudge) read(query string, row func(event string, device uint64, f fate)) {
	j.t.Helper()
	_, err := mysql.Select(j.t.Context(), j.db, func(rows *sql.Rows) (_ struct{}, err error) {
		var event string
		var device uint64
		var f fate
		var at int64
		err = rows.Scan(&event, &device, &f.state, &f.reason, &at)
		f.at = time.UnixMilli(at)
		row(event, device, f)
		return struct{}{}, err
	}, query)
	must(j.t, err)
}

// wrongf fails the test. It says so of the first few only.
func (j *pushJudge) wrongf(format string, args ...any) {
	j.t.Helper()
	const most = 20
	j.faults++
	if j.faults <= most {
		j.t.Errorf(format, args...)
	}
}

// checkComplete: each acknowledged event reached each device that it is for, or activityd
// says why not, and that is so.
func (j *pushJudge) checkComplete() {
	j.t.Helper()
	for _, id := range slices.Sorted(maps.Keys(j.sent)) {
		e := j.sent[id]
		if !j.notified[id] {
			if e.way != byStream && !e.acked.IsZero() {
				j.wrongf("event %s was acknowledged (%s), and is not in the queue", id, e.way)
			}
			continue
		}
		for _, r := range e.audience(j.pushSite) {
			for _, d := range r.devices {
				j.checkReached(e, d)
			}
		}
	}
}

func (j *pushJudge) checkReached(e *sentEvent, d *pushDevice) {
	j.t.Helper()
	k := fateKey{e.id, d.id}
	if len(j.taken[k]) > 0 {
		j.accepted++
		return
	}
	f, known := j.fates[k]
	switch until := f.at.Add(time.Second); {
	case !known && d.live.could(isFalse, e.began, j.ended):
		j.away++
	case !known:
		j.wrongf("LOST: event %s (%s) did not reach device %d of member %s, and nothing says why: %s", e.id, e.way, d.id, d.member.id, j.traces(e))
	case f.state == "accepted" && f.reason == "doubled" && e.collapse != "" && j.isCounted(e, d):
		j.counted++
	case f.state != "skipped":
		j.wrongf("LOST: event %s (%s) did not reach device %d of member %s: %s %q", e.id, e.way, d.id, d.member.id, f.state, f.reason)
	case f.reason == "not_visible" && e.photo && j.couldClass(e, d.member, false, e.began, until):
		j.unseen++
	case f.reason == "opted_out" && e.kind == restlessType && d.member.wants.could(isFalse, e.began, until),
		f.reason == "muted" && e.actor == mutedActor && d.member.muted.could(isTrue, e.began, until):
		j.unwanted++
	case f.reason == "no_device" && d.live.could(isFalse, e.began, until):
		j.away++
	default:
		j.wrongf("LOST: event %s (%s) did not reach device %d of member %s: %s %q, which is not so", e.id, e.way, d.id, d.member.id, f.state, f.reason)
	}
}

// traces tells what is left of an event that is lost.
func (j *pushJudge) traces(e *sentEvent) (text string) {
	j.t.Helper()
	must(j.t, j.db.QueryRowContext(j.t.Context(), "SELECT CONCAT('enqueued as ', (SELECT GROUP_CONCAT(task_id) FROM notified WHERE id = ?),"+
		" '; stored as ', COALESCE((SELECT CONCAT(number, ' by task ', task_id, ' at ', created_at) FROM push_events WHERE id = ?), 'none'), '; receipts: ',"+
		" COALESCE((SELECT GROUP_CONCAT(r.member_id, '/', r.device_id, ' ', r.state, ' ', r.reason) FROM push_receipts r"+
		" JOIN push_events e ON e.number = r.event_number WHERE e.id = ?), 'none'))", e.id, e.id, e.id).Scan(&text))
	return fmt.Sprintf("%s; began %d, recipients %v, collapse %q", text, e.began.UnixMilli(), e.recipients, e.collapse)
}

// isCounted: a message of the event's burst came to the device after the event.
func (j *pushJudge) isCounted(e *sentEvent, d *pushDevice) bool {
	k := fateKey{j.collapse[burstKey{e.kind, e.collapse}], d.id}
	return slices.ContainsFunc(j.bursts[k], func(m taken) bool { return m.at.After(e.began) })
}

// couldClass reports whether the member may have seen the photo of an event, or not, at an
// instant of a time.
func (j *pushJudge) couldClass(e *sentEvent, r *recipient, sees bool, from, to time.Time) bool {
	return j.photos[e.actor].class.could(func(class contacts.Visibility) bool { return r.sees(e.actor, class) == sees }, from, to)
}

// oldestLook is how long before its acceptance a message was looked at, at most: the sender has
// 10 s, and a process that was stopped in between some more.
const oldestLook = 10*time.Second + leaseOfPush + 5*time.Second

// checkAllowed: nothing reached a device that it was not for. Of a message whose title is the
// username of the actor, the title says which visibility the last look saw.
func (j *pushJudge) checkAllowed() (exact int) {
	j.t.Helper()
	for k, messages := range j.taken {
		e := j.sent[k.event]
		if e == nil {
			continue // a row without an id, of which the producer does not know
		}
		for _, m := range messages {
			r, from := m.device.member, m.at.Add(-oldestLook)
			if !slices.Contains(e.audience(j.pushSite), r) {
				j.wrongf("event %s came to member %s, who is no recipient", e.id, r.id)
			}
			if class := classIn(m.title); e.photo && class != "" {
				exact++
				if !r.sees(e.actor, class) {
					j.wrongf("event %s came to member %s, when the photo was visible to %q", e.id, r.id, class)
				}
			}
			if e.photo && !j.couldClass(e, r, true, from, m.at) {
				j.wrongf("event %s came to member %s, who could not see the photo for %v", e.id, r.id, oldestLook)
			}
			if e.kind == restlessType && !r.wants.could(isTrue, from, m.at) {
				j.wrongf("event %s came to member %s, who had opted out for %v", e.id, r.id, oldestLook)
			}
			if e.actor == mutedActor && !r.muted.could(isFalse, from, m.at) {
				j.wrongf("event %s came to member %s, who had muted the actor for %v", e.id, r.id, oldestLook)
			}
			if !m.device.live.could(isTrue, from, m.at) {
				j.wrongf("event %s came to a device of member %s that was gone for %v", e.id, r.id, oldestLook)
			}
		}
	}
	return exact
}

// double is a message that was accepted again.
type double struct{ first, again taken }

// checkDoubles: doubles have one collapse id. It returns them. A notification of a burst that
// counts more, as an older event was late, is none.
func (j *pushJudge) checkDoubles() (all []double) {
	j.t.Helper()
	for k, messages := range j.taken {
		slices.SortFunc(messages, func(a, b taken) int { return a.at.Compare(b.at) })
		for i, m := range messages[1:] {
			if m.count <= messages[i].count {
				all = append(all, double{messages[i], m})
			}
			if m.collapse != messages[0].collapse || m.collapse == "" {
				j.wrongf("event %s came twice to device %d, as %q and %q", k.event, k.device, messages[0].collapse, m.collapse)
			}
		}
	}
	return all
}

// inFlightAt returns how many messages were accepted, and not known to be, within a time.
func (j *pushJudge) inFlightAt(w window) (n int) {
	for k, messages := range j.taken {
		f := j.fates[k]
		if !messages[0].at.After(w.to) && (f.state != "accepted" || f.at.After(w.from)) && messages[0].at.After(w.from.Add(-time.Minute)) {
			n++
		}
	}
	return n
}

// checkNothingStuck: no task is left, and no entry of the stream.
func (j *pushJudge) checkNothingStuck() {
	j.t.Helper()
	for _, one := range []struct{ what, query string }{
		{"tasks are left", "SELECT " + leftTasks},
		{"receipts say failed", "SELECT COUNT(*) FROM push_receipts WHERE state = 'failed'"},
	} {
		var n int
		must(j.t, j.db.QueryRowContext(j.t.Context(), one.query).Scan(&n))
		if n > 0 {
			j.wrongf("%d %s", n, one.what)
		}
	}
}

// String sums up, for people.
func (j *pushJudge) String() string {
	ways, lost := map[string]int{}, map[string]int{}
	for id, e := range j.sent {
		if j.notified[id] {
			ways[e.way]++
		} else {
			lost[e.way]++
		}
	}
	return fmt.Sprintf("events in the queue: %v, lost before: %v; messages accepted: %d; of what was to reach a device: %d accepted,"+
		" %d counted in a burst, %d invisible, %d unwanted, %d without the device", ways, lost, j.messages, j.accepted, j.counted, j.unseen, j.unwanted, j.away)
}
