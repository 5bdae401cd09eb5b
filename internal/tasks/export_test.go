package tasks

import (
	"encoding/json"
	"fmt"

	"github.com/activityd/activityd/queue"
)

// Poke is a kind that only the tests have: all that it takes is a value and its line
// among the kinds.
const Poke = "poke"

func init() {
	awayRest = 0
	k := kind{
		Name: Poke, Workers: defaultWorkers, Produced: true, Changes: OwnSet,
		DedupeKey: func(of uint64, _ json.RawMessage) (string, error) { return fmt.Sprintf("poke:%d", of), nil },
		Handler:   func(w work) queue.Handler { return RefillHandler{Index: w.Index, Store: w.Store} },
	}
	kinds = append(kinds, k)
}
