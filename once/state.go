package once

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Phase is the phase of a name.
type Phase string

// The phases.
const (
	Free      Phase = "free"      // no process works: the last attempt failed or was handed back
	Held      Phase = "held"      // an owner works, or its lease has expired
	Done      Phase = "done"      // the work is done
	Exhausted Phase = "exhausted" // all attempts failed
)

// Fence is a fencing token: a number below 1<<63 that grows with each acquisition of a name. A
// resource keeps the highest fence it has seen, and refuses a lower fence.
type Fence uint64

// String is the decimal number.
func (f Fence) String() string { return strconv.FormatUint(uint64(f), 10) }

// State is the record that a store keeps of a name. The zero State is that of a name that was
// never acquired, or is forgotten. All times are in whole milliseconds, by the clock of the
// [Reply] unless it is said otherwise.
type State struct {
	Phase    Phase     // empty: no state
	Owner    string    // has the lease, or ended the last attempt
	Attempt  int       // attempts that began and were not handed back
	Terms    Terms     // of the last acquisition
	Fence    Fence     // of the last acquisition
	Began    time.Time // when the last attempt began; in Redis by the clock of the process that began it
	Until    time.Time // held: the end of the lease
	ForgetAt time.Time // the state is as none from then on
	Reason   string    // why the last attempt failed; of at most [MaxReason] bytes
	// Ended lists owners whose attempts failed, were handed back or were taken over, the latest
	// first. Before each owner is how its attempt ended, and after it a tab. The list has at least
	// the last [DefaultAttempts] owners.
	Ended string
}

// Expired reports whether the lease has ended at now, by the store's clock.
func (s State) Expired(now time.Time) bool { return s.Phase == Held && !now.Before(s.Until) }

// Terms are how a name is acquired. A store keeps them in whole milliseconds.
type Terms struct {
	Lease    time.Duration // how long it is held without an extension
	Keep     time.Duration // how long a state is kept after its last change or the end of its lease
	Attempts int           // max; 0: no limit
}

// Limits of names, owners, reasons and terms.
const (
	MaxName     = 200                                               // bytes
	MaxOwner    = 100                                               // bytes
	MaxReason   = 500                                               // bytes; a longer reason is cut
	maxEnded    = DefaultAttempts * (MaxOwner + len(Release+" \t")) // bytes
	MinLease    = 100 * time.Millisecond
	MaxLease    = 24 * time.Hour
	MinKeep     = time.Second
	MaxKeep     = 366 * 24 * time.Hour
	MaxAttempts = 1_000_000
)

// ErrInvalid is matched by errors about a name, an owner, terms or another argument that is
// out of bounds, and about a name that is used for both [Once.Do] and [Once.Hold].
var ErrInvalid = errors.New("invalid")

// CheckName returns an [ErrInvalid] unless name can be used: 1 to [MaxName] ASCII
// letters, digits and any of ._:/@+=-
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("%w name of %d bytes: want 1 to %d", ErrInvalid, len(name), MaxName)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == ':', c == '/', c == '@', c == '+', c == '=', c == '-':
		default:
			return fmt.Errorf("%w name %q: want ASCII letters, digits and ._:/@+=- only", ErrInvalid, name)
		}
	}
	return nil
}

// Check returns an [ErrInvalid] that names the term that is out of bounds.
func (t Terms) Check() error {
	switch {
	case t.Lease < MinLease || t.Lease > MaxLease:
		return fmt.Errorf("%w lease %v: want %v to %v", ErrInvalid, t.Lease, MinLease, MaxLease)
	case t.Keep < MinKeep || t.Keep > MaxKeep:
		return fmt.Errorf("%w keep %v: want %v to %v", ErrInvalid, t.Keep, MinKeep, MaxKeep)
	case t.Attempts < 0 || t.Attempts > MaxAttempts:
		return fmt.Errorf("%w number of attempts %d: want 1 to %d, or 0 for no limit", ErrInvalid, t.Attempts, MaxAttempts)
	}
	return nil
}

// Action is the kind of an operation.
type Action string

// The actions. The owner that has acquired the name calls all but Acquire.
const (
	Acquire Action = "acquire"
	Extend  Action = "extend"
	Finish  Action = "done"
	Fail    Action = "fail"
	Release Action = "release" // hands back, without using up the attempt
)

// Operation is an atomic operation on a name.
type Operation struct {
	Action Action
	Owner  string // random, of a single attempt
	Terms  Terms  // of Acquire
	Reason string // of Fail
}

// Check returns an [ErrInvalid] unless the operation can be applied to name.
func (op Operation) Check(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if op.Owner == "" || len(op.Owner) > MaxOwner {
		return fmt.Errorf("%w owner of %d bytes: want 1 to %d", ErrInvalid, len(op.Owner), MaxOwner)
	}
	if !utf8.ValidString(op.Owner) || strings.ContainsFunc(op.Owner, unicode.IsControl) {
		return fmt.Errorf("%w owner %q: want no control characters", ErrInvalid, op.Owner)
	}
	switch op.Action {
	case Acquire:
		return op.Terms.Check()
	case Extend, Finish, Fail, Release:
		return nil
	}
	return fmt.Errorf("%w action %q", ErrInvalid, op.Action)
}

// Outcome is the outcome of an operation.
type Outcome string

// The outcomes.
const (
	OK            Outcome = "ok"              // the caller holds the name, or ended its attempt
	Busy          Outcome = "busy"            // another owner holds it
	AlreadyDone   Outcome = "done"            // the work is done
	OutOfAttempts Outcome = "out of attempts" // the name is exhausted
	Lost          Outcome = "lost"            // the caller does not hold the name, and did not end it so; or it had its attempt
)

// Reply is the answer of a store to an operation.
type Reply struct {
	Outcome Outcome
	State   State     // after the operation
	Now     time.Time // by the clock that the times of State are of
	Changed bool      // the phase differs from the phase before
}

// Step returns the state after an operation, and its outcome. fence is higher than the fence of
// any acquisition before; an operation that begins an attempt takes it.
func Step(s State, now time.Time, fence Fence, op Operation) (State, Outcome) {
	if s.Phase != "" && !now.Before(s.ForgetAt) {
		s = State{}
	}
	mine := s.Owner == op.Owner
	switch {
	case op.Action == Acquire:
		return s.acquire(now, fence, op)
	case op.Action == Extend:
		if s.Phase != Held || !mine || s.Expired(now) {
			return s, Lost
		}
		return s.hold(now), OK
	case s.Phase == Done && op.Action == Finish && mine, s.wasEnded(op.Action, op.Owner):
		return s, OK // it is repeated
	case s.Phase != Held || !mine:
		return s, Lost
	}
	switch op.Action {
	case Finish:
		return s.end(Done, now), OK
	case Release:
		s = s.noteEnded(Release)
		s.Attempt--
		return s.end(Free, now), OK
	default: // Fail
		s = s.noteEnded(Fail)
		s.Reason = CutReason(op.Reason)
		if s.exhausted(s.Terms.Attempts) {
			return s.end(Exhausted, now), OK
		}
		return s.end(Free, now), OK
	}
}

// acquire is Step for [Acquire].
func (s State) acquire(now time.Time, fence Fence, op Operation) (State, Outcome) {
	op.Terms.Lease = op.Terms.Lease.Truncate(time.Millisecond)
	op.Terms.Keep = op.Terms.Keep.Truncate(time.Millisecond)
	switch {
	case s.Phase == Done:
		return s, AlreadyDone
	case s.Phase == Exhausted:
		return s, OutOfAttempts
	case s.Phase == Held && !s.Expired(now) && s.Owner != op.Owner:
		return s, Busy
	case s.Phase == Held && !s.Expired(now):
		s.Terms = op.Terms
		return s.hold(now), OK
	}
	if s.Owner == op.Owner || s.wasEnded(Fail, op.Owner) || s.wasEnded(Release, op.Owner) || s.wasEnded(expire, op.Owner) {
		return s, Lost // an owner has a single attempt: this request was late or sent twice
	}
	if s.Phase == Held {
		s = s.noteEnded(expire)
		s.Reason = "the lease of attempt " + strconv.Itoa(s.Attempt) + " expired"
	}
	if s.exhausted(op.Terms.Attempts) {
		s.Terms = op.Terms
		return s.end(Exhausted, now), OutOfAttempts
	}
	s.Phase, s.Owner, s.Attempt, s.Terms, s.Fence, s.Began = Held, op.Owner, s.Attempt+1, op.Terms, fence, now
	return s.hold(now), OK
}

// exhausted reports whether there is no attempt left of so many.
func (s State) exhausted(attempts int) bool { return attempts > 0 && s.Attempt >= attempts }

// expire is how an attempt ended in [State].Ended that was taken over: an action of none.
const expire Action = "expire"

// wasEnded reports whether it is known that an owner's attempt ended so.
func (s State) wasEnded(how Action, owner string) bool {
	return strings.Contains("\t"+s.Ended, "\t"+string(how)+" "+owner+"\t")
}

// noteEnded returns the state with a note of how the attempt of the owner ends, and without the
// oldest notes.
func (s State) noteEnded(how Action) State {
	s.Ended = string(how) + " " + s.Owner + "\t" + s.Ended
	if len(s.Ended) > maxEnded {
		s.Ended = s.Ended[:strings.LastIndexByte(s.Ended[:maxEnded], '\t')+1]
	}
	return s
}

// hold returns the state with a lease from now on.
func (s State) hold(now time.Time) State {
	s.Until = now.Add(s.Terms.Lease)
	s.ForgetAt = s.Until.Add(s.Terms.Keep)
	return s
}

// end returns the state in a phase that is not held.
func (s State) end(p Phase, now time.Time) State {
	s.Phase, s.Until, s.ForgetAt = p, time.Time{}, now.Add(s.Terms.Keep)
	return s
}

// CutReason returns at most [MaxReason] bytes of a reason, in valid UTF-8.
func CutReason(reason string) string {
	reason = strings.ToValidUTF8(reason, "?")
	if len(reason) <= MaxReason {
		return reason
	}
	return strings.ToValidUTF8(reason[:MaxReason-len("…")], "") + "…"
}
