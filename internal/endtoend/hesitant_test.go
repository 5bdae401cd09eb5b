package endtoend_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

// hesitantIndex waits a little between a handler's read and its write, so that other handlers come first as
// often as they can.
type hesitantIndex struct{ tasks.Index }

func hesitant(ix tasks.Index) tasks.Index { return hesitantIndex{ix} }

// startedHesitant is a process at work that hesitates before each write.
func (g *ground) startedHesitant(t *testing.T, name string) *process {
	t.Helper()
	p := g.process(t, name, faults{index: hesitant})
	p.start(t)
	return p
}

// hesitate waits up to 30 ms, or until ctx ends.
func hesitate(ctx context.Context) {
	timer := time.NewTimer(rand.N(30 * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (h hesitantIndex) Add(ctx context.Context, additions []index.Addition) ([]member.ID, map[member.ID]error) {
	hesitate(ctx)
	return h.Index.Add(ctx, additions)
}

func (h hesitantIndex) Apply(ctx context.Context, changes []index.Change) []index.Result {
	hesitate(ctx)
	return h.Index.Apply(ctx, changes)
}
