package admit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/member"
)

// crowd enters reads of one limiter, each as another viewer, in goroutines of its own.
type crowd struct {
	t      *testing.T
	l      *admit.Limiter
	viewer member.ID
}

type attempt struct {
	began time.Time
	place admit.Place
	err   error
	after time.Duration
	done  atomic.Bool // then the others are set

	paused, resumed, walks bool
}

func (c *crowd) enter() *attempt {
	c.viewer++
	return c.enterAs(admit.By{Viewer: c.viewer})
}

func (c *crowd) enterMany(n int) (all []*attempt) {
	for range n {
		all = append(all, c.enter())
	}
	return all
}

// enterAs returns when the read is in, or refused, or waits.
func (c *crowd) enterAs(by admit.By) *attempt {
	a := &attempt{}
	a.do(func() { a.place, a.err = c.l.Enter(c.t.Context(), by) })
	return a
}

// resume does so, for a read that is paused.
func (a *attempt) resume(ctx context.Context) {
	a.paused, a.resumed = false, true
	a.do(func() { a.err = a.place.Resume(ctx) })
}

// do returns when f ended, or waits.
func (a *attempt) do(f func()) {
	a.began = time.Now()
	a.done.Store(false)
	go func() {
		f()
		a.after = time.Since(a.began)
		a.done.Store(true)
	}()
	synctest.Wait()
}

func (a *attempt) isIn() bool      { return a.isDone() && a.err == nil }
func (a *attempt) isRefused() bool { return a.isDone() && errors.Is(a.err, admit.ErrBusy) }
func (a *attempt) waits() bool     { return !a.isDone() }

func (a *attempt) isDone() bool {
	synctest.Wait()
	return a.done.Load()
}

func test(t *testing.T, o admit.Options, f func(t *testing.T, c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &crowd{t: t, l: admit.New(o)}) })
}

// In a burst all wait for their turn, in order. What lasts is an overload: then few wait, for a
// short time, and the newest is let in first.
func TestABurstWaitsAndAnOverloadIsRefused(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 2, Most: 2}, func(t *testing.T, c *crowd) {
		in := []*attempt{c.enter(), c.enter()}
		burst := c.enterMany(100)
		in[0].place.Leave(true)
		in[0].place.Leave(true) // counts once
		if !in[1].isIn() || !burst[0].isIn() || !burst[1].waits() {
			t.Error("not the oldest of a burst is let in, or not it alone")
		}
		for _, b := range burst[:99] {
			<-time.After(900 * time.Microsecond)
			if !b.isIn() {
				t.Fatalf("one of a burst is refused: %v", b.err)
			}
			b.place.Leave(true)
		}
		if !burst[99].isIn() {
			t.Error("the last of the burst is not let in")
		}

		waiting := c.enter()
		for range 9 { // there is always one that waits
			<-time.After(10 * time.Millisecond)
			next := c.enter()
			burst[99].place.Leave(false)
			if burst[99], waiting = waiting, next; !burst[99].isIn() {
				t.Fatal("it is not let in")
			}
		}
		if c.l.Busy() {
			t.Error("it is busy where none was refused")
		}
		<-time.After(10 * time.Millisecond)
		newer, third := c.enter(), c.enter()
		if !waiting.waits() || !newer.waits() || !third.isRefused() || third.after != 0 || !c.l.Busy() || !c.l.Refuses(admit.By{}) {
			t.Error("in an overload more wait than may be under way")
		}
		burst[99].place.Leave(false)
		if !newer.isIn() || c.l.Refuses(admit.By{}) {
			t.Error("in an overload not the newest is let in, or that makes no room")
		}
		<-time.After(10 * time.Millisecond)
		last := c.enter()
		if !last.waits() {
			t.Error("one that comes does not wait")
		}
		<-time.After(11 * time.Millisecond)
		if !last.isRefused() || last.after != 10*time.Millisecond {
			t.Errorf("in an overload it is refused after %v", last.after)
		}
		<-time.After(3 * time.Second)
		if c.l.Busy() {
			t.Error("it is busy for ever")
		}
	})
}

// What waits in a burst is bounded, too.
func TestABurstIsBounded(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 1, Most: 1}, func(t *testing.T, c *crowd) {
		all := c.enterMany(1 + 256 + 10)
		for i, a := range all {
			if i > 256 != a.isRefused() {
				t.Fatalf("%d: %v", i, a.err)
			}
		}
		<-time.After(100 * time.Millisecond)
		for i, a := range all[1:257] {
			if !a.isRefused() || a.after != 100*time.Millisecond {
				t.Fatalf("%d: %v after %v", i, a.err, a.after)
			}
		}
	})
}

// While nobody else waits, all is for one. Where others do, all have the same.
func TestCallersAndViewersAreTreatedFairly(t *testing.T) {
	t.Parallel()
	const all = 256 // that wait
	for name, by := range map[string]struct{ greedy, modest, another admit.By }{
		"callers": {admit.By{Caller: "greedy", Viewer: 1}, admit.By{Caller: "modest", Viewer: 2}, admit.By{Caller: "another", Viewer: 3}},
		"viewers": {admit.By{Viewer: 1}, admit.By{Viewer: 2}, admit.By{Viewer: 3}},
	} {
		test(t, admit.Options{Least: 8, Most: 8}, func(t *testing.T, c *crowd) {
			var in, waiting []*attempt
			for range 8 {
				in = append(in, c.enterAs(by.greedy))
			}
			for range all {
				waiting = append(waiting, c.enterAs(by.greedy))
			}
			if !in[7].isIn() || !waiting[0].waits() || !waiting[all-1].waits() {
				t.Fatalf("%s: not all is for one while nobody else waits", name)
			}
			if !c.l.Refuses(by.greedy) || c.l.Refuses(by.modest) || c.l.Refuses(admit.By{Caller: by.modest.Caller}) {
				t.Errorf("%s: not those are refused of which the most wait", name)
			}
			if one := c.enterAs(by.greedy); !errors.Is(one.err, admit.ErrShare) || !errors.Is(one.err, admit.ErrBusy) {
				t.Errorf("%s: more than its share: %v", name, one.err)
			}
			modest := c.enterAs(by.modest)
			if !modest.waits() || !waiting[0].isRefused() || !errors.Is(waiting[0].err, admit.ErrShare) || !waiting[1].waits() {
				t.Errorf("%s: not the oldest of those of which the most wait is refused: %v", name, waiting[0].err)
			}
			another := c.enterAs(by.another)
			in[0].place.Leave(false)
			in[1].place.Leave(false)
			if !modest.isIn() || !another.isIn() || !waiting[2].waits() {
				t.Errorf("%s: not those with the fewest under way are the next", name)
			}
			more := c.enterAs(by.modest)
			in[2].place.Leave(false)
			if !more.isIn() {
				t.Errorf("%s: one under way and 5 of another are the same", name)
			}
		})
	}
}

// In an overload half of the places are for reads that do not walk. Otherwise all may walk.
func TestWalksHaveHalfOfThePlacesInAnOverload(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 6, Most: 6}, func(t *testing.T, c *crowd) {
		in := c.enterMany(6)
		for i, a := range in {
			if !a.place.Walk() {
				t.Fatalf("walk %d is refused where there is no overload", i)
			}
		}
		waiting := c.enter()
		<-time.After(100 * time.Millisecond)
		if !waiting.isRefused() || !c.l.Busy() {
			t.Fatal("there is no overload")
		}
		in[0].place.Leave(false)
		next := c.enter()
		if next.place.Walk() || !in[1].place.Walk() {
			t.Error("a sixth walk is let in, or a read may not go on walking")
		}
		for _, a := range in[1:4] {
			a.place.Leave(false)
		}
		if !next.place.Walk() || c.enter().place.Walk() {
			t.Error("walks do not have half of the places")
		}
	})
	// What is missing comes back under any load.
	test(t, admit.Options{Least: 1, Most: 1}, func(t *testing.T, c *crowd) {
		first, late := c.enter(), c.enter()
		<-time.After(100 * time.Millisecond)
		if !late.isRefused() || !first.place.Walk() {
			t.Error("the only read may not walk")
		}
	})
}

// A read that waits for Redis has no place meanwhile, and takes one as any other afterwards.
func TestAReadThatPausesLeavesRoom(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 2, Most: 2}, func(t *testing.T, c *crowd) {
		in := c.enterMany(2)
		waiting := c.enterMany(2)
		in[0].place.Pause()
		in[0].place.Pause()
		if !waiting[0].isIn() || !waiting[1].waits() {
			t.Fatal("what is paused leaves no room, or too much")
		}
		in[0].resume(t.Context())
		if !in[0].waits() {
			t.Fatal("it goes on where there is no room")
		}
		in[1].resume(t.Context()) // it was not paused
		in[1].place.Pause()
		if !in[1].isIn() || !waiting[1].waits() {
			t.Error("it pauses once more")
		}
		in[1].place.Leave(false)
		waiting[0].place.Leave(false)
		if !waiting[1].isIn() || !in[0].isIn() {
			t.Error("what waits is not let in")
		}
		for _, a := range []*attempt{in[0], waiting[1]} {
			a.place.Pause()
			a.place.Leave(false)
		}
		if used, _, kept := c.l.Held(); used != 0 || kept != 0 {
			t.Errorf("%d are under way and %d names are kept", used, kept)
		}
	})
	// In an overload, too, it waits for as long as in a burst, and comes before others.
	test(t, admit.Options{Least: 1, Most: 1}, func(t *testing.T, c *crowd) {
		paused := c.enter()
		paused.place.Pause()
		other, late := c.enter(), c.enter()
		<-time.After(100 * time.Millisecond)
		if !late.isRefused() || !c.l.Busy() {
			t.Fatal("there is no overload")
		}
		paused.resume(t.Context())
		<-time.After(20 * time.Millisecond)
		newer := c.enter()
		other.place.Leave(false)
		if !paused.isIn() || newer.isIn() {
			t.Errorf("it is not let in, or not as the first one: %v", paused.err)
		}
	})
	// It may leave while it waits.
	test(t, admit.Options{Least: 1, Most: 1}, func(t *testing.T, c *crowd) {
		paused := c.enter()
		paused.place.Pause()
		other := c.enter()
		paused.resume(t.Context())
		paused.place.Leave(false)
		other.place.Leave(false)
		if used, _, kept := c.l.Held(); paused.isIn() || used != 0 || kept != 0 {
			t.Errorf("%d are under way and %d names are kept", used, kept)
		}
	})
	// It may be refused, too; then it has nothing to leave.
	test(t, admit.Options{Least: 1, Most: 1}, func(t *testing.T, c *crowd) {
		paused := c.enter()
		paused.place.Pause()
		other := c.enter()
		paused.resume(t.Context())
		<-time.After(100 * time.Millisecond)
		if !paused.isRefused() {
			t.Fatalf("%v, want ErrBusy", paused.err)
		}
		paused.place.Leave(false)
		other.place.Leave(false)
		if used, _, kept := c.l.Held(); used != 0 || kept != 0 {
			t.Errorf("%d are under way and %d names are kept", used, kept)
		}
	})
}

func TestAClientThatLeavesLeavesNothing(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 1, Most: 1}, func(t *testing.T, c *crowd) {
		ctx, cancel := context.WithCancelCause(t.Context())
		first := c.enter()
		failed := make(chan error)
		go func() {
			_, err := c.l.Enter(ctx, admit.By{})
			failed <- err
		}()
		synctest.Wait()
		gone := errors.New("gone")
		cancel(gone)
		if err := <-failed; !errors.Is(err, gone) {
			t.Errorf("%v, want the cause", err)
		}
		first.place.Leave(false)
		if used, _, kept := c.l.Held(); used != 0 || kept != 0 {
			t.Errorf("%d are under way and %d names are kept", used, kept)
		}
	})
}

// Whatever comes, pauses, walks and leaves: after each step no more is under way than may be, nothing
// waits where there is room, or for long, and what is kept is of what is there.
func TestInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 30).Draw(rt, "most")
		test(t, admit.Options{Least: rapid.IntRange(1, most).Draw(rt, "least"), Most: most}, func(t *testing.T, c *crowd) {
			var all []*attempt
			one := func(is func(*attempt) bool) *attempt {
				if i := slices.IndexFunc(all, is); i >= 0 {
					return all[i]
				}
				return nil
			}
			isUnderWay := func(a *attempt) bool { return a.isIn() && !a.paused }
			rt.Repeat(map[string]func(*rapid.T){
				"enter": func(rt *rapid.T) {
					by := admit.By{Caller: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "caller"), Viewer: member.ID(rapid.IntRange(1, 40).Draw(rt, "viewer"))}
					refuses := c.l.Refuses(by)
					a := c.enterAs(by)
					if refuses != a.isRefused() {
						rt.Fatalf("Refuses says %v, and Enter %v", refuses, a.err)
					}
					all = append(all, a)
				},
				"pause": func(*rapid.T) {
					if a := one(isUnderWay); a != nil {
						a.place.Pause()
						a.paused = !a.resumed
					}
				},
				"resume": func(*rapid.T) {
					if a := one(func(a *attempt) bool { return a.paused }); a != nil {
						a.resume(t.Context())
					}
				},
				"walk": func(rt *rapid.T) {
					if a := one(func(a *attempt) bool { return isUnderWay(a) && !a.walks }); a != nil {
						_, walks, _ := c.l.Held()
						a.walks = a.place.Walk()
						if !a.walks && 2*(walks+1) <= c.l.Limit() {
							rt.Fatalf("%d of %d walk, and one more is refused", walks, c.l.Limit())
						}
					}
				},
				"leave": func(rt *rapid.T) {
					if a := one(func(a *attempt) bool { return a.paused || a.isIn() }); a != nil {
						a.place.Leave(rapid.Bool().Draw(rt, "proven"))
						all = slices.Delete(all, slices.Index(all, a), slices.Index(all, a)+1)
					}
				},
				"pass": func(rt *rapid.T) {
					<-time.After(time.Duration(rapid.IntRange(1, 100).Draw(rt, "ms")) * time.Millisecond)
				},
				"": func(rt *rapid.T) {
					if wrong := c.wrong(all); wrong != "" {
						rt.Fatal(wrong)
					}
				},
			})
			for {
				a := one(func(a *attempt) bool { return a.paused || a.isIn() })
				if a == nil {
					break
				}
				a.place.Leave(true)
				all = slices.Delete(all, slices.Index(all, a), slices.Index(all, a)+1)
			}
			<-time.After(time.Second)
			for _, a := range all {
				if a.place != nil { // it was refused when it came back
					a.place.Leave(false)
				}
			}
			if used, walks, kept := c.l.Held(); used != 0 || walks != 0 || kept != 0 || slices.ContainsFunc(all, (*attempt).waits) {
				rt.Fatalf("in the end %d are under way, %d walk, and %d names are kept", used, walks, kept)
			}
		})
	})
}

// wrong returns which invariant does not hold.
func (c *crowd) wrong(all []*attempt) string {
	const longest = 100 * time.Millisecond // that a read waits
	var underWay, waiting, walk int
	for _, a := range all {
		if a.walks {
			walk++
		}
		switch {
		case a.paused:
		case a.isIn():
			underWay++
		case a.isRefused() && a.after > longest, a.waits() && time.Since(a.began) > longest:
			return "a read waits for too long"
		case a.waits():
			waiting++
		}
	}
	used, walks, kept := c.l.Held()
	limit := c.l.Limit()
	switch there := underWay + waiting; {
	case walks != walk:
		return fmt.Sprintf("%d walk, want %d", walks, walk)
	case used != underWay:
		return fmt.Sprintf("%d are under way, want %d", used, underWay)
	case kept > 2*there || there > 0 && kept < 2:
		return fmt.Sprintf("of %d reads %d names and viewers are kept", there, kept)
	case waiting > 256:
		return fmt.Sprintf("%d wait", waiting)
	case waiting > 0 && used < limit:
		return fmt.Sprintf("a read waits with %d of %d under way", used, limit)
	}
	return ""
}

// A crowd ten times as large as what can be answered: nearly all that can be answered is, in about
// the time that it takes with few under way.
func TestOverloadLeavesTheThroughput(t *testing.T) {
	t.Parallel()
	for name, world := range map[string]struct {
		cores int           // that work on reads: each read takes work on one of them,
		work  time.Duration // and more reads than cores take turns
		away  time.Duration // and this long elsewhere, whatever is under way
		each  time.Duration // a read comes so often
		want  float64       // good answers a second, at least
		most  time.Duration // the slowest of them
	}{
		"two cores":                  {2, time.Millisecond, 0, 50 * time.Microsecond, 1800, 60 * time.Millisecond},
		"one that is slow":           {2, 10 * time.Millisecond, 0, 500 * time.Microsecond, 180, 200 * time.Millisecond},
		"a database that is far":     {16, time.Millisecond, 20 * time.Millisecond, 100 * time.Microsecond, 900, 80 * time.Millisecond},
		"as much as can be answered": {2, time.Millisecond, 0, 550 * time.Microsecond, 1650, 60 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := admit.New(admit.Options{})
				cores := make(chan struct{}, world.cores)
				var good, slow atomic.Int64
				var all sync.WaitGroup
				const lasts = 4 * time.Second
				for began, i := time.Now(), 0; time.Since(began) < lasts; i++ {
					all.Go(func() {
						start := time.Now()
						p, err := l.Enter(t.Context(), admit.By{Viewer: member.ID(i)})
						if err != nil {
							return
						}
						cores <- struct{}{}
						<-time.After(world.work)
						<-cores
						<-time.After(world.away)
						p.Leave(true)
						if time.Since(began) > lasts/2 {
							good.Add(1)
							slow.Store(max(slow.Load(), int64(time.Since(start))))
						}
					})
					<-time.After(world.each)
				}
				all.Wait()
				if rate := float64(good.Load()) / (lasts / 2).Seconds(); rate < world.want || time.Duration(slow.Load()) > world.most {
					t.Errorf("%.0f good answers a second, the slowest after %v; want %.0f within %v", rate, time.Duration(slow.Load()), world.want, world.most)
				}
			})
		})
	}
}
