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
	device   *pushDevice
	event    string
	title    string
	collapse string
}

// fateKey is an event, or the collapse id of a burst, for a device.
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
	taken    map[fateKey][]taken
	bursts   map[fateKey][]taken // by collapse id
	fates    map[fateKey]fate
	targeted map[string]time.Time // when the last receipt of an event was written: its recipients were found before
	collapse map[burstKey]string  // the collapse ids
	notified map[string]bool      // events that were put into the queue
	count    map[string]int       // of outcomes, for people
}

// newPushJudge reads everything, when all is done.
func newPushJudge(t *testing.T, s *pushSite) *pushJudge {
	t.Helper()
	j := &pushJudge{
		pushSite: s, t: t, taken: make(map[fateKey][]taken), bursts: make(map[fateKey][]taken), fates: make(map[fateKey]fate),
		targeted: make(map[string]time.Time), notified: make(map[string]bool), collapse: make(map[burstKey]string), count: make(map[string]int),
	}
	for _, r := range s.apns.Accepted() {
		j.takeJSON(taken{at: r.Time, device: s.byKey[r.Token], collapse: r.Collapse}, r.Payload)
	}
	for _, a := range s.web.Accepted() {
		j.takeJSON(taken{at: a.At, device: s.byKey[a.Subscription], collapse: a.Topic}, a.Payload)
	}
	for _, a := range s.fcm.Accepted() {
		j.take(taken{a.At, s.byKey[a.Token], a.Data["event"], a.Notification.Title, a.Android.CollapseKey})
	}
	j.read("SELECT id, 0, '', '', 0 FROM notified", func(k fateKey, _ fate) { j.notified[k.event] = true })
	j.read("SELECT e.id, r.device_id, r.state, r.reason, r.at FROM push_receipts r JOIN push_events e ON e.number = r.event_number", func(k fateKey, f fate) {
		if d := s.byID[k.device]; d != nil { // a device gets a new id when it is removed and registered again
			k.device = d.id
		}
		if j.targeted[k.event].Before(f.at) {
			j.targeted[k.event] = f.at
		}
		if j.fates[k].state != "accepted" {
			j.fates[k] = f
		}
	})
	return j
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
	}
	must(j.t, json.Unmarshal(payload, &shown))
	m.event, m.title = shown.Event, shown.Title+shown.APS.Alert.Title
	j.take(m)
}

func (j *pushJudge) take(m taken) {
	j.t.Helper()
	k := fateKey{m.event, m.device.id}
	j.taken[k] = append(j.taken[k], m)
	if e := j.sent[m.event]; e == nil {
		j.wrongf("event %s was never sent", m.event)
	} else if e.collapse != "" {
		b := burstKey{e.kind, e.collapse}
		if other, known := j.collapse[b]; known && other != m.collapse {
			j.wrongf("the burst %v has the collapse ids %q and %q", b, other, m.collapse)
		}
		j.collapse[b] = m.collapse
	}
	k.event = m.collapse
	j.bursts[k] = append(j.bursts[k], m)
}

func (j *pushJudge) read(query string, row func(k fateKey, f fate)) {
	j.t.Helper()
	_, err := mysql.Select(j.t.Context(), j.db, func(rows *sql.Rows) (_ struct{}, err error) {
		var k fateKey
		var f fate
		var at int64
		err = rows.Scan(&k.event, &k.device, &f.state, &f.reason, &at)
		f.at = time.UnixMilli(at)
		row(k, f)
		return struct{}{}, err
	}, query)
	must(j.t, err)
}

// wrongf fails the test. It says so of the first few only.
func (j *pushJudge) wrongf(format string, args ...any) {
	j.t.Helper()
	const most = 20
	if j.count["faults"]++; j.count["faults"] <= most {
		j.t.Errorf(format, args...)
	}
}

// checkComplete: each acknowledged event reached each device that it is for, or activityd says why not, and that
// is so. An entry of the stream is acknowledged when it was moved into the queue.
func (j *pushJudge) checkComplete() {
	j.t.Helper()
	for _, id := range slices.Sorted(maps.Keys(j.sent)) {
		e := j.sent[id]
		if !j.notified[id] {
			if e.way != byStream && e.acked {
				j.wrongf("event %s was acknowledged (%s), and is not in the queue", id, e.way)
			}
			continue
		}
		for _, r := range e.audience(j.pushSite) {
			for _, d := range r.devices {
				if outcome := j.outcome(e, d); outcome == "" {
					j.wrongf("LOST: event %s (%s) did not reach device %d of member %s: %+v", e.id, e.way, d.id, r.id, j.fates[fateKey{e.id, d.id}])
				} else {
					j.count[outcome]++
				}
			}
		}
	}
}

// gone are the reasons of receipts of devices whose app is not there any more.
var gone = []string{"Unregistered", "UNREGISTERED", "gone"}

// outcome says why all is well with an event for a device; "": it is not.
func (j *pushJudge) outcome(e *sentEvent, d *pushDevice) string {
	k, r := fateKey{e.id, d.id}, d.member
	if len(j.taken[k]) > 0 {
		return "accepted"
	}
	f, known := j.fates[k]
	until := f.at.Add(time.Second)
	if last, isTargeted := j.targeted[e.id]; !known && isTargeted {
		until = last.Add(time.Second)
	} else if !known {
		until = time.Now()
	}
	isAway := d.live.could(isFalse, e.began, until) || r.alive.could(isFalse, e.began, until)
	for _, reason := range []struct {
		outcome string
		isGiven bool
		isSo    bool
	}{
		{"without the device", !known || f.reason == "no_device" || f.state == "failed" && slices.Contains(gone, f.reason), isAway},
		{"counted in a burst", f.state == "accepted" && f.reason == "doubled", j.isCounted(e, d)},
		{"invisible", f.reason == "not_visible", e.photo && j.couldClass(e, r, false, e.began, until)},
		{"opted out", f.reason == "opted_out", e.kind == restlessType && r.wants.could(isFalse, e.began, until)},
		{"muted", f.reason == "muted", e.actor == mutedActor && r.muted.could(isTrue, e.began, until)},
		{"blocked", f.reason == "blocked", r.blocked[e.actor].could(isTrue, e.began, until)},
	} {
		if reason.isGiven && reason.isSo {
			return reason.outcome
		}
	}
	return ""
}

// isCounted: a message of the event's burst came to the device after the event.
func (j *pushJudge) isCounted(e *sentEvent, d *pushDevice) bool {
	k := fateKey{j.collapse[burstKey{e.kind, e.collapse}], d.id}
	return e.collapse != "" && slices.ContainsFunc(j.bursts[k], func(m taken) bool { return m.at.After(e.began) })
}

// couldClass reports whether the member may have seen the photo of an event, or not, at an
// instant of a time.
func (j *pushJudge) couldClass(e *sentEvent, r *recipient, sees bool, from, to time.Time) bool {
	return j.photos[e.actor].class.could(func(class contacts.Visibility) bool { return r.sees(e.actor, class) == sees }, from, to)
}

// oldestLook is how long before its acceptance a message was looked at, at most: it leaves 3 s after its look, a
// push service takes 2 s, and its process may be stopped in between.
const oldestLook = 5*time.Second + longestStop

// checkAllowed: nothing reached a device that it was not for. A title that is the username of the actor tells
// the exact state of the last look. The settings have known times.
func (j *pushJudge) checkAllowed() {
	j.t.Helper()
	for k, messages := range j.taken {
		e := j.sent[k.event]
		if e == nil {
			continue // take has said so
		}
		for _, m := range messages {
			j.checkLook(e, m)
			j.checkTimes(e, m.device.member, m)
		}
	}
	for _, needed := range []string{"exact", "urgent in quiet hours", "held by quiet hours"} {
		if j.count[needed] == 0 {
			j.t.Errorf("nothing is known of messages that are %s", needed)
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
	j.count["exact"]++
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

func (j *pushJudge) checkTimes(e *sentEvent, r *recipient, m taken) {
	j.t.Helper()
	from := m.at.Add(-oldestLook)
	asleep := !r.quiet.could(isFalse, from, m.at)
	for what, could := range map[string]bool{
		"is no recipient":         slices.Contains(e.audience(j.pushSite), r),
		"could not see the photo": !e.photo || j.couldClass(e, r, true, from, m.at),
		"had opted out":           e.kind != restlessType || r.wants.could(isTrue, from, m.at),
		"had muted the actor":     e.actor != mutedActor || r.muted.could(isFalse, from, m.at),
		"and the actor blocked":   r.blocked[e.actor].could(isFalse, from, m.at),
		"was no member":           r.alive.could(isTrue, from, m.at),
		"had no such device":      m.device.live.could(isTrue, from, m.at),
		"slept":                   !asleep || e.urgent,
	} {
		if !could {
			j.wrongf("event %s came to member %s, who %s for %v", e.id, r.id, what, oldestLook)
		}
	}
	switch {
	case asleep && e.urgent:
		j.count["urgent in quiet hours"]++
	case !e.urgent && !r.quiet.could(isFalse, e.began, e.began):
		j.count["held by quiet hours"]++
	}
}

// checkDevices: a device that was registered last, and not uninstalled since, is there.
func (j *pushJudge) checkDevices() {
	j.t.Helper()
	there := make(map[uint64]bool)
	j.read("SELECT '', id, '', '', 0 FROM push_devices WHERE gone_at IS NULL", func(k fateKey, _ fate) { there[k.device] = true })
	for _, r := range j.recipients {
		for _, d := range r.devices {
			if d.live.latest() && !there[d.latest] {
				j.wrongf("device %d of member %s, which was registered last, is gone", d.id, r.id)
			}
		}
	}
}

// An answer takes 40 ms, its receipt 20 ms and a commit. So a fault keeps few receipts from being written: those of the messages of
// inFlight before, on average.
const inFlight, longestInFlight = 250 * time.Millisecond, time.Second

// checkDoubles: two messages about an event for a device have one collapse id, and each repetition has its cause: the message before
// was accepted shortly before a fault of activityd, of MariaDB or of a push service, or in it; or before a lease ran out, as a process
// stood still; or had no answer. In all they are no more than the faults can have repeated. A device that was registered again is
// another device.
func (j *pushJudge) checkDoubles(faults, leases []struck) {
	j.t.Helper()
	faults = slices.DeleteFunc(slices.Clone(faults), func(s struck) bool { return strings.Contains(s.name, "Redis") || strings.Contains(s.name, "stream") })
	most := len(j.unanswered)
	for _, s := range faults {
		if !strings.Contains(s.name, "MariaDB") { // else no receipt was written until its end
			s.to = s.from
		}
		for _, messages := range j.taken {
			for _, m := range messages {
				if m.at.After(s.from.Add(-inFlight)) && m.at.Before(s.to) {
					most++
				}
			}
		}
	}
	isCause := func(first taken) bool {
		return slices.ContainsFunc(slices.Concat(faults, leases), func(s struck) bool {
			return first.at.After(s.from.Add(-longestInFlight)) && first.at.Before(s.to.Add(longestInFlight))
		}) || slices.ContainsFunc(j.unanswered, func(lost unanswered) bool {
			return j.byKey[lost.key] == first.device && lost.at.Sub(first.at).Abs() < longestInFlight
		})
	}
	for k, messages := range j.taken {
		slices.SortFunc(messages, func(a, b taken) int { return a.at.Compare(b.at) })
		for i, m := range messages[1:] {
			first := messages[i]
			j.count["twice"]++
			if m.collapse != first.collapse || m.collapse == "" {
				j.wrongf("event %s came twice to device %d, as %q and %q", k.event, k.device, first.collapse, m.collapse)
			}
			if !isCause(first) && !m.device.live.could(isFalse, first.at, m.at) {
				j.wrongf("event %s came twice to device %d without a fault, at %v and %v later", k.event, k.device, first.at, m.at.Sub(first.at))
			}
		}
	}
	if j.count["may come twice"] = most; j.count["twice"] > most {
		j.wrongf("%d messages came twice, where the faults repeat %d at most", j.count["twice"], most)
	}
}

// checkNothingStuck: no task is left, and no receipt is pending or failed but for a device that is gone.
func (j *pushJudge) checkNothingStuck() {
	j.t.Helper()
	for what, query := range map[string]string{
		"tasks are left":                       "SELECT " + leftTasks,
		"receipts are pending, without a task": "SELECT COUNT(*) FROM push_receipts WHERE state = 'pending'",
		"receipts say failed":                  "SELECT COUNT(*) FROM push_receipts WHERE state = 'failed' AND reason NOT IN ('" + strings.Join(gone, "', '") + "')",
	} {
		if n := j.number(j.t, query); n > 0 {
			j.wrongf("%d %s", n, what)
		}
	}
}

// String sums up, for people.
func (j *pushJudge) String() string {
	for id, e := range j.sent {
		j.count["events by "+e.way+", in the queue: "+strconv.FormatBool(j.notified[id])]++
	}
	return fmt.Sprint(j.count)
}
