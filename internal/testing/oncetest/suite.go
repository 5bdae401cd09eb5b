package oncetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/once"
)

// Harness is a store under test.
type Harness struct {
	once.Store

	// Age moves the times of a state, began, until and forget_at, back by so much in the store,
	// as if the state were so much older. It does nothing to a name without a state.
	Age func(name string, d time.Duration) error
}

// TestStore runs the tests that every store passes. Each test opens a store and uses its own names, so that
// open may return the same store each time.
func TestStore(t *testing.T, open func(*testing.T) Harness) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, suite){
		"Transitions": testTransitions,
		"Acquire":     testAcquire,
		"Late":        testLate,
		"Refused":     testRefused,
		"Texts":       testTexts,
		"Maxima":      testMaxima,
		"Attempts":    testAttempts,
		"Property":    testProperty,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, suite{Harness: open(t), prefix: rand.Text()[:8] + "/"})
		})
	}
}

// suite is a store and the prefix of a test's names.
type suite struct {
	Harness

	prefix string
}

// The owners, and the terms of most tests. No test lasts for a lease.
const (
	me      = "me"
	another = "another"
	lease   = time.Hour
	keep    = 2 * time.Hour
)

var terms = once.Terms{Lease: lease, Keep: keep, Attempts: 3}

// apply fails the test at an error.
func (s suite) apply(t *testing.T, name string, op once.Operation) once.Reply {
	t.Helper()
	r, err := s.Apply(t.Context(), name, op)
	if err != nil {
		t.Fatalf("%s %s by %s: %v", op.Action, name, op.Owner, err)
	}
	return r
}

// acquire fails the test unless it succeeds.
func (s suite) acquire(t *testing.T, name, owner string, terms once.Terms) once.Reply {
	t.Helper()
	r := s.apply(t, name, once.Operation{Action: once.Acquire, Owner: owner, Terms: terms})
	if r.Outcome != once.OK {
		t.Fatalf("acquire %s by %s: %+v, want it acquired", name, owner, r)
	}
	return r
}

// end fails the test unless the owner can end its attempt so.
func (s suite) end(t *testing.T, name, owner string, a once.Action) once.Reply {
	t.Helper()
	r := s.apply(t, name, once.Operation{Action: a, Owner: owner, Reason: "no luck"})
	if r.Outcome != once.OK {
		t.Fatalf("%s %s by %s: %+v", a, name, owner, r)
	}
	return r
}

// get fails the test at an error.
func (s suite) get(t *testing.T, name string) once.State {
	t.Helper()
	r, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return r.State
}

// age fails the test at an error.
func (s suite) age(t *testing.T, name string, d time.Duration) {
	t.Helper()
	if err := s.Age(name, d); err != nil {
		t.Fatalf("age %s: %v", name, err)
	}
}

// same reports whether two states are the same, at most a minute later: a store may tell
// times by the clock of the process that asks, from the time that is left.
func same(a, b once.State) bool {
	if a.Until.IsZero() != b.Until.IsZero() || a.Until.Sub(b.Until).Abs() > time.Minute || a.ForgetAt.Sub(b.ForgetAt).Abs() > time.Minute {
		return false
	}
	a.Until, a.ForgetAt = b.Until, b.ForgetAt
	return a == b
}

// list returns the names of this test in List's answer.
func (s suite) list(t *testing.T) (list []once.Named) {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(all, func(a, b once.Named) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("the list is not sorted: %+v", all)
	}
	for _, n := range all {
		if strings.HasPrefix(n.Name, s.prefix) {
			list = append(list, n)
		}
	}
	return list
}

// before are the states of the table of transitions, and how a name gets there: acquisitions by an owner with so many
// attempts at most, other operations of an owner, and times by which the state ages.
var before = map[string]string{
	"none":                                       "",
	"forgotten":                                  "acquire me 3, done me, age keep",
	"forgotten, held":                            "acquire me 3, age lease, age keep",
	"free, 1 attempt":                            "acquire first 3, fail first",
	"free, 3 attempts":                           "acquire 1 0, fail 1, acquire 2 0, fail 2, acquire 3 0, fail 3",
	"held by me":                                 "acquire me 3",
	"held by me, last":                           "acquire me 1",
	"held by me, expired":                        "acquire me 3, age lease",
	"held by me, last, expired":                  "acquire me 1, age lease",
	"held by another":                            "acquire another 3",
	"held by another, expired":                   "acquire another 3, age lease",
	"held by another, last, expired":             "acquire 1 3, age lease, acquire 2 3, age lease, acquire another 3, age lease",
	"done by me":                                 "acquire me 3, done me",
	"done by another":                            "acquire another 3, done another",
	"failed by me":                               "acquire me 3, fail me",
	"released by me":                             "acquire me 3, release me",
	"exhausted by me":                            "acquire me 1, fail me",
	"exhausted by another":                       "acquire another 1, fail another",
	"taken over from me":                         "acquire me 3, age lease, acquire another 3",
	"taken over from me, failed":                 "acquire me 3, age lease, acquire another 3, fail another",
	"taken over from me, done":                   "acquire me 3, age lease, acquire another 3, done another",
	"failed by me, held by another":              "acquire me 3, fail me, acquire another 3",
	"failed by me, released by another":          "acquire me 3, fail me, acquire another 3, release another",
	"failed by me, done by another":              "acquire me 3, fail me, acquire another 3, done another",
	"failed by me, exhausted by another":         "acquire me 3, fail me, acquire another 2, fail another",
	"released by me, held by another":            "acquire me 3, release me, acquire another 3",
	"released by me, failed by another, expired": "acquire me 3, release me, acquire another 3, fail another, acquire third 3, age lease",
	"expired by me, exhausted by another":        "acquire me 3, age lease, exhaust another 1",
}

// bring brings a name into a state.
func (s suite) bring(t *testing.T, name, state string) {
	t.Helper()
	for step := range strings.SplitSeq(before[state], ", ") {
		words := append(strings.Fields(step), "", "", "")
		attempts, _ := strconv.Atoi(words[2])
		limited := once.Terms{Lease: lease, Keep: keep, Attempts: attempts}
		switch words[0] {
		case "":
		case "age":
			s.age(t, name, map[string]time.Duration{"lease": lease, "keep": keep}[words[1]])
		case "acquire":
			s.acquire(t, name, words[1], limited)
		case "exhaust":
			s.apply(t, name, once.Operation{Action: once.Acquire, Owner: words[1], Terms: limited})
		default:
			s.end(t, name, words[1], once.Action(words[0]))
		}
	}
}

// transitions is the table of package once. The owner of the operation is "me", with at most 3 attempts. A
// missing operation is Lost, and changes nothing.
var transitions = []struct {
	before  string
	action  once.Action
	outcome once.Outcome
	phase   once.Phase
	attempt int
}{
	{"none", once.Acquire, once.OK, once.Held, 1},
	{"forgotten", once.Acquire, once.OK, once.Held, 1},
	{"forgotten, held", once.Acquire, once.OK, once.Held, 1},
	{"free, 1 attempt", once.Acquire, once.OK, once.Held, 2},
	{"free, 3 attempts", once.Acquire, once.OutOfAttempts, once.Exhausted, 3},
	{"held by me", once.Acquire, once.OK, once.Held, 1},
	{"held by me, last", once.Acquire, once.OK, once.Held, 1},
	{"held by another", once.Acquire, once.Busy, once.Held, 1},
	{"taken over from me", once.Acquire, once.Busy, once.Held, 2},
	{"held by another, expired", once.Acquire, once.OK, once.Held, 2},
	{"held by another, last, expired", once.Acquire, once.OutOfAttempts, once.Exhausted, 3},
	{"done by me", once.Acquire, once.AlreadyDone, once.Done, 1},
	{"done by another", once.Acquire, once.AlreadyDone, once.Done, 1},
	{"taken over from me, done", once.Acquire, once.AlreadyDone, once.Done, 2},
	{"exhausted by me", once.Acquire, once.OutOfAttempts, once.Exhausted, 1},
	{"exhausted by another", once.Acquire, once.OutOfAttempts, once.Exhausted, 1},
	{"failed by me, held by another", once.Acquire, once.Busy, once.Held, 2},
	{"failed by me, done by another", once.Acquire, once.AlreadyDone, once.Done, 2},
	{"failed by me, exhausted by another", once.Acquire, once.OutOfAttempts, once.Exhausted, 2},
	{"released by me, held by another", once.Acquire, once.Busy, once.Held, 1},
	{"expired by me, exhausted by another", once.Acquire, once.OutOfAttempts, once.Exhausted, 1},

	{"held by me", once.Extend, once.OK, once.Held, 1},
	{"held by me, last", once.Extend, once.OK, once.Held, 1},

	{"held by me", once.Finish, once.OK, once.Done, 1},
	{"held by me, last", once.Finish, once.OK, once.Done, 1},
	{"held by me, expired", once.Finish, once.OK, once.Done, 1},
	{"held by me, last, expired", once.Finish, once.OK, once.Done, 1},
	{"done by me", once.Finish, once.OK, once.Done, 1},

	{"held by me", once.Fail, once.OK, once.Free, 1},
	{"held by me, expired", once.Fail, once.OK, once.Free, 1},
	{"held by me, last", once.Fail, once.OK, once.Exhausted, 1},
	{"held by me, last, expired", once.Fail, once.OK, once.Exhausted, 1},
	{"failed by me", once.Fail, once.OK, once.Free, 1},
	{"exhausted by me", once.Fail, once.OK, once.Exhausted, 1},
	{"failed by me, held by another", once.Fail, once.OK, once.Held, 2},
	{"failed by me, released by another", once.Fail, once.OK, once.Free, 1},
	{"failed by me, done by another", once.Fail, once.OK, once.Done, 2},
	{"failed by me, exhausted by another", once.Fail, once.OK, once.Exhausted, 2},

	{"held by me", once.Release, once.OK, once.Free, 0},
	{"held by me, last", once.Release, once.OK, once.Free, 0},
	{"held by me, expired", once.Release, once.OK, once.Free, 0},
	{"held by me, last, expired", once.Release, once.OK, once.Free, 0},
	{"released by me", once.Release, once.OK, once.Free, 0},
	{"released by me, held by another", once.Release, once.OK, once.Held, 1},
	{"released by me, failed by another, expired", once.Release, once.OK, once.Held, 2},
}

func testTransitions(t *testing.T, s suite) {
	expected := make(map[[2]string]int) // rows of transitions
	for i, row := range transitions {
		expected[[2]string{row.before, string(row.action)}] = i
	}
	if list := s.list(t); len(list) > 0 {
		t.Errorf("listed at first: %+v", list)
	}
	stored := make(map[string]once.State)
	for i, state := range slices.Sorted(maps.Keys(before)) {
		for _, a := range actionsOfAll {
			name := fmt.Sprintf("%s%d/%s", s.prefix, i, a)
			s.bring(t, name, state)
			was := s.get(t, name)
			r := s.apply(t, name, once.Operation{Action: a, Owner: me, Terms: terms, Reason: "no luck"})
			got := s.get(t, name)
			if got.Phase != "" {
				stored[name] = got
			}
			if !same(got, r.State) || r.Changed != (r.State.Phase != was.Phase) {
				t.Errorf("%s, %s: answered\n%+v, stored\n%+v", state, a, r, got)
			}
			at, found := expected[[2]string{state, string(a)}]
			if !found {
				if r.Outcome != once.Lost || r.Changed || !same(got, was) {
					t.Errorf("%s, %s: %+v, want it lost, and still %+v", state, a, r, was)
				}
			} else if want := transitions[at]; r.Outcome != want.outcome || r.State.Phase != want.phase || r.State.Attempt != want.attempt {
				t.Errorf("%s, %s: %+v, want %+v", state, a, r, want)
			}
		}
	}
	list := s.list(t)
	for _, n := range list {
		if !same(n.State, stored[n.Name]) || n.Now.UnixMilli() == 0 {
			t.Errorf("listed %+v, want %+v", n, stored[n.Name])
		}
	}
	if len(list) != len(stored) {
		t.Errorf("listed %d names, want %d", len(list), len(stored))
	}
}

var actionsOfAll = []once.Action{once.Acquire, once.Extend, once.Finish, once.Fail, once.Release}

// testAcquire checks the state that an acquisition stores, and its remains of the attempts before.
func testAcquire(t *testing.T, s suite) {
	name := s.prefix + "a"
	r := s.acquire(t, name, me, terms)
	want := once.State{
		Phase: once.Held, Owner: me, Attempt: 1, Terms: terms, Fence: r.State.Fence, Began: r.State.Began,
		Until: r.Now.Add(lease), ForgetAt: r.Now.Add(lease + keep),
	}
	if r.State != want || want.Fence == 0 || r.Now.UnixMilli() == 0 || !r.Now.Equal(r.Now.Truncate(time.Millisecond)) || r.Now.Sub(want.Began).Abs() > time.Minute {
		t.Errorf("acquired %+v\nwant %+v", r, want)
	}
	s.end(t, name, me, once.Fail)
	for i, reason := range []string{"no luck", "the lease of attempt 2 expired"} {
		s.age(t, name, lease)
		next := s.acquire(t, name, fmt.Sprint(another, i), terms)
		if next.State.Attempt != i+2 || next.State.Fence <= want.Fence || next.State.Reason != reason || next.Now.Sub(next.State.Began).Abs() > time.Minute {
			t.Errorf("attempt %d: %+v after fence %v, want the reason %q", i+2, next, want.Fence, reason)
		}
		want = next.State
	}
	s.age(t, name, lease)
	over := s.apply(t, name, once.Operation{Action: once.Acquire, Owner: "fourth", Terms: terms})
	want.Began = want.Began.Add(-lease)
	want.Phase, want.Until, want.ForgetAt, want.Reason = once.Exhausted, time.Time{}, over.Now.Add(keep), "the lease of attempt 3 expired"
	want.Ended = "expire another1\texpire another0\tfail me\t"
	if over.State != want || over.Outcome != once.OutOfAttempts || !over.Changed {
		t.Errorf("after the last attempt: %+v\nwant %+v", over, want)
	}
}

// The store answers late and repeated operations while it knows how the owner's attempt ended. If all owners
// have the longest names, it forgets an attempt when five more have ended.
func testLate(t *testing.T, s suite) {
	ends := []struct {
		action  once.Action // "": it expires
		attempt int         // attempts that it adds
	}{{once.Fail, 1}, {once.Release, 0}, {"", 1}, {once.Release, 0}, {once.Fail, 1}, {"", 1}, {once.Fail, 1}, {once.Fail, 1}}
	name := s.prefix + "a"
	owner := func(i int) string { return fmt.Sprintf("%0*d", once.MaxOwner, i) }
	many := once.Terms{Lease: lease, Keep: keep}
	attempt := 0
	for i, end := range ends {
		s.acquire(t, name, owner(i), many)
		if end.action == "" {
			s.age(t, name, lease)
			r := s.apply(t, name, once.Operation{Action: once.Acquire, Owner: owner(i), Terms: many})
			if r.Outcome != once.Lost || r.Changed {
				t.Errorf("acquired again after its lease: %+v", r)
			}
		} else {
			s.end(t, name, owner(i), end.action)
		}
		attempt += end.attempt
		for before := max(0, i-4); before <= i; before++ {
			late := []once.Action{once.Acquire, once.Fail, once.Release}
			if end.action == "" && before == i {
				late = late[:1] // Fail and Release would end it: its lease has expired, but nobody has taken it over
			}
			s.isLate(t, name, owner(before), ends[before].action, late)
		}
	}
	if got := s.get(t, name); got.Attempt != attempt || len(got.Ended) > 545 || !strings.HasSuffix(got.Ended, "\t") {
		t.Errorf("in the end: %+v, want attempt %d", got, attempt)
	}
}

// isLate checks that operations of an owner whose attempt ended by an action change nothing, and
// that only that action is answered as done.
func (s suite) isLate(t *testing.T, name, owner string, ended once.Action, late []once.Action) {
	t.Helper()
	was := s.get(t, name)
	for _, a := range late {
		want := once.Lost
		if a == ended {
			want = once.OK
		}
		r := s.apply(t, name, once.Operation{Action: a, Owner: owner, Terms: once.Terms{Lease: lease, Keep: keep}, Reason: "late"})
		if r.Outcome != want || r.Changed || !same(r.State, was) {
			t.Errorf("%s by owner %s, which ended by %q: %+v, want %s and still %+v", a, owner, ended, r, want, was)
		}
	}
}

// testRefused: operations with invalid arguments, or whose context has ended, return errors, and change nothing.
func testRefused(t *testing.T, s suite) {
	free, held := s.prefix+"free", s.prefix+"held"
	before := s.acquire(t, held, me, terms).State
	good := func(a once.Action) once.Operation { return once.Operation{Action: a, Owner: me, Terms: terms} }
	for _, name := range []string{
		"", " ", "a b", "a\n", "a\x00", "\xff", "ä", "{a}", "a*", "a?", "[a]", "a,b", "a;b", "a'b", `a"b`, `a\b`, "a%b",
		strings.Repeat("a", once.MaxName+1), strings.Repeat("a", 10<<10),
	} {
		for _, a := range actionsOfAll {
			s.refuses(t, t.Context(), name, good(a), once.ErrInvalid)
		}
		s.answersNothing(t, t.Context(), name, once.ErrInvalid)
	}
	ops := []once.Operation{
		{Action: once.Acquire, Owner: "", Terms: terms},
		{Action: once.Acquire, Owner: strings.Repeat("a", once.MaxOwner+1), Terms: terms},
		{Action: once.Finish, Owner: ""},
		{Action: once.Release, Owner: strings.Repeat("a", 10<<10)},
		{Action: once.Acquire, Owner: "a\nb", Terms: terms},
		{Action: once.Acquire, Owner: "a\x00", Terms: terms},
		{Action: once.Fail, Owner: "\xff"},
		{Action: "", Owner: me},
		{Action: "steal", Owner: me},
	}
	for _, bad := range []once.Terms{
		{},
		{Lease: 0, Keep: keep},
		{Lease: -time.Second, Keep: keep},
		{Lease: once.MinLease - 1, Keep: keep},
		{Lease: once.MaxLease + 1, Keep: keep},
		{Lease: math.MaxInt64, Keep: keep},
		{Lease: lease, Keep: 0},
		{Lease: lease, Keep: -time.Second},
		{Lease: lease, Keep: once.MinKeep - 1},
		{Lease: lease, Keep: once.MaxKeep + 1},
		{Lease: lease, Keep: math.MaxInt64},
		{Lease: lease, Keep: keep, Attempts: -1},
		{Lease: lease, Keep: keep, Attempts: once.MaxAttempts + 1},
	} {
		ops = append(ops, once.Operation{Action: once.Acquire, Owner: me, Terms: bad})
	}
	for _, op := range ops {
		s.refuses(t, t.Context(), free, op, once.ErrInvalid)
		s.refuses(t, t.Context(), held, op, once.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, a := range actionsOfAll {
		s.refuses(t, ctx, held, good(a), context.Canceled)
	}
	s.answersNothing(t, ctx, held, context.Canceled)
	if list, err := s.List(ctx); !errors.Is(err, context.Canceled) || list != nil {
		t.Errorf("list: %+v, %v", list, err)
	}
	if got := s.get(t, held); !same(got, before) {
		t.Errorf("changed to %+v, from %+v", got, before)
	}
	if list := s.list(t); len(list) != 1 {
		t.Errorf("listed: %+v", list)
	}
}

func (s suite) refuses(t *testing.T, ctx context.Context, name string, op once.Operation, want error) {
	t.Helper()
	if r, err := s.Apply(ctx, name, op); !errors.Is(err, want) || r != (once.Reply{}) {
		t.Errorf("%.20q %+v: %+v, %v", name, op, r, err)
	}
}

func (s suite) answersNothing(t *testing.T, ctx context.Context, name string, want error) {
	t.Helper()
	if r, err := s.Get(ctx, name); !errors.Is(err, want) || r != (once.Reply{}) {
		t.Errorf("get %.20q: %+v, %v", name, r, err)
	}
	if forgotten, err := s.Forget(ctx, name, true); !errors.Is(err, want) || forgotten {
		t.Errorf("forget %.20q: %v, %v", name, forgotten, err)
	}
}

// testTexts: names and owners are compared byte by byte, and a reason may have any bytes.
func testTexts(t *testing.T, s suite) {
	names := []string{"a", "A", "a/", "a/b", "a-b", "a_b", "a.b", "a:b", "a@b", "a+b", "a=b", "0", "a0", "_", "-", "..", "abc", "ABC", "aBc"}
	for _, name := range names {
		s.acquire(t, s.prefix+name, name, terms)
	}
	for _, name := range names {
		if got := s.get(t, s.prefix+name); got.Owner != name || got.Attempt != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if list := s.list(t); len(list) != len(names) {
		t.Errorf("listed %d: %+v, want %d", len(list), list, len(names))
	}
	name := s.prefix + "abc"
	for _, owner := range []string{"Abc", "abc ", " abc", "ab", "abc0", "abć"} {
		if r := s.apply(t, name, once.Operation{Action: once.Acquire, Owner: owner, Terms: terms}); r.Outcome != once.Busy {
			t.Errorf("acquire by %q: %+v", owner, r)
		}
		for _, a := range actionsOfAll[1:] {
			if r := s.apply(t, name, once.Operation{Action: a, Owner: owner}); r.Outcome != once.Lost {
				t.Errorf("%s by %q: %+v", a, owner, r)
			}
		}
	}
	s.end(t, name, "abc", once.Finish)
	for i, reason := range []string{
		"", "plain", "two\nlines\r\n", "a\x00b", "\xff\xfe", "ä☃𝄞", `'"\%_`, " spaces ", strings.Repeat("\xff", 1000),
		strings.Repeat("x", once.MaxReason), strings.Repeat("x", once.MaxReason+1), strings.Repeat("ä", 5<<10), strings.Repeat("𝄞", 200), strings.Repeat("x", 1<<20),
	} {
		name, owner := s.prefix+"reasons", strconv.Itoa(i)
		s.acquire(t, name, owner, once.Terms{Lease: lease, Keep: keep})
		r := s.apply(t, name, once.Operation{Action: once.Fail, Owner: owner, Reason: reason})
		want := once.CutReason(reason)
		if r.State.Reason != want || s.get(t, name).Reason != want || len(want) > once.MaxReason {
			t.Errorf("%.20q: answered %.20q, stored %.20q, want %.20q", reason, r.State.Reason, s.get(t, name).Reason, want)
		}
	}
}

func testMaxima(t *testing.T, s suite) {
	name := s.prefix + strings.Repeat("z", once.MaxName-len(s.prefix))
	owner := strings.Repeat("o", once.MaxOwner)
	longest := once.Terms{Lease: once.MaxLease, Keep: once.MaxKeep, Attempts: once.MaxAttempts}
	r := s.acquire(t, name, owner, longest)
	want := once.State{
		Phase: once.Held, Owner: owner, Attempt: 1, Terms: longest, Fence: r.State.Fence, Began: r.State.Began,
		Until: r.Now.Add(once.MaxLease), ForgetAt: r.Now.Add(once.MaxLease + once.MaxKeep),
	}
	if r.State != want {
		t.Errorf("acquired %+v\nwant %+v", r.State, want)
	}
	s.end(t, name, owner, once.Extend)
	if r := s.end(t, name, owner, once.Finish); !r.State.ForgetAt.Equal(r.Now.Add(once.MaxKeep)) {
		t.Errorf("done: %+v", r)
	}
	if list := s.list(t); len(list) != 1 || list[0].Name != name || !same(list[0].State, s.get(t, name)) {
		t.Errorf("listed: %+v", list)
	}
	shortest := once.Terms{Lease: once.MinLease, Keep: once.MinKeep, Attempts: 1}
	if r := s.acquire(t, s.prefix+"a", "o", shortest); r.State.Terms != shortest || !r.State.ForgetAt.Equal(r.Now.Add(once.MinLease+once.MinKeep)) {
		t.Errorf("shortest: %+v", r)
	}
}

// Many that acquire and fail as fast as they can have so many attempts in all, in order, and one owner at a time.
func testAttempts(t *testing.T, s suite) {
	const attempts = 40
	name := s.prefix + "a"
	begun := make(chan once.State, 2*attempts)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { s.failAll(t, name, i, attempts, begun) })
	}
	all.Wait()
	close(begun)
	fences := make(map[int]once.Fence)
	for state := range begun {
		if _, twice := fences[state.Attempt]; twice {
			t.Errorf("attempt %d was begun twice", state.Attempt)
		}
		fences[state.Attempt] = state.Fence
	}
	if len(fences) != attempts {
		t.Errorf("%d attempts, want %d", len(fences), attempts)
	}
	for n := 2; n <= attempts; n++ {
		if fences[n] <= fences[n-1] {
			t.Errorf("fence %v of attempt %d after %v", fences[n], n, fences[n-1])
		}
	}
	if got := s.get(t, name); got.Phase != once.Exhausted || got.Attempt != attempts {
		t.Errorf("in the end: %+v", got)
	}
}

// failAll acquires and fails until there is no attempt left.
func (s suite) failAll(t *testing.T, name string, process, attempts int, begun chan<- once.State) {
	t.Helper()
	for n := 0; ; n++ {
		owner := fmt.Sprintf("%d/%d", process, n)
		r, err := s.Apply(t.Context(), name, once.Operation{Action: once.Acquire, Owner: owner, Terms: once.Terms{Lease: lease, Keep: keep, Attempts: attempts}})
		switch {
		case err != nil:
			t.Error(err)
			return
		case r.Outcome == once.OutOfAttempts:
			return
		case r.Outcome == once.Busy:
			continue
		}
		begun <- r.State
		if r, err := s.Apply(t.Context(), name, once.Operation{Action: once.Fail, Owner: owner}); err != nil || r.Outcome != once.OK {
			t.Errorf("fail: %+v, %v", r, err)
			return
		}
	}
}
