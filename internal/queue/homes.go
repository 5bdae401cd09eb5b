package queue

import "slices"

// home says what a worker works on. Each has a home queue. The first worker of
// each queue, its keeper, works there alone: whatever the other queues do, there
// is always somebody. The others work for the other queues when there is
// nothing to do at home. So a large fan-out cannot starve the contact changes,
// and nobody idles while tasks wait.
type home struct {
	keeper bool
	queues []Workers // in the order in which it looks into them
}

// homes returns one for each worker. Queues without workers are left to other
// processes.
func homes(configured []Workers) []home {
	manned := slices.DeleteFunc(slices.Clone(configured), func(w Workers) bool { return w.Count <= 0 })
	for i := range manned {
		manned[i].Batch = max(1, manned[i].Batch)
	}
	kept := make(map[string]bool)
	var all []home
	for _, w := range manned {
		for range w.Count {
			if !kept[w.Queue] {
				kept[w.Queue] = true
				all = append(all, home{true, []Workers{w}})
				continue
			}
			all = append(all, home{false, fromHome(w, manned)})
		}
	}
	return all
}

// fromHome puts the home first, and each of the other queues once after it, in
// the order of configuration.
func fromHome(own Workers, all []Workers) []Workers {
	queues := []Workers{own}
	for _, w := range all {
		if !slices.ContainsFunc(queues, func(q Workers) bool { return q.Queue == w.Queue }) {
			queues = append(queues, w)
		}
	}
	return queues
}

// names returns the queues that a home looks into.
func (h home) names() []string {
	names := make([]string, len(h.queues))
	for i, w := range h.queues {
		names[i] = w.Queue
	}
	return names
}

// startingWith returns the queues with one of them first, if it is among them.
func (h home) startingWith(first string) []Workers {
	at := slices.IndexFunc(h.queues, func(w Workers) bool { return w.Queue == first })
	if at <= 0 {
		return h.queues
	}
	return slices.Concat(h.queues[at:at+1], h.queues[:at], h.queues[at+1:])
}
