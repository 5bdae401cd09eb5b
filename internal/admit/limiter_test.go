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
	class  admit.Class // as it last turned out to be
	turned bool        // not to wait for Redis
	began  time.Time
	place  admit.Place
	err    error
	after  time.Duration
	done   atomic.Bool // then the others are set
}

func (c *crowd) enter(class admit.Class, caller string) *attempt {
	c.viewer++
	return c.enterAs(class, admit.By{Caller: caller, Viewer: c.viewer})
}

func (c *crowd) enterMany(class admit.Class, caller string, n int) (all []*attempt) {
	for range n {
		all = append(all, c.enter(class, caller))
	}
	return all
}

// enterAs returns when the read is in, or refused, or waits.
func (c *crowd) enterAs(class admit.Class, by admit.By) *attempt {
	a := &attempt{class: class, began: time.Now()}
	go func() {
		a.place, a.err = c.l.Enter(c.t.Context(), class, by)
		a.after = time.Since(a.began)
		a.done.Store(true)
	}()
	synctest.Wait()
	return a
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
		in := []*attempt{c.enter(admit.Proven, ""), c.enter(admit.Proven, "")}
		burst := c.enterMany(admit.Proven, "", 100)
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

		waiting := c.enter(admit.Proven, "")
		for range 9 { // there is always one that waits
			<-time.After(10 * time.Millisecond)
			next := c.enter(admit.Proven, "")
			burst[99].place.Leave(false)
			if burst[99], waiting = waiting, next; !burst[99].isIn() {
				t.Fatal("it is not let in")
			}
		}
		if c.l.Busy() {
			t.Error("it is busy where none was refused")
		}
		<-time.After(10 * time.Millisecond)
		newer, third := c.enter(admit.Proven, ""), c.enter(admit.Proven, "")
		if !waiting.waits() || !newer.waits() || !third.isRefused() || third.after != 0 || !c.l.Busy() || !c.l.Refuses(admit.By{}) {
			t.Error("in an overload more wait than may be under way")
		}
		burst[99].place.Leave(false)
		if !newer.isIn() || c.l.Refuses(admit.By{}) {
			t.Error("in an overload not the newest is let in, or that makes no room")
		}
		<-time.After(10 * time.Millisecond)
		last := c.enter(admit.Proven, "")
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
		all := c.enterMany(admit.Proven, "", 1+256+10)
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
				in = append(in, c.enterAs(admit.Proven, by.greedy))
			}
			for range all {
				waiting = append(waiting, c.enterAs(admit.Proven, by.greedy))
			}
			if !in[7].isIn() || !waiting[0].waits() || !waiting[all-1].waits() {
				t.Fatalf("%s: not all is for one while nobody else waits", name)
			}
			if !c.l.Refuses(by.greedy) || c.l.Refuses(by.modest) || c.l.Refuses(admit.By{Caller: by.modest.Caller}) {
				t.Errorf("%s: not those are refused of which the most wait", name)
			}
			if one := c.enterAs(admit.Proven, by.greedy); !errors.Is(one.err, admit.ErrShare) || !errors.Is(one.err, admit.ErrBusy) {
				t.Errorf("%s: more than its share: %v", name, one.err)
			}
			modest := c.enterAs(admit.Proven, by.modest)
			if !modest.waits() || !waiting[0].isRefused() || !errors.Is(waiting[0].err, admit.ErrShare) || !waiting[1].waits() {
				t.Errorf("%s: not the oldest of those of which the most wait is refused: %v", name, waiting[0].err)
			}
			another := c.enterAs(admit.Proven, by.another)
			in[0].place.Leave(false)
			in[1].place.Leave(false)
			if !modest.isIn() || !another.isIn() || !waiting[2].waits() {
				t.Errorf("%s: not those with the fewest under way are the next", name)
			}
			more := c.enterAs(admit.Proven, by.modest)
			in[2].place.Leave(false)
			if !more.isIn() {
				t.Errorf("%s: one under way and 5 of another are the same", name)
			}
		})
	}
}

// Walks weigh three each. While reads wait, they have half of the places, and so have reads while
// walks wait.
func TestWalksHaveAShareOfTheirOwn(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 12, Most: 12}, func(t *testing.T, c *crowd) {
		walks := c.enterMany(admit.Walk, "", 5)
		if !walks[3].isIn() || !walks[4].waits() {
			t.Fatal("not all is for walks while no read waits")
		}
		if free := c.enter(admit.FreeWalk, ""); !free.isRefused() || free.after != 0 || c.l.Busy() {
			t.Error("a walk that is not needed waits, or is let in, or counts as refused")
		}
		reads := c.enterMany(admit.Proven, "", 7)
		if !reads[0].waits() {
			t.Fatal("the weight of the walks is not three each")
		}
		walks[0].place.Leave(false)
		walks[1].place.Leave(false)
		if !reads[5].isIn() || !reads[6].waits() || !walks[4].waits() {
			t.Error("reads have not half of the places while walks wait")
		}
		walks[2].place.Leave(false)
		if !walks[4].isIn() || !reads[6].waits() {
			t.Error("walks have not half of the places while reads wait")
		}
		more := c.enter(admit.Walk, "")
		walks[3].place.Leave(false)
		if !more.isIn() {
			t.Error("what another walk leaves is not for a walk")
		}
		reads[0].place.Turn(admit.Walk) // weighs more, and is let go on
		reads[1].place.Leave(false)
		if !reads[6].waits() {
			t.Error("what turns out to be a walk weighs no more")
		}
		reads[2].place.Turn(admit.Waiting)
		reads[3].place.Turn(admit.Waiting)
		reads[3].place.Turn(admit.Waiting)
		if !reads[6].isIn() {
			t.Error("what waits for Redis weighs something")
		}
		reads[2].place.Turn(admit.Proven)
		reads[2].place.Turn(admit.Waiting)
		if used, _ := c.l.Held(); used != 3+3+3+1+0+1+1+1 {
			t.Errorf("a weight of %d", used)
		}
	})
	test(t, admit.Options{Least: 12, Most: 12}, func(t *testing.T, c *crowd) {
		walks, reads := c.enterMany(admit.Walk, "", 4), c.enterMany(admit.Proven, "", 12)
		walk := c.enter(admit.Walk, "")
		for _, w := range walks {
			w.place.Leave(false)
		}
		if !walk.isIn() || !reads[8].isIn() || !reads[9].waits() {
			t.Error("when no walk waits any more, reads have not what is left")
		}
	})
	// Sets that are missing come back under any load.
	test(t, admit.Options{Least: 1, Most: 1}, func(t *testing.T, c *crowd) {
		if read, walk := c.enter(admit.Proven, ""), c.enter(admit.Walk, ""); !read.isIn() || !walk.isIn() {
			t.Error("no walk is let in where nothing else has room")
		}
	})
}

func TestAClientThatLeavesLeavesNothing(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 1, Most: 1}, func(t *testing.T, c *crowd) {
		ctx, cancel := context.WithCancelCause(t.Context())
		first := c.enter(admit.Proven, "")
		failed := make(chan error)
		go func() {
			_, err := c.l.Enter(ctx, admit.Proven, admit.By{})
			failed <- err
		}()
		synctest.Wait()
		gone := errors.New("gone")
		cancel(gone)
		if err := <-failed; !errors.Is(err, gone) {
			t.Errorf("%v, want the cause", err)
		}
		first.place.Leave(false)
		if used, kept := c.l.Held(); used != 0 || kept != 0 {
			t.Errorf("a weight of %d and %d names are kept", used, kept)
		}
	})
}

// Whatever comes, turns and leaves: after each step what is under way weighs what it must, nothing
// waits where there is room, or for long, and what is kept is of what is there.
func TestInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 30).Draw(rt, "most")
		test(t, admit.Options{Least: rapid.IntRange(1, most).Draw(rt, "least"), Most: most}, func(_ *testing.T, c *crowd) {
			var all []*attempt
			rt.Repeat(map[string]func(*rapid.T){
				"enter": func(rt *rapid.T) {
					class := rapid.SampledFrom([]admit.Class{admit.Proven, admit.Proven, admit.Walk, admit.FreeWalk}).Draw(rt, "class")
					by := admit.By{Caller: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "caller"), Viewer: member.ID(rapid.IntRange(1, 40).Draw(rt, "viewer"))}
					refuses := c.l.Refuses(by)
					a := c.enterAs(class, by)
					if class == admit.Proven && refuses != a.isRefused() {
						rt.Fatalf("Refuses says %v, and Enter %v", refuses, a.err)
					}
					all = append(all, a)
				},
				"turn": func(rt *rapid.T) {
					to := rapid.SampledFrom([]admit.Class{admit.Waiting, admit.Proven, admit.Compared}).Draw(rt, "to")
					if i := slices.IndexFunc(all, func(a *attempt) bool { return a.isIn() && a.class < admit.Walk || a.class == admit.Waiting }); i >= 0 {
						all[i].place.Turn(to)
						if to != admit.Waiting || !all[i].turned {
							all[i].class, all[i].turned = to, to != admit.Waiting
						}
					}
				},
				"leave": func(rt *rapid.T) {
					if i := slices.IndexFunc(all, (*attempt).isIn); i >= 0 {
						all[i].place.Leave(rapid.Bool().Draw(rt, "proven"))
						all = slices.Delete(all, i, i+1)
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
				synctest.Wait()
				i := slices.IndexFunc(all, (*attempt).isIn)
				if i < 0 {
					break
				}
				all[i].place.Leave(true)
				all = slices.Delete(all, i, i+1)
			}
			<-time.After(time.Second)
			synctest.Wait()
			if used, kept := c.l.Held(); used != 0 || kept != 0 || slices.ContainsFunc(all, (*attempt).waits) {
				rt.Fatalf("in the end a weight of %d is under way, and %d names are kept", used, kept)
			}
		})
	})
}

// longest is for how long a read, or a walk, waits at most.
func longest(isWalk bool) time.Duration {
	if isWalk {
		return 500 * time.Millisecond
	}
	return 100 * time.Millisecond
}

// wrong returns which invariant does not hold.
func (c *crowd) wrong(all []*attempt) string {
	var weight, walks, waitingReads, waitingWalks, there int
	for _, a := range all {
		switch isWalk := a.class == admit.Walk || a.class == admit.FreeWalk; {
		case a.isIn() && isWalk:
			walks += admit.Weight(a.class)
			fallthrough
		case a.isIn():
			weight += admit.Weight(a.class)
			there++
		case a.isRefused() && a.after > longest(isWalk), a.waits() && time.Since(a.began) > longest(isWalk):
			return "a read waits for too long"
		case a.waits() && a.class == admit.FreeWalk:
			return "a walk that is not needed waits"
		case a.waits() && isWalk:
			waitingWalks++
			there++
		case a.waits():
			waitingReads++
			there++
		}
	}
	used, kept := c.l.Held()
	limit := c.l.Limit()
	switch {
	case used != weight:
		return fmt.Sprintf("a weight of %d is under way, want %d", used, weight)
	case kept > 2*there || there > 0 && kept < 2:
		return fmt.Sprintf("of %d reads %d names and viewers are kept", there, kept)
	case waitingReads > 256 || waitingWalks > 256:
		return fmt.Sprintf("%d reads and %d walks wait", waitingReads, waitingWalks)
	case waitingReads > 0 && used < limit && (waitingWalks == 0 || 2*(used-walks) < limit):
		return fmt.Sprintf("a read waits with a weight of %d of %d under way, of which walks have %d", used, limit, walks)
	case waitingWalks > 0 && (walks == 0 || used+3 <= limit && (waitingReads == 0 || 2*(walks+3) <= limit)):
		return fmt.Sprintf("a walk waits with a weight of %d of %d under way, of which walks have %d", used, limit, walks)
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
						p, err := l.Enter(t.Context(), admit.Proven, admit.By{Viewer: member.ID(i)})
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
