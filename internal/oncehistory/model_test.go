package oncehistory_test

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/activityd/activityd/once"
)

// action is an action on a name: an action of once.Operation, or of the tester.
type action string

// The actions that are not of once.Operation.
const (
	get    action = "get"
	forget action = "forget"
	age    action = "age" // the state's times are moved back
	end    action = "end" // of the history: an operation that has not been applied by then never will be
)

// request is an operation on a name, and the time of its sending.
type request struct {
	action action
	op     once.Operation // of the actions of once.Operation
	force  bool           // of forget
	by     time.Duration  // of age
	sent   int64          // unix milliseconds
}

// answer is the answer to a request, and its time.
type answer struct {
	fate     fate
	reply    once.Reply // of an operation and of get
	removed  bool       // of forget
	held     bool       // of forget: it was refused
	received int64      // unix milliseconds; endOfTime: it may still be applied
	measured bool       // the reply's clock is the client's: it tells how much time is left, and not the store's clock
}

// fate is the knowledge about an operation.
type fate int

const (
	answered fate = iota // the answer is known
	applied              // it was applied, but its answer was lost
	unknown              // it was applied once, or not at all
	unsent               // it never reached the server; it is no part of the history
)

const endOfTime = int64(1) << 60

// newFence stands for the fence that an acquisition is given.
const newFence = once.Fence(1<<63 - 1)

// kept is a state of a name as a store may keep it: a [once.State], or several that differ in
// their times and in their fence alone. After an acquisition whose answer was lost, the times
// and the fence are unknown, until another answer shows them.
type kept struct {
	state         once.State // without its times
	until, forget int64      // unix milliseconds, at the earliest
	span          int64      // both may be later by up to that
	since         int64      // if span is not 0: they were set then, or later by the same
	open          bool       // the fence is that of state, or higher, and when it began is not known
}

// keep is a state as kept.
func keep(s once.State) kept {
	k := kept{state: s, until: s.Until.UnixMilli(), forget: s.ForgetAt.UnixMilli()}
	if s.Until.IsZero() {
		k.until = 0
	}
	if s.ForgetAt.IsZero() {
		k.forget = 0
	}
	k.state.Until, k.state.ForgetAt = time.Time{}, time.Time{}
	if !s.Began.IsZero() {
		k.state.Began = time.UnixMilli(s.Began.UnixMilli()) // without a monotonic clock, so that states compare
	}
	return k
}

// at is the state whose times are later by that.
func (k kept) at(later int64) once.State {
	s := k.state
	if s.Phase == "" {
		return once.State{}
	}
	if s.Phase == once.Held {
		s.Until = time.UnixMilli(k.until + later)
	}
	s.ForgetAt = time.UnixMilli(k.forget + later)
	return s
}

// world is a possible situation at a point of a history. The model is nondeterministic: it follows all worlds that the
// answers so far allow.
//
// After an operation that was answered, the state is known to the millisecond: the answer has the state and the store's
// clock, and both must agree exactly with [once.Step] of the state before. An operation whose answer was lost may have
// been applied at any time between its sending and the end of the history, unless the tester knows better, or never. So
// the times that it set are an interval, and its fence is any above the fences before. The next answer that shows the
// state settles both, and must lie within.
//
// The store's clock is the machine's, as the tester's is: the clock of each answer must lie between the sending and the
// receiving. In Redis the clock moves forward from operation to operation (monotonic), and an answer tells the time that
// is left, and not the clock (measured): times are known within a millisecond or two, and lengths of time exactly. In
// MySQL the clock may go back: an operation reads the clock and the state, decides, and writes if the state is still the
// same. So a state that an operation found forgotten may not be forgotten by the clock of another operation, unless its
// row was purged since. No write is lost.
type world struct {
	kept

	top   once.Fence // the highest fence that was given is that or higher
	clock int64      // of the last operation, unix milliseconds, at the earliest
	ended bool
}

// model returns the model of a name. monotonic is set for stores whose clock never goes back
// from an operation to the next.
func model(monotonic bool) porcupine.Model {
	seed := maphash.MakeSeed()
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{world{}} },
		Step: func(state, input, output any) (next []any) {
			w, in, out := state.(world), input.(request), output.(answer)
			next = anyOf(w.step(in, out))
			if monotonic {
				return next
			}
			if w.state.Phase != "" && out.received >= w.forget { // it may have been purged
				w.kept = kept{}
				next = append(next, anyOf(w.step(in, out))...)
			}
			for i, after := range next {
				w := after.(world)
				w.clock = 0
				next[i] = w
			}
			return next
		},
		Hash:              func(state any) uint64 { return maphash.Comparable(seed, state.(world)) },
		DescribeOperation: func(in, out any) string { return describe(in.(request), out.(answer)) },
		DescribeState:     func(state any) string { return state.(world).String() },
	}
	return m.ToModel()
}

// anyOf is worlds as porcupine has them.
func anyOf(worlds []world) (list []any) {
	for _, w := range worlds {
		list = append(list, w)
	}
	return list
}

// step returns the worlds after an operation with its answer. An operation that may not have
// been applied either has an effect or comes after the end. This loses no generality, and keeps
// porcupine from trying it everywhere.
func (w world) step(in request, out answer) (after []world) {
	switch {
	case w.ended:
		return []world{w}
	case in.action == end:
		w.ended = true
		return []world{w}
	}
	if w.span > 0 { // times that were set before this operation were not set after its answer
		if w.span = min(w.span, out.received-w.since); w.span < 0 {
			return nil
		}
	}
	if out.measured && out.fate == answered && (in.action == get || in.op.Action != "") {
		return w.measured(in, out)
	}
	next := w
	switch in.action {
	case forget:
		after = w.forgotten(in, out)
	case age:
		if w.state.Phase != "" {
			next.forget -= in.by.Milliseconds()
		}
		if w.state.Phase == once.Held {
			next.until -= in.by.Milliseconds()
		}
		after = []world{next}
	default:
		if out.fate == answered { // as each get is
			return w.answered(in, out)
		}
		after = w.lost(in, out)
	}
	if out.fate == unknown {
		after = slices.DeleteFunc(after, func(next world) bool { return next.kept == w.kept })
		if out.received < endOfTime { // it comes before the end, in any case
			after = append(after, w)
		}
	}
	return after
}

// answered applies an operation or a get whose answer is known. It leaves at most a single world, without
// open times or fence.
func (w world) answered(in request, out answer) []world {
	now, want := out.reply.Now.UnixMilli(), keep(out.reply.State)
	if now < w.clock {
		return nil
	}
	for _, later := range w.moments(now, want) {
		before := w.fenced(w.at(later), want)
		none := before
		if forgottenAt(before, now) {
			none = once.State{}
		}
		s, outcome := none, once.Outcome("")
		if in.action != get {
			s, outcome = once.Step(before, out.reply.Now, newFence, in.op)
		}
		if s.Fence == newFence && want.state.Fence > w.top {
			s.Fence = want.state.Fence
		}
		if outcome == out.reply.Outcome && keep(s) == want && out.reply.Changed == (s.Phase != none.Phase) {
			return []world{w.shows(want, max(w.top, want.state.Fence), now)}
		}
	}
	return nil
}

// shows returns the world after an answer that shows a state. A state that is forgotten at now
// may not be forgotten by the clock of another operation: the model only knows that it is that
// old.
func (w world) shows(k kept, top once.Fence, now int64) world {
	if k.state.Phase == "" {
		w.span = max(0, min(w.span, now-w.forget))
	} else {
		w.kept = k
	}
	w.top, w.clock = top, now
	return w
}

// measured applies an operation or a get whose answer tells how much time is left to a state,
// at an unknown time between its being sent and received.
func (w world) measured(in request, out answer) (after []world) {
	now, want := out.reply.Now.UnixMilli(), keep(out.reply.State)
	for _, t := range w.stretches(in, out) {
		before := w.fenced(w.at(t.later), want)
		if forgottenAt(before, t.from) {
			before = once.State{}
		}
		s, outcome, same := before, once.Outcome(""), true
		if in.action != get {
			s, outcome = once.Step(before, time.UnixMilli(t.from), newFence, in.op)
			same = s == before && unchanged(before, t.from, in.op)
		}
		if began := want.state.Began.UnixMilli(); s.Fence == newFence && want.state.Fence > w.top && in.sent <= began && began <= out.received {
			s.Fence, s.Began = want.state.Fence, want.state.Began
		}
		k := keep(s)
		if k.state != want.state || outcome != out.reply.Outcome || out.reply.Changed != (s.Phase != before.Phase) {
			continue
		}
		next, left := w, want.forget-now
		next.top, next.clock = max(w.top, want.state.Fence), t.from
		switch {
		case s.Phase == "":
			next.span = max(0, min(w.span, t.to-w.forget))
		case want.until != 0 && want.forget-want.until != k.forget-k.until:
			continue
		case same:
			first, last := max(0, left+t.from-w.forget), min(w.span, left+t.to-w.forget)
			if first > last {
				continue
			}
			next.kept = keep(w.fenced(w.at(first), want))
			next.span, next.since = last-first, w.since+first
		case k.forget-t.from != left:
			continue
		// A millisecond more: at the very end of a time to live, a key is there. And not only
		// until the end of the stretch: before Redis 7.2 a script may read the clock again as it writes.
		default:
			next.kept = k
			next.span, next.since = out.received-t.from+1, t.from
		}
		after = append(after, next)
	}
	return after
}

// fenced completes a state whose fence and beginning are unknown from an answer that shows them.
func (w world) fenced(s once.State, shown kept) once.State {
	if w.open && s.Phase != "" && shown.state.Fence >= w.state.Fence {
		s.Fence, s.Began = shown.state.Fence, shown.state.Began
	}
	return s
}

// moments returns by how much the times of the state may be later than the earliest: a value for
// each case that [once.Step] tells apart at now, and the value that an answer shows.
func (w world) moments(now int64, shown kept) (list []int64) {
	list = []int64{0}
	for _, later := range []int64{now - w.forget + 1, now - w.until + 1, shown.forget - w.forget} {
		if 0 < later && later <= w.span {
			list = append(list, later)
		}
	}
	return list
}

// forgottenAt reports whether a state is as none.
func forgottenAt(s once.State, now int64) bool {
	return s.Phase != "" && now >= s.ForgetAt.UnixMilli()
}

// stretch is an interval of the store's clock in which an operation may have been applied, and
// by how much the state's times are later then, at its beginning.
type stretch struct {
	from, to int64
	later    int64
}

// stretches divides the interval of an operation into intervals in which the state is forgotten,
// expired, and neither.
func (w world) stretches(in request, out answer) (list []stretch) {
	from, to := max(in.sent, w.clock), out.received
	if w.state.Phase == "" {
		return []stretch{{from: from, to: to}}
	}
	list = append(list, stretch{from: max(from, w.forget), to: to})
	end := w.forget
	if w.state.Phase == once.Held {
		end = w.until
		first := max(from, w.until)
		list = append(list, stretch{first, min(to, w.forget+w.span-1), first - w.forget + 1})
	}
	list = append(list, stretch{from, min(to, end+w.span-1), from - end + 1})
	possible := list[:0]
	for _, s := range list {
		if s.later = min(max(s.later, 0), w.span); s.from <= s.to {
			possible = append(possible, s)
		}
	}
	return possible
}

// lost applies an operation whose answer was lost.
func (w world) lost(in request, out answer) (after []world) {
	for _, t := range w.stretches(in, out) {
		before := w.at(t.later)
		s, _ := once.Step(before, time.UnixMilli(t.from), newFence, in.op)
		next := w
		next.clock = t.from
		if s.Phase != "" && (s != before || !unchanged(before, t.from, in.op)) {
			next.kept = keep(s)
			last := t.to
			if out.measured { // see measured
				last = out.received
			}
			next.span, next.since, next.open = last-t.from, t.from, w.open
			if s.Fence == newFence {
				next.top++
				next.state.Fence, next.open = next.top, true
			}
		}
		after = append(after, next)
	}
	return after
}

// unchanged reports whether an operation leaves a state alone: it does not even set times to
// equal values.
func unchanged(s once.State, now int64, op once.Operation) bool {
	if s.Phase != "" {
		s.ForgetAt = s.ForgetAt.Add(time.Millisecond)
	}
	after, _ := once.Step(s, time.UnixMilli(now), newFence, op)
	return after == s
}

// forgotten applies a forget. Its answer has no clock.
func (w world) forgotten(in request, out answer) (after []world) {
	for _, t := range w.stretches(in, out) {
		s, now := w.at(t.later), time.UnixMilli(t.from)
		gone := s.Phase == "" || forgottenAt(s, t.from)
		held := !gone && s.Phase == once.Held && !s.Expired(now) && !in.force
		if out.fate == answered && (out.held != held || out.removed != (!gone && !held)) {
			continue
		}
		next := w
		next.clock = t.from
		if !held && !gone {
			next.kept = kept{}
		}
		after = append(after, next)
	}
	return after
}

// String shows a world in a picture.
func (w world) String() string { return fmt.Sprintf("%s, top %v", w.kept, w.top) }

// String shows a kept state.
func (k kept) String() string {
	s := k.state
	if s.Phase == "" {
		return "none"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s, attempt %d, fence %v", s.Phase, s.Owner, s.Attempt, s.Fence)
	if k.open {
		b.WriteString(" or higher")
	}
	if s.Phase == once.Held {
		fmt.Fprintf(&b, ", until %s", clock(k.until))
	}
	fmt.Fprintf(&b, ", forgotten %s", clock(k.forget))
	if k.span > 0 {
		fmt.Fprintf(&b, " or up to %v later", time.Duration(min(k.span, 1e9))*time.Millisecond)
	}
	return b.String()
}

// clock shows a time of the store without its day.
func clock(ms int64) string {
	if ms >= endOfTime {
		return "-"
	}
	const day = 24 * 3600 * 1000
	return fmt.Sprintf("%.3f", float64(ms%day)/1000)
}

// describe shows an operation and its answer.
func describe(in request, out answer) string {
	text := string(in.action)
	switch {
	case in.op.Action == once.Acquire:
		text += fmt.Sprintf(" by %s, %+v", in.op.Owner, in.op.Terms)
	case in.op.Owner != "":
		text += " by " + in.op.Owner
	case in.action == age:
		text += fmt.Sprintf(" by %v", in.by)
	case in.force:
		text += " by force"
	}
	switch {
	case out.fate == unknown:
		return text + " -> ? (applied or not)"
	case out.fate == applied:
		return text + " -> ? (applied)"
	case in.action == forget:
		return fmt.Sprintf("%s -> removed %t, held %t", text, out.removed, out.held)
	case in.op.Action != "" || in.action == get:
		return fmt.Sprintf("%s -> %s at %s: %s, changed %t", text, out.reply.Outcome, clock(out.reply.Now.UnixMilli()), keep(out.reply.State), out.reply.Changed)
	}
	return text
}
