package bulk_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
)

// TestStopsAndCrashesLoseAndDoubleNothing: however often a sweep is stopped, or
// crashes so that only what was saved is left, and whatever visits fail in
// between, in the end each member was visited and counted once.
func TestStopsAndCrashesLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n, batch := rapid.IntRange(0, 400).Draw(rt, "members"), rapid.IntRange(1, 60).Draw(rt, "batch")
		parallel, seed := rapid.IntRange(1, 5).Draw(rt, "parallel"), rapid.Uint64().Draw(rt, "seed")
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0)) // only used with the lock
			w := newWorld(n)
			chance := func(in int) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return rnd.IntN(in) == 0
			}
			alone := make(map[member.ID]int) // visits of a single member that failed, in a run
			mayFail := func(users []member.ID) bool {
				if len(users) > 1 {
					return true
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				alone[users[0]]++
				return alone[users[0]] < 10 // else it is given up
			}
			w.visit = func(_ context.Context, users []member.ID) ([]member.ID, error) {
				if chance(2) {
					<-time.After(time.Second)
				}
				if chance(5) {
					return nil, errAway
				}
				if chance(9) && mayFail(users) {
					return nil, errOwn
				}
				if chance(5) {
					return users[len(users)/2:], errAway
				}
				return nil, nil
			}
			var kept bulk.Checkpoint
			for runs := 0; ; runs++ {
				clear(alone)
				ctx, stop := context.WithCancel(t.Context())
				if runs < 20 {
					time.AfterFunc(time.Duration(rnd.IntN(5000))*time.Millisecond, stop)
				}
				o := w.options(batch, parallel)
				var saved *bulk.Checkpoint
				o.Saved = func(_ int, s bulk.Checkpoint) error {
					if saved != nil && s.Position < saved.Position {
						rt.Fatalf("the position went from %d to %d", saved.Position, s.Position)
					}
					saved = &s
					return nil
				}
				state, err := o.Run(ctx, kept)
				stop()
				if err == nil {
					kept = state
					break
				}
				if !errors.Is(err, bulk.ErrStopped) {
					rt.Fatal(err)
				}
				if saved != nil && chance(2) { // a crash
					kept = *saved
				} else {
					kept = state
				}
			}
			for _, user := range w.members {
				if w.visited[user] == 0 {
					rt.Fatalf("member %d was never visited", user)
				}
			}
			if int(kept.Counts["members"]) != n {
				rt.Fatalf("%d members were counted, want %d", kept.Counts["members"], n)
			}
		})
	})
}
