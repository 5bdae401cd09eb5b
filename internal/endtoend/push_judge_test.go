//go:build unix

package endtoend_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
)

// taken is a message that a push service accepted.
type taken struct {
	at       time.Time
	of       *run // that sent it; nil if that is not known
	device   *pushDevice
	event    string
	title    string
	collapse string
	count    int
}

func (m *taken) key() fateKey { return fateKey{m.event, m.device.id} }

// fateKey is an event for a device.
type fateKey struct {
	event  string
	device uint64
}

// burstKey identifies a burst: its events share both.
type burstKey struct{ kind, collapse string }

// fate is activityd's receipt of an event for a device.
type fate struct {
	state, reason string
	at            time.Time
}

// pushJudge compares the messages that the push services accepted with the events.
type pushJudge struct {
	*pushSite
	t        *testing.T
	ended    time.Time
	taken    map[fateKey][]taken
	bursts   map[fateKey][]taken // by collapse id
	fates    map[fateKey]fate
	targeted map[string]time.Time        // when the last receipt of an event was written: its recipients were found before
	ids      map[fateKey]map[uint64]fate // by the ids of the device: it gets a new id when it is removed and registered again
	collapse map[burstKey]string         // the collapse ids
	notified map[string]bool             // events that were put into the queue

	messages, accepted, counted, unseen, blocked, unwanted, away int

	exact                     int // messages whose title tells the state of the last look
	throughQuiet, heldByQuiet int // urgent messages in quiet hours, and the rest after them
	unknown                   int // messages of an unknown process
	faults                    int // that were found
}

// newPushJudge reads everything, when all is done.
func newPushJudge(t *testing.T, s *pushSite) *pushJudge {
	t.Helper()
	j := &pushJudge{
		pushSite: s, t: t, ended: time.Now(), taken: make(map[fateKey][]taken), bursts: make(map[fateKey][]taken),
		fates: make(map[fateKey]fate), targeted: make(map[string]time.Time), ids: make(map[fateKey]map[uint64]fate), notified: make(map[string]bool), collapse: make(map[burstKey]string),
	}
	for _, r := range s.apns.Accepted() {
		j.takeJSON(taken{at: r.Time, of: s.owners.at(r.Remote, r.Time), device: s.byKey[r.Token], collapse: r.Collapse}, r.Payload)
	}
	for _, a := range s.web.Accepted() {
		j.takeJSON(taken{at: a.At, of: s.owners.at(a.Remote, a.At), device: s.byKey[a.Subscription], collapse: a.Topic}, a.Payload)
	}
	for _, a := range s.fcm.Accepted() {
		count, err := strconv.Atoi(a.Data["count"])
		must(t, err)
		j.take(taken{a.At, s.owners.at(a.Remote, a.At), s.byKey[a.Token], a.Data["event"], a.Notification.Title, a.Android.CollapseKey, count})
	}
	j.read("SELECT id, 0, '', '', 0 FROM notified", func(id string, _ uint64, _ fate) { j.notified[id] = true })
	j.read("SELECT e.id, r.device_id, r.state, r.reason, r.at FROM push_receipts r JOIN push_events e ON e.number = r.event_number",
		func(id string, device uint64, f fate) {
			k := j.fateOf(id, device, f)
			if j.targeted[id].Before(f.at) {
				j.targeted[id] = f.at
			}
			if j.fates[k].state != "accepted" {
				j.fates[k] = f
			}
		})
	return j
}

// fateOf returns the key of a fate, and notes the id of the device.
func (j *pushJudge) fateOf(event string, device uint64, f fate) fateKey {
	k := fateKey{event, device}
	if d := j.byID[device]; d != nil {
		k.device = d.id
	}
	if j.ids[k] == nil {
		j.ids[k] = make(map[uint64]fate)
	}
	j.ids[k][device] = f
	return k
}

func (j *pushJudge) takeJSON(m taken, payload []byte) {
	j.t.Helper()
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
	m.event, m.title, m.count = shown.Event, shown.Title+shown.APS.Alert.Title, shown.Count
	j.take(m)
}

func (j *pushJudge) take(m taken) {
	j.t.Helper()
	j.messages++
	if m.of == nil {
		j.unknown++
	}
	k := m.key()
	j.taken[k] = append(j.taken[k], m)
	if e := j.sent[m.event]; e != nil && e.collapse != "" {
		b := burstKey{e.kind, e.collapse}
		if other, known := j.collapse[b]; known && other != m.collapse {
			j.wrongf("the burst %v has the collapse ids %q and %q", b, other, m.collapse)
		}
		j.collapse[b] = m.collapse
	}
	k.event = m.collapse
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

// gone are the reasons of receipts of devices whose app is not there any more.
var gone = []string{"Unregistered", "UNREGISTERED", "gone"}

func (j *pushJudge) checkReached(e *sentEvent, d *pushDevice) {
	j.t.Helper()
	k := fateKey{e.id, d.id}
	if len(j.taken[k]) > 0 {
		j.accepted++
		return
	}
	f, known := j.fates[k]
	last, isKnown := j.targeted[e.id]
	if last = last.Add(time.Second); !isKnown {
		last = j.ended
	}
	switch until := f.at.Add(time.Second); {
	case !known && (d.live.could(isFalse, e.began, last) || d.member.alive.could(isFalse, e.began, last)):
		j.away++
	case !known:
		j.wrongf("LOST: event %s (%s) did not reach device %d of member %s, and nothing says why: %s", e.id, e.way, d.id, d.member.id, j.traces(e))
	case f.state == "accepted" && f.reason == "doubled" && e.collapse != "" && j.isCounted(e, d):
		j.counted++
	case f.state == "failed" && slices.Contains(gone, f.reason) && d.live.could(isFalse, e.began, until):
		j.away++
	case f.state != "skipped":
		j.wrongf("LOST: event %s (%s) did not reach device %d of member %s: %s %q", e.id, e.way, d.id, d.member.id, f.state, f.reason)
	case f.reason == "not_visible" && e.photo && j.couldClass(e, d.member, false, e.began, until):
		j.unseen++
	case f.reason == "opted_out" && e.kind == restlessType && d.member.wants.could(isFalse, e.began, until),
		f.reason == "muted" && e.actor == mutedActor && d.member.muted.could(isTrue, e.began, until):
		j.unwanted++
	case f.reason == "blocked" && d.member.blocked[e.actor].could(isTrue, e.began, until):
		j.blocked++
	case f.reason == "no_device" && (d.live.could(isFalse, e.began, until) || d.member.alive.could(isFalse, e.began, until)):
		j.away++
	default:
		j.wrongf("LOST: event %s (%s) did not reach device %d of member %s: %s %q, which is not so", e.id, e.way, d.id, d.member.id, f.state, f.reason)
	}
}

// traces describes the remains of a lost event.
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

// oldestLook is how long before its acceptance a message was looked at, at most, unless its process was stopped in between.
const oldestLook = 3*time.Second + inService

// oldestLook returns when a message was looked at, at the earliest.
func (j *pushJudge) oldestLook(m taken) time.Time {
	from := m.at.Add(-oldestLook)
	for _, w := range j.wrong.all {
		if w.what == stopped && (m.of == nil || w.of == m.of) && !w.from.After(m.at) && !w.to.Before(from) {
			from = from.Add(w.from.Sub(w.to))
		}
	}
	return from
}

// checkAllowed: nothing reached a device that it was not for. A title that is the username of the actor tells
// the exact state of the last look.
func (j *pushJudge) checkAllowed() {
	j.t.Helper()
	for k, messages := range j.taken {
		if e := j.sent[k.event]; e != nil { // else it is a row without an id, unknown to the producer
			for _, m := range messages {
				j.checkLook(e, m)
				j.checkTimes(e, m.device.member, m)
			}
		}
	}
}

func (j *pushJudge) checkLook(e *sentEvent, m taken) {
	j.t.Helper()
	r := m.device.member
	state, told := j.photos[e.actor].stateIn(m.title)
	if !told {
		return
	}
	j.exact++
	if e.photo && !r.sees(e.actor, state.class) {
		j.wrongf("event %s came to member %s, when the photo was visible to %q", e.id, r.id, state.class)
	}
	if state.blocked[r.id] {
		j.wrongf("event %s came to member %s, when one of the two blocked the other", e.id, r.id)
	}
	if state.deleted[r.id] {
		j.wrongf("event %s came to %s, who was no member", e.id, r.id)
	}
}

// checkTimes checks the settings whose changes have known times.
func (j *pushJudge) checkTimes(e *sentEvent, r *recipient, m taken) {
	j.t.Helper()
	from := j.oldestLook(m)
	if !slices.Contains(e.audience(j.pushSite), r) {
		j.wrongf("event %s came to member %s, who is no recipient", e.id, r.id)
	}
	if e.photo && !j.couldClass(e, r, true, from, m.at) {
		j.wrongf("event %s came to member %s, who could not see the photo for %v", e.id, r.id, m.at.Sub(from))
	}
	for what, could := range map[string]bool{
		"had opted out":         e.kind != restlessType || r.wants.could(isTrue, from, m.at),
		"had muted the actor":   e.actor != mutedActor || r.muted.could(isFalse, from, m.at),
		"and the actor blocked": r.blocked[e.actor].could(isFalse, from, m.at),
		"was no member":         r.alive.could(isTrue, from, m.at),
		"had no such device":    m.device.live.could(isTrue, from, m.at),
	} {
		if !could {
			j.wrongf("event %s came to member %s, who %s for %v", e.id, r.id, what, m.at.Sub(from))
		}
	}
	switch asleep := !r.quiet.could(isFalse, from, m.at); {
	case asleep && e.urgent:
		j.throughQuiet++
	case asleep:
		j.wrongf("EARLY: event %s came to member %s in its quiet hours", e.id, r.id)
	case !e.urgent && !r.quiet.could(isFalse, e.began, e.began):
		j.heldByQuiet++
	}
}

// checkDevices: a device that was registered last, and not uninstalled since, is there.
func (j *pushJudge) checkDevices() {
	j.t.Helper()
	there := make(map[uint64]bool)
	j.read("SELECT '', id, '', '', 0 FROM push_devices WHERE gone_at IS NULL", func(_ string, device uint64, _ fate) { there[device] = true })
	for _, r := range j.recipients {
		for _, d := range r.devices {
			if d.live.latest() && !there[d.latest] {
				j.wrongf("device %d of member %s, which was registered last, is gone", d.id, r.id)
			}
		}
	}
}

// double is a message that was accepted again.
type double struct{ first, again taken }

// checkDoubles: a message about an event comes to a device twice only for a reason of docs/push.md. Its
// process was killed before it had recorded the answer, or stopped past its lease, or no answer came; or the
// other process was stopped between its look and the message. Both messages have one collapse id.
// checkDoubles counts the doubles by reason.
func (j *pushJudge) checkDoubles() map[string]int {
	j.t.Helper()
	why := make(map[string]int)
	for k, messages := range j.taken {
		slices.SortFunc(messages, func(a, b taken) int { return a.at.Compare(b.at) })
		for i, m := range messages[1:] {
			d := double{messages[i], m}
			if m.collapse != d.first.collapse || m.collapse == "" {
				j.wrongf("event %s came twice to device %d, as %q and %q", k.event, k.device, d.first.collapse, m.collapse)
			}
			switch w := j.reason(d); {
			case m.device.live.could(isFalse, d.first.at, m.at): // a new device, registered since
				why["registered again"]++
			case w != nil:
				why[w.what]++
			default:
				j.wrongf("event %s came to device %d of member %s at %v by %v and, for no reason, at %v by %v: %q; near are %v",
					k.event, k.device, m.device.member.id, d.first.at, d.first.of.name(), m.at, m.of.name(), j.rowsAbout(k.event), j.near(d))
			}
		}
	}
	return why
}

// near lists the faults around the time of a double.
func (j *pushJudge) near(d double) (list []string) {
	for _, w := range j.wrong.all {
		if w.key == "" && !w.to.Before(d.first.at.Add(-underWay)) && !w.from.After(d.again.at) {
			list = append(list, fmt.Sprintf("%s of %s from %v to %v", w.what, w.of.name(), w.from.Sub(d.first.at), w.to.Sub(d.first.at)))
		}
	}
	return list
}

const (
	// inService is how long a push service may take to accept a message that it was sent.
	inService = 2 * time.Second
	// underWay is how long before an acceptance a lease may have been lost: a look is 3 s old at most, a service takes 2 s, and
	// the leases are looked at each 1.25 s.
	underWay = 6500 * time.Millisecond
	// unrecorded is how long after its acceptance a message has no receipt: as long as the service delays its answer, and as
	// docs/push.md says.
	unrecorded = 40*time.Millisecond + 100*time.Millisecond
)

// reason returns the fault that explains a double; nil: no fault does.
func (j *pushJudge) reason(d double) *window {
	recorded := d.again.at
	if f := j.fates[d.first.key()]; f.state == "accepted" && f.at.Before(recorded) {
		recorded = f.at.Add(time.Millisecond) // receipts have whole milliseconds
	}
	for i := range j.wrong.all {
		w := &j.wrong.all[i]
		began := !w.to.Before(d.first.at.Add(-underWay)) // the lease may have been lost by then
		switch {
		case w.what == processKilled:
			isSoon := !w.from.After(d.first.at.Add(unrecorded)) || j.isDatabaseAway(d.first.at, w.from)
			if w.of == d.first.of && isSoon && !w.to.Before(d.first.at.Add(-inService)) && !w.from.After(recorded) {
				return w
			}
		case w.isOfDatabase():
			if w.to.Sub(w.from) > leaseOfPush && began && !w.from.After(recorded) {
				return w
			}
		case w.of == nil:
			if !w.to.Before(d.first.at) && !w.from.After(recorded) && w.concerns(d.first) {
				return w
			}
		case w.of == d.first.of && began && !w.from.After(recorded), w.of == d.again.of && began && !w.from.After(d.again.at):
			return w
		}
	}
	return nil
}

func (w *window) isOfDatabase() bool { return w.of == nil && w.key == "" && w.platform == "" }

// isDatabaseAway reports whether something was wrong with the database at some time.
func (j *pushJudge) isDatabaseAway(from, to time.Time) bool {
	return slices.ContainsFunc(j.wrong.all, func(w window) bool { return w.isOfDatabase() && !w.to.Before(from) && !w.from.After(to) })
}

// rowsAbout returns all that the database has about an event.
func (j *pushJudge) rowsAbout(event string) []string {
	list, err := mysql.Select(j.t.Context(), j.db, mysql.Column[string], `
SELECT CONCAT_WS(' ', 'event', number, 'of task', task_id, 'created', created_at, event) FROM push_events WHERE id = ? UNION ALL
SELECT CONCAT_WS(' ', 'receipt of', r.event_number, 'member', r.member_id, 'device', r.device_id, r.state, r.reason, r.at, HEX(r.burst))
	FROM push_receipts r JOIN push_events e ON e.number = r.event_number WHERE e.id = ?`, event, event)
	must(j.t, err)
	return list
}

// concerns reports whether something was wrong with the message, if it was under way then.
func (w *window) concerns(m taken) bool {
	return (w.platform == "" || w.platform == m.device.of) && (w.key == "" || w.key == m.device.key)
}

// checkNothingStuck: no task is left, and no entry of the stream.
func (j *pushJudge) checkNothingStuck() {
	j.t.Helper()
	for _, one := range []struct{ what, query string }{
		{"tasks are left", "SELECT " + leftTasks},
		{"receipts are pending, without a task", "SELECT COUNT(*) FROM push_receipts WHERE state = 'pending'"},
		{"receipts say failed", "SELECT COUNT(*) FROM push_receipts WHERE state = 'failed' AND reason NOT IN ('" + strings.Join(gone, "', '") + "')"},
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
	expected := j.accepted + j.counted + j.unseen + j.blocked + j.unwanted + j.away
	return fmt.Sprintf("events in the queue: %v, lost before: %v; messages accepted: %d, %d of them by unknown processes; expected at a device: %d, of these %d accepted,"+
		" %d counted in a burst, %d invisible, %d blocked, %d unwanted, %d without the device; %d messages tell what the last look saw;"+
		" %d urgent ones in quiet hours, %d others after them; faults found: %d", ways, lost, j.messages, j.unknown,
		expected, j.accepted, j.counted, j.unseen, j.blocked, j.unwanted, j.away, j.exact, j.throughQuiet, j.heldByQuiet, j.faults)
}
