package oncehistory_test

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/activityd/activityd/once"
)

// checkFences looks at the fences of a history alone, and knows nothing of states, times and
// losses:
//
//   - No two owners have the same fence.
//   - Let two acquisitions begin an attempt, and let the request of the second follow the answer
//     to the first: then the second has the higher fence.
//
// It is weaker than the model where the model knows more, and stronger where the model is more
// careful: no loss of data is an excuse.
func checkFences(history []porcupine.Operation) error {
	owners := map[once.Fence]string{}
	type acquisition struct {
		call, answered int64
		fence          once.Fence
	}
	var begun []acquisition
	asked := map[string]int{} // acquisitions of an owner that were asked for
	for _, o := range history {
		if o.Input.(request).action == action(once.Acquire) {
			asked[o.Input.(request).op.Owner]++
		}
	}
	for _, o := range history {
		in, out := o.Input.(request), o.Output.(answer)
		s := out.reply.State
		if out.fate != answered || s.Fence == 0 {
			continue
		}
		if owner, ok := owners[s.Fence]; ok && owner != s.Owner {
			return fmt.Errorf("fence %v was given to %s and to %s", s.Fence, owner, s.Owner)
		}
		owners[s.Fence] = s.Owner
		// An owner that asked only once began an attempt with the fence that it was given.
		if in.action == action(once.Acquire) && out.reply.Outcome == once.OK && asked[in.op.Owner] == 1 {
			begun = append(begun, acquisition{o.Call, o.Return, s.Fence})
		}
	}
	for _, a := range begun {
		for _, b := range begun {
			if a.answered < b.call && a.fence >= b.fence {
				return fmt.Errorf("fence %v, asked for after fence %v had been given", b.fence, a.fence)
			}
		}
	}
	return nil
}
