package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

var look = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// eventOf returns an event that was created some seconds before the look.
func eventOf(number uint64, ago int, change func(e *StoredEvent)) *StoredEvent {
	e := &StoredEvent{Number: number, Created: look.Add(-time.Duration(ago) * time.Second), Expires: look.Add(time.Hour)}
	e.ID, e.Type, e.Actor = fmt.Sprint("e", number), "upload", 1
	if change != nil {
		change(e)
	}
	return e
}

// of returns what tasks of a kind ask for, of a device.
func of(kind string, events ...*StoredEvent) (all []delivery) {
	for i, e := range events {
		j := &job{task: queue.Task{ID: uint64(i + 1), Kind: kind, Attempts: 1, Key: e.Number}, event: e}
		all = append(all, delivery{job: j, event: e, to: Recipient{2, 20}})
	}
	return all
}

// told returns fates in few words.
func told(fates []fate) string {
	var list []string
	for _, f := range fates {
		text := strings.Join(strings.Fields(fmt.Sprintf("e%d %s %s", f.event.Number, f.state, f.reason)), " ")
		if f.why != nil {
			text += " in " + f.again.String()
		}
		if f.gone.Device != 0 {
			text += " gone"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// TestDecide: the messages that are sent at once, by all that a look may find.
func TestDecide(t *testing.T) {
	t.Parallel()
	inBurst := func(e *StoredEvent) { e.Collapse = "c" }
	urgent := func(e *StoredEvent) { e.Collapse, e.Urgent = "c", true }
	short := func(e *StoredEvent) { e.Collapse, e.Expires = "c", look.Add(30*time.Second) }
	seen := Facts{Visible: true, Now: look, Actor: "ada", Device: Device{ID: 20, Member: 2, Platform: FCM}}
	with := func(change func(f *Facts)) *Facts {
		f := seen
		change(&f)
		return &f
	}
	recent := with(func(f *Facts) { f.Burst = look.Add(-20 * time.Second) })
	waits := with(func(f *Facts) { f.Burst, f.Pending = look.Add(-20*time.Second), true })
	hidden := with(func(f *Facts) { f.Visible = false })
	asleep := with(func(f *Facts) { f.Settings.Quiet = QuietHours{From: 0, To: 13 * 60, Zone: "UTC"} })
	for name, c := range map[string]struct {
		asked []delivery
		facts []*Facts // nil: there is no device
		send  string
		fates string
	}{
		"one":                    {of(Deliver, eventOf(1, 5, nil)), []*Facts{&seen}, "e1 ×1", ""},
		"no device":              {of(Deliver, eventOf(1, 5, nil)), []*Facts{nil}, "", "e1 skipped no_device"},
		"sent before":            {of(Deliver, eventOf(1, 5, nil)), []*Facts{with(func(f *Facts) { f.Accepted = true })}, "", "e1 doubled"},
		"refused before":         {of(Deliver, eventOf(1, 5, nil)), []*Facts{with(func(f *Facts) { f.Failed = true })}, "", "e1 doubled"},
		"hidden":                 {of(Deliver, eventOf(1, 5, nil)), []*Facts{hidden}, "", "e1 skipped not_visible"},
		"quiet hours":            {of(Deliver, eventOf(1, 5, func(e *StoredEvent) { e.Expires = look.Add(2 * time.Hour) })), []*Facts{asleep}, "", "e1 in 1h0m1s"},
		"first of a burst":       {of(Deliver, eventOf(1, 5, inBurst)), []*Facts{&seen}, "e1 ×1", ""},
		"soon after another":     {of(Deliver, eventOf(1, 5, inBurst)), []*Facts{recent}, "", "e1 pending in 40s"},
		"expires before":         {of(Deliver, eventOf(1, 5, short)), []*Facts{recent}, "e1 ×1", ""},
		"urgent":                 {of(Deliver, eventOf(1, 5, urgent)), []*Facts{recent}, "e1 ×1", ""},
		"two at once":            {of(Deliver, eventOf(1, 5, inBurst), eventOf(2, 4, inBurst)), []*Facts{&seen, &seen}, "e2 ×2", ""},
		"the newest is hidden":   {of(Deliver, eventOf(1, 5, inBurst), eventOf(2, 4, inBurst)), []*Facts{&seen, hidden}, "e1 ×1", "e2 skipped not_visible"},
		"it waits":               {of(Deliver, eventOf(1, 5, inBurst)), []*Facts{waits}, "", "e1 pending in 40s"},
		"it waits, for too long": {of(Deliver, eventOf(1, 5, inBurst)), []*Facts{with(func(f *Facts) { f.Pending = true })}, "", "e1 pending in 0s"},
		"its burst, too early":   {of(Burst, eventOf(1, 5, inBurst)), []*Facts{waits}, "", "e1 pending in 40s"},
		"its burst":              {of(Burst, eventOf(1, 5, inBurst), eventOf(2, 4, inBurst)), []*Facts{with(func(f *Facts) { f.Pending = true }), with(func(f *Facts) { f.Pending = true })}, "e2 ×2", ""},
		"its burst, shown": {of(Burst, eventOf(1, 50, inBurst), eventOf(2, 40, inBurst), eventOf(3, 4, inBurst)), []*Facts{
			with(func(f *Facts) { f.Accepted = true }), with(func(f *Facts) { f.Accepted, f.Visible = true, false }), with(func(f *Facts) { f.Pending = true }),
		}, "e3 ×2", ""},
	} {
		var facts []Facts
		for i, f := range c.facts {
			if f != nil {
				facts = append(facts, *f)
				facts[len(facts)-1].Candidate = i
			}
		}
		p := decideAll(c.asked, facts, nil)
		var sends []string
		for _, m := range p.sends {
			sends = append(sends, fmt.Sprintf("%s ×%d", m.Message().Event, m.Message().Count))
		}
		if send := strings.Join(sends, ", "); send != c.send || told(p.fates) != c.fates {
			t.Errorf("%s: send %q, want %q; %q, want %q", name, send, c.send, told(p.fates), c.fates)
		}
	}
}

// TestDecideOfAMember: all devices of a member get the event, each once, and a follower without a device has no receipt.
func TestDecideOfAMember(t *testing.T) {
	t.Parallel()
	e := eventOf(1, 5, func(e *StoredEvent) { e.Followers, e.Collapse = true, "c" })
	asked := of(Notify, e, e, eventOf(2, 4, nil))
	for i := range asked {
		asked[i].to = Recipient{Member: 2 + member.ID(i)}
	}
	at := func(candidate int, device uint64) Facts {
		return Facts{Candidate: candidate, Visible: true, Now: look, Device: Device{ID: device, Member: 2, Platform: FCM}}
	}
	p := decideAll(asked, []Facts{at(0, 20), at(0, 21)}, nil)
	var to []uint64
	for _, m := range p.sends {
		to = append(to, m.device.ID)
	}
	if want := "e1 no_device, e2 skipped no_device"; !slices.Equal(to, []uint64{20, 21}) || told(p.fates) != want {
		t.Errorf("sent to %d; %q, want %q", to, told(p.fates), want)
	}
}

// TestJudge: the fates of a message by its answer.
func TestJudge(t *testing.T) {
	t.Parallel()
	one, two := of(Deliver, eventOf(1, 10, nil)), of(Burst, eventOf(1, 10, nil), eventOf(2, 8, nil))
	old := of(Deliver, eventOf(1, 7200, nil))
	ends := func(in time.Duration) []delivery {
		return of(Deliver, eventOf(1, 10, func(e *StoredEvent) { e.Expires = look.Add(in) }))
	}
	sent := func(r Result) answer { return answer{Result: r, sent: true} }
	not := func(why string, wait time.Duration) answer {
		return answer{Result: Result{Outcome: Wait, Reason: why, After: wait}}
	}
	for name, c := range map[string]struct {
		asked []delivery
		answer
		want string
	}{
		"accepted":              {one, sent(Result{Outcome: Accepted}), "e1 accepted"},
		"two accepted":          {two, sent(Result{Outcome: Accepted}), "e1 accepted doubled, e2 accepted"},
		"gone":                  {two, sent(Result{Outcome: Gone, Reason: "Unregistered"}), "e1 failed Unregistered gone, e2 failed Unregistered gone"},
		"rejected":              {one, sent(Result{Outcome: Rejected, Status: 413}), "e1 failed status 413"},
		"two rejected":          {two, sent(Result{Outcome: Rejected, Reason: "Bad"}), "e1 pending in 1s, e2 failed Bad"},
		"no answer":             {one, sent(Result{Outcome: Ambiguous}), "e1 in 5s"},
		"a gateway's":           {one, sent(Result{Outcome: Ambiguous, Status: 502, After: 30 * time.Second}), "e1 in 30s"},
		"an old one":            {old, sent(Result{Outcome: Ambiguous}), "e1 in 1m0s"},
		"asked to wait":         {one, sent(Result{Outcome: Wait, After: 30 * time.Second}), "e1 in 30s"},
		"as documented":         {one, sent(Result{Outcome: Wait, Pause: 20 * time.Second}), "e1 in 20s"},
		"asked for too long":    {one, sent(Result{Outcome: Wait, After: 48 * time.Hour}), "e1 in 59m55s"},
		"left alone":            {one, answer{Result: Result{Outcome: Credentials}, sent: true, left: 40 * time.Second}, "e1 in 40s"},
		"expires soon":          {ends(time.Minute), sent(Result{Outcome: Wait, After: 2 * time.Minute}), "e1 in 55s"},
		"expires now":           {ends(5 * time.Second), sent(Result{Outcome: Wait, After: 2 * time.Minute, Status: 503}), "e1 failed status 503"},
		"did not leave":         {one, not(breakerOpen, 7*time.Second), "e1 in 7s"},
		"did not leave in time": {ends(5 * time.Second), not(breakerOpen, 7*time.Second), "e1 in 5s"},
		"no keys":               {one, not(noKeys, 5*time.Second), "e1 in 5s"},
		"no keys in time":       {ends(4 * time.Second), not(noKeys, 5*time.Second), "e1 skipped off"},
	} {
		a := c.answer
		a.message = &message{deliveries: c.asked, device: Device{ID: 20, Platform: FCM}, now: look}
		if got := told(judge(a, 0)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	a := sent(Result{Outcome: Wait, After: 100 * time.Second})
	a.message = &message{deliveries: one, now: look}
	if got := judge(a, 0.99)[0].again; got != 128*time.Second {
		t.Errorf("with jitter it waits for %v", got)
	}
}

// mute is a sender that a test does not let send.
type mute struct{ *testing.T }

func (m mute) Send(context.Context, Message) Result {
	m.Error("a message left")
	return Result{Outcome: Accepted}
}

func (mute) Origin(Device) string { return honestOrigin }

// TestNothingLeavesAfterTheEnd: when a handler is to stop, another process may have its tasks soon. Urgent messages wait for no room,
// and do not leave either.
func TestNothingLeavesAfterTheEnd(t *testing.T) {
	t.Parallel()
	h := NewHandler(HandlerOptions{Senders: map[Platform]Sender{FCM: mute{t}}, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, isUrgent := range []bool{true, false} {
		m := &message{deliveries: of(Deliver, eventOf(1, 5, func(e *StoredEvent) { e.Urgent = isUrgent })), device: Device{ID: 20, Member: 2, Platform: FCM}, now: look}
		if a := <-h.sendAll(ctx, []*message{m}, time.Now()).results; a.sent || a.Reason != stale {
			t.Errorf("urgent %v: %+v", isUrgent, a.Result)
		}
	}
}

// TestRunning: the accepted events of a burst that a device shows still.
func TestRunning(t *testing.T) {
	t.Parallel()
	at := func(event uint64, ago int, accepted bool) BurstReceipt {
		return BurstReceipt{event, accepted, look.Add(-time.Duration(ago) * time.Second)}
	}
	all := []BurstReceipt{at(1, 400, true), at(2, 150, true), at(3, 70, true), at(4, 1000, false), at(5, 20, false)}
	var got []uint64
	for _, r := range running(all) {
		got = append(got, r.Event)
	}
	if want := []uint64{5, 3, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("%d, want %d", got, want)
	}
}

// TestOutcomes: the tasks that follow a task.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	e := eventOf(7, 5, func(e *StoredEvent) { e.Collapse = "c" })
	to := []Recipient{{2, 20}, {3, 30}, {4, 40}}
	later := func(at int, d time.Duration) fate {
		return fate{delivery: delivery{event: e, to: to[at]}, why: errSlow, again: d}
	}
	pending := func(at int, d time.Duration) fate {
		f := later(at, d)
		f.state = StatePending
		return f
	}
	over := fate{delivery: delivery{event: e, to: to[0]}, state: StateAccepted}
	wait := func(to string) string {
		return fmt.Sprintf(`burst push_deliver -3 1m0s {"event":7,"to":[%s],"burst":"%x"}`, to, e.Burst())
	}
	for name, c := range map[string]struct {
		kind  string
		fates []fate
		later time.Duration
		next  []string
	}{
		"over":         {Deliver, []fate{over}, 0, nil},
		"all of it":    {Deliver, []fate{later(0, 5*time.Second), later(1, 5*time.Second), later(2, 5*time.Second)}, 5 * time.Second, nil},
		"a part":       {Deliver, []fate{over, later(1, 5*time.Second), later(2, 5*time.Second)}, 0, []string{`deliver push_deliver -3 5s {"event":7,"to":[[3,30],[4,40]]}`}},
		"at two times": {Deliver, []fate{later(0, 9*time.Second), later(1, 5*time.Second), over}, 0, []string{`deliver push_deliver -3 5s {"event":7,"to":[[3,30]]}`, `deliver push_deliver -3 9s {"event":7,"to":[[2,20]]}`}},
		"bursts":       {Deliver, []fate{pending(1, time.Minute), over, pending(2, time.Minute)}, 0, []string{wait("[3,30]"), wait("[4,40]")}},
		"a burst over": {Burst, []fate{over}, 0, nil},
		"no end yet":   {Burst, []fate{over}, 0, []string{strings.Replace(wait("[2,20]"), "1m0s", "0s", 1)}},
		"and it waits": {Burst, []fate{pending(0, time.Minute)}, 0, []string{wait("[2,20]")}},
		"a burst":      {Burst, []fate{over, pending(0, 2*time.Minute), later(0, time.Minute)}, 0, []string{wait("[2,20]")}},
		"all devices":  {Deliver, []fate{later(0, 5*time.Second), later(1, 5*time.Second)}, 0, []string{`deliver push_deliver -3 5s {"event":7,"to":[[2,20],[3,30]]}`}},
	} {
		j := &job{task: queue.Task{Kind: c.kind, Priority: -3}, event: e, fates: c.fates, payload: Payload{Event: 7, To: to}}
		if name == "all devices" { // of members
			j.payload.To = []Recipient{{Member: 2}, {Member: 3}}
		}
		if c.kind == Burst {
			j.payload.To, j.payload.Burst = to[:1], e.Burst()
		}
		j.more = name == "no end yet" || name == "and it waits"
		o := outcomes([]*job{j})[0]
		v := queue.Judge(queue.Result{Err: o.Err})
		var next []string
		for _, n := range o.Next {
			next = append(next, fmt.Sprintf("%s %s %d %s %s", n.Kind, n.Queue, n.Priority, n.Delay, n.Payload))
		}
		if v.After != c.later || (o.Err == nil) != (c.later == 0) || !reflect.DeepEqual(next, c.next) {
			t.Errorf("%s: %v, then %q, want %q", name, o.Err, next, c.next)
		}
	}
	if got := outcomes([]*job{{err: errQuiet}})[0].Err; !errors.Is(got, errQuiet) {
		t.Errorf("of one that failed: %v", got)
	}
}

// TestAStepAfterReceipts: answers that came while receipts were written wait no longer, and are a single step.
func TestAStepAfterReceipts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &flight{results: make(chan answer, 9), open: make(map[*message]bool), leaves: func(int) {}}
		for range 9 {
			f.open[&message{}] = true
		}
		var steps []int
		began := time.Now()
		all := slices.Collect(maps.Keys(f.open))
		f.results <- answer{message: all[0]}
		for some := range f.steps(t.Context(), time.Minute) {
			if steps = append(steps, len(some)); len(steps) == 1 {
				for _, m := range all[1:] {
					f.results <- answer{message: m}
				}
				sleep(recordEvery) // so long it takes to write
			}
		}
		if took := time.Since(began); took != 2*recordEvery || !slices.Equal(steps, []int{1, 8}) {
			t.Errorf("steps %d in %v", steps, took)
		}
	})
}

// TestSteps: answers that come together are a single step; a message without an answer in time is left.
func TestSteps(t *testing.T) {
	t.Parallel()
	m := []*message{{}, {}, {}}
	left := 0
	f := &flight{results: make(chan answer, 3), open: map[*message]bool{m[0]: true, m[1]: true, m[2]: true}, leaves: func(n int) { left += n }}
	f.results <- answer{message: m[0]}
	f.results <- answer{message: m[1]}
	var steps []int
	for some := range f.steps(t.Context(), 200*time.Millisecond) {
		steps = append(steps, len(some))
	}
	if !slices.Equal(steps, []int{2}) || len(f.open) != 1 || left != 2 {
		t.Errorf("steps %d, %d open, %d left", steps, len(f.open), left)
	}
}
