package admit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
	done  bool
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
		a.after, a.done = time.Since(began), true
	}()
	synctest.Wait()
	return a
}

func (a *attempt) isIn() bool      { return a.done && a.err == nil }
func (a *attempt) isRefused() bool { return a.done && errors.Is(a.err, admit.ErrBusy) }
func (a *attempt) waits() bool     { return !a.done }

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
