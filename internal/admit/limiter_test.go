package admit_test

import (
	"context"
	"errors"
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
	place admit.Place
	err   error
	after time.Duration
	done  atomic.Bool // then the others are set
}

func (c *crowd) enter(class admit.Class, caller string) *attempt {
	c.viewer++
	return c.enterAs(class, admit.By{Caller: caller, Viewer: c.viewer})
}

// enterAs returns when the read is in, or refused, or waits.
func (c *crowd) enterAs(class admit.Class, by admit.By) *attempt {
	a := &attempt{}
	began := time.Now()
	go func() {
		a.place, a.err = c.l.Enter(c.t.Context(), class, by)
		a.after = time.Since(began)
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

func TestTheNewestIsLetInFirst(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 2, Most: 2}, func(t *testing.T, c *crowd) {
		first, second := c.enter(admit.Proven, ""), c.enter(admit.Proven, "")
		var waiting []*attempt
		for range 4 {
			waiting = append(waiting, c.enter(admit.Proven, ""))
		}
		if !first.isIn() || !second.isIn() || !waiting[0].waits() {
			t.Fatal("not two are in, or the third does not wait")
		}
		newest := c.enter(admit.Proven, "")
		if !waiting[0].isRefused() || waiting[0].after != 0 || !waiting[1].waits() {
			t.Error("the oldest was not refused when too many wait")
		}
		first.place.Leave(true)
		first.place.Leave(true) // counts once
		synctest.Wait()
		if !newest.isIn() || !waiting[3].waits() {
			t.Error("the newest was not let in, or not it alone")
		}
		<-time.After(50 * time.Millisecond)
		synctest.Wait()
		for i, w := range waiting[1:] {
			if !w.isRefused() || w.after != 50*time.Millisecond {
				t.Errorf("%d: %v after %v", i, w.err, w.after)
			}
		}
	})
}

func TestCallersAndViewersAreTreatedFairly(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 8, Most: 8}, func(t *testing.T, c *crowd) {
		var in, many []*attempt
		for range 8 {
			in = append(in, c.enter(admit.Proven, "greedy"))
		}
		few := c.enter(admit.Proven, "modest")
		for range 16 {
			many = append(many, c.enter(admit.Proven, "greedy"))
		}
		if !few.waits() || !many[0].isRefused() || !many[1].waits() {
			t.Error("not the oldest of the caller of which the most wait was refused")
		}
		in[0].place.Leave(false)
		synctest.Wait()
		if !few.isIn() || !many[15].waits() {
			t.Error("the caller with the fewest under way was not the next")
		}
		in[1].place.Leave(false)
		synctest.Wait()
		if !many[15].isIn() {
			t.Error("the newest of the only caller that waits was not the next")
		}

		same := admit.By{Caller: "modest", Viewer: 7777}
		one, two, three := c.enterAs(admit.Proven, same), c.enterAs(admit.Proven, same), c.enterAs(admit.Proven, same)
		if !one.waits() || !two.waits() || !three.isRefused() || three.after != 0 {
			t.Error("a viewer has more than a quarter of the places")
		}
	})
}

func TestWalksHaveAShareOfTheirOwn(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 12, Most: 12}, func(t *testing.T, c *crowd) {
		first, second, third := c.enter(admit.Walk, ""), c.enter(admit.Walk, ""), c.enter(admit.Walk, "")
		if !first.isIn() || !second.isIn() || !third.waits() {
			t.Fatal("walks have not half of the places")
		}
		if free := c.enter(admit.FreeWalk, ""); !free.isRefused() || free.after != 0 {
			t.Error("a walk that is not needed waits, or is let in")
		}
		var reads []*attempt
		for range 6 {
			reads = append(reads, c.enter(admit.Proven, ""))
		}
		waiting := c.enter(admit.Proven, "")
		if !reads[5].isIn() || !waiting.waits() {
			t.Error("the weight of the walks is not three each")
		}
		first.place.Leave(false)
		second.place.Leave(false)
		synctest.Wait()
		if !waiting.isIn() || !third.isIn() {
			t.Error("they are not let in when there is room")
		}
		reads[0].place.Turn(admit.Walk) // weighs more, and is let go on
		for range 20 {
			reads = append(reads, c.enter(admit.Proven, ""))
		}
		older, newer := c.enter(admit.Walk, ""), c.enter(admit.Walk, "")
		third.place.Leave(false)
		synctest.Wait()
		if !older.waits() || !newer.isIn() {
			t.Error("more than one walk is let in while reads wait, or none, or not the newest")
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

// Whatever comes, turns and leaves: what is said of the limiter holds after each step.
func TestInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 30).Draw(rt, "most")
		test(t, admit.Options{Least: rapid.IntRange(1, most).Draw(rt, "least"), Most: most}, func(t *testing.T, c *crowd) {
			var all []*attempt
			heaviest := 0 // by how much reads turned out to weigh more
			rt.Repeat(map[string]func(*rapid.T){
				"enter": func(rt *rapid.T) {
					class := rapid.SampledFrom([]admit.Class{admit.Proven, admit.Proven, admit.Walk, admit.FreeWalk}).Draw(rt, "class")
					all = append(all, c.enterAs(class, admit.By{
						Caller: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "caller"), Viewer: member.ID(rapid.IntRange(1, 40).Draw(rt, "viewer")),
					}))
				},
				"turn": func(rt *rapid.T) {
					for _, a := range all {
						if a.isIn() {
							a.place.Turn(admit.Compared)
							heaviest += 1
							return
						}
					}
				},
				"leave": func(rt *rapid.T) {
					i := slices.IndexFunc(all, (*attempt).isIn)
					if i < 0 {
						return
					}
					all[i].place.Leave(rapid.Bool().Draw(rt, "proven"))
					all = slices.Delete(all, i, i+1)
				},
				"pass": func(rt *rapid.T) {
					<-time.After(time.Duration(rapid.IntRange(1, 100).Draw(rt, "ms")) * time.Millisecond)
				},
				"": func(rt *rapid.T) {
					synctest.Wait()
					used, kept := c.l.Held()
					waiting := 0
					for _, a := range all {
						if a.waits() {
							waiting++
						}
					}
					if used > most+3+heaviest || waiting > 4*most || kept > 2*len(all) {
						rt.Fatalf("a weight of %d under way, %d wait, %d names", used, waiting, kept)
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
