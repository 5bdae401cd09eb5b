package tasks_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/tasks"
)

// act does one random thing.
func (s *schedule) act() error {
	if s.choose(100) < s.pace {
		return s.change()
	}
	switch k := s.choose(100); {
	case k < 12:
		return s.claim()
	case k < 30:
		s.start()
		return nil
	case k < 91-s.fragile:
		return s.resume()
	case k < 91:
		return s.crash()
	case k < 93:
		return s.lose("guard_{user_%d}")
	case k < 95:
		return s.lose("user_%d")
	case k == 95 && s.choose(4) == 0:
		return s.loseEverything()
	default:
		return s.read(s.someViewer(), false)
	}
}

// claim takes a few tasks of each queue; now and then, after whatever they waited
// for.
func (s *schedule) claim() error {
	s.claims++
	if s.claims%8 == 0 {
		s.now = s.now.Add(time.Hour)
	}
	if _, err := s.queue.Sweep(s.ctx); err != nil {
		return err
	}
	for _, queue := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueRefill} {
		lease := 100_000 * time.Hour
		if s.choose(6) == 0 {
			lease = time.Minute // it runs out: the tasks are given to a second handler
		}
		list, err := s.queue.Claim(s.ctx, queue, 1+s.choose(4), lease)
		if err != nil {
			return err
		}
		s.held = append(s.held, list...)
	}
	return nil
}

// mostAwake bounds the handlers that run at once.
const mostAwake = 6

// start gives some of the held tasks to their handler. As in the pool, a batch is
// of one claim.
func (s *schedule) start() {
	if len(s.held) == 0 || len(s.awake()) >= mostAwake {
		return
	}
	first := s.held[s.choose(len(s.held))]
	h := s.handlers[first.Type]
	var batch, rest []tasks.Task
	for _, t := range s.held {
		if s.handlers[t.Type] == h && t.Lease == first.Lease && s.choose(4) > 0 {
			batch = append(batch, t)
		} else {
			rest = append(rest, t)
		}
	}
	if len(batch) == 0 {
		return
	}
	s.held = rest
	s.counted.runs++
	s.logf("start %s", describe(batch))
	a := startActor(s.ctx, h, batch)
	a.drowsy = s.choose(s.drowsy) == 0
	s.actors = append(s.actors, a)
	s.ended(a, a.settled())
}

// resume lets one handler go on to its next call. Those that are asleep stand
// still until nothing else does: what they read is as old by then as it can be,
// and nobody is left to mend what they write.
func (s *schedule) resume() error {
	awake := s.awake()
	if len(awake) == 0 {
		return nil
	}
	a := awake[s.choose(len(awake))]
	s.ended(a, a.step(nil))
	return s.index.violated
}

func (s *schedule) awake() []*actor {
	var awake []*actor
	for _, a := range s.actors {
		if !a.asleep() {
			awake = append(awake, a)
		}
	}
	return awake
}

// wake wakes one handler for good.
func (s *schedule) wake() {
	if len(s.actors) > 0 {
		s.actors[s.choose(len(s.actors))].drowsy = false
	}
}

// crash ends one handler where it stands; all its tasks come back.
func (s *schedule) crash() error {
	if len(s.actors) == 0 {
		return nil
	}
	s.counted.crashes++
	a := s.actors[s.choose(len(s.actors))]
	a.crash()
	s.ended(a, true)
	return s.index.violated
}

// ended records the results of a handler that has returned.
func (s *schedule) ended(a *actor, returned bool) {
	if !returned {
		return
	}
	s.actors = slices.DeleteFunc(s.actors, func(other *actor) bool { return other == a })
	results := make([]tasks.Result, len(a.batch))
	for i, t := range a.batch {
		results[i] = tasks.Result{Task: t, Err: a.errs[i]}
		if a.crashed {
			results[i].Err = tasks.Later(0, errCrashed)
		}
	}
	lost, err := s.queue.Finish(s.ctx, results)
	if err != nil {
		panic(err) // MemoryQueue fails only with ctx
	}
	s.counted.doubled += lost
	s.logf("ended %s: errors %v, crashed %v, %d lost", describe(a.batch), a.errs, a.crashed, lost)
}

// lose lets a key of one viewer expire: its guard or its set.
func (s *schedule) lose(key string) error {
	viewer := s.someViewer()
	s.logf("lose "+key, viewer)
	s.index.writes[viewer]++
	return s.client.Del(s.ctx, fmt.Sprintf(key, viewer)).Err()
}

func (s *schedule) loseEverything() error {
	s.logf("lose everything")
	for _, id := range slices.Concat(s.viewers, s.members) {
		s.index.writes[id]++
	}
	return s.client.FlushAll(s.ctx).Err()
}

// describe names tasks for the log.
func describe(batch []tasks.Task) string {
	var names []string
	for _, t := range batch {
		names = append(names, fmt.Sprintf("%d %s %s %s (%s)", t.ID, t.Type, t.Subject, t.RawArgs, t.Lease))
	}
	return strings.Join(names, ", ")
}
