package queue

import (
	"context"
	"slices"
	"sync"
)

// lanes keep the tasks of one ordering key in the order in which they were claimed,
// and one at a time, within this process.
//
// A batch gets its tickets, one for each of its lanes, when it was claimed,
// before the next claim on the same queue. It runs what is first in its lane,
// and the rest as those before it leave.
//
// There is no deadlock: a batch gets all its tickets at once, under one lock, and
// no further ones. So of two batches one is the older in every lane that they
// share, and waits for the other in none. The oldest of all waits for nobody; it
// ends, because the run of a batch is bounded ([PoolOptions].Limit); then another
// one is the oldest.
type lanes struct {
	mu    sync.Mutex
	lines map[lane][]*ticket // who is in a lane, the oldest first; none is empty
	kinds Kinds
}

// lane is a key within a space: see [Kind.Order].
type lane struct {
	order string
	key   uint64
}

// lane returns the task's lane, if it has one.
func (ks Kinds) lane(t Task) (l lane, ok bool) {
	k, _ := ks.Named(t.Kind)
	return lane{k.Order, t.Key}, k.Order != ""
}

// ticket is the place of one batch in all its lanes. Its methods are for one
// goroutine.
type ticket struct {
	lanes *lanes
	tasks []Task            // not given out yet, in the order of the claim
	in    map[lane]struct{} // not left yet
	moved chan struct{}     // told when it becomes the first somewhere; holds one
}

func newLanes(kinds Kinds) *lanes { return &lanes{lines: make(map[lane][]*ticket), kinds: kinds} }

// enter gives a batch its ticket, which is to leave in the end.
func (l *lanes) enter(batch []Task) *ticket {
	t := &ticket{lanes: l, tasks: batch, in: make(map[lane]struct{}), moved: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, task := range batch {
		way, ok := l.kinds.lane(task)
		if _, entered := t.in[way]; ok && !entered {
			t.in[way] = struct{}{}
			l.lines[way] = append(l.lines[way], t)
		}
	}
	return t
}

// next returns the tasks that may run now, in the order of the claim, and waits
// when there is none. They occupy their lanes until done. It returns none when
// all were given out. When ctx ends, it returns its cause.
func (t *ticket) next(ctx context.Context) ([]Task, error) {
	for len(t.tasks) > 0 {
		if free := t.free(); len(free) > 0 {
			return free, nil
		}
		select {
		case <-t.moved:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, nil
}

// free takes the tasks whose turn it is.
func (t *ticket) free() (free []Task) {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	var rest []Task
	for _, task := range t.tasks {
		if way, ok := t.lanes.kinds.lane(task); !ok || t.lanes.lines[way][0] == t {
			free = append(free, task)
		} else {
			rest = append(rest, task)
		}
	}
	t.tasks = rest
	return free
}

// done leaves the lanes of a part that next returned.
func (t *ticket) done(part []Task) {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	for _, task := range part {
		if way, ok := t.lanes.kinds.lane(task); ok {
			t.leaveLane(way)
		}
	}
}

// leave leaves all lanes and returns the tasks that were not given out.
func (t *ticket) leave() (rest []Task) {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	for way := range t.in {
		t.leaveLane(way)
	}
	rest, t.tasks = t.tasks, nil
	return rest
}

// leaveLane makes room for the next in the lane, once. The caller holds mu.
func (t *ticket) leaveLane(way lane) {
	if _, entered := t.in[way]; !entered {
		return
	}
	delete(t.in, way)
	line := t.lanes.lines[way]
	at := slices.Index(line, t)
	line = slices.Delete(line, at, at+1)
	if len(line) == 0 {
		delete(t.lanes.lines, way)
		return
	}
	t.lanes.lines[way] = line
	if at == 0 {
		select {
		case line[0].moved <- struct{}{}:
		default: // it knows already
		}
	}
}
