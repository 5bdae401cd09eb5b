package tasks

import (
	"fmt"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
)

// Poke is a kind that only the tests have: all that it takes is a value and its line
// among the kinds.
const Poke = "poke"

func init() {
	k := kind{
		Name: Poke, Queue: QueueDefault, Produced: true, Changes: OwnSet,
		DedupeKey: func(of member.ID, _ Args) string { return fmt.Sprintf("poke:%d", of) },
		Handler:   func(w work) queue.Handler { return RefillHandler{Index: w.Index, Store: w.Store} },
	}
	kinds = append(kinds, k)
	k.register()
}
