package bulk

import "time"

// knee finds how many batches at once get more done: where servers or their machines are busy, one more batch gets no more
// done, and makes others wait.
type knee struct {
	rates []float64 // members a second, as last measured; the i-th of i batches at once, 0: unknown

	// What was done with the present number of batches at once, since it was measured last.
	batches int
	rounds  int
	done    work
	took    time.Duration

	added      bool // a batch, when the number was changed last
	enough     int  // more batches than these brought too little
	hold, held int  // rounds until one more is tried again, and how many they were at first
}

// isEnough reports whether one batch more than some is not to be tried now.
func (k *knee) isEnough(now int) bool { return k.hold > 0 && now >= k.enough }

// work is batches that have ended, and their members.
type work struct{ batches, members int }

// When a number of batches counts as measured, and how it is judged.
const (
	kneeRounds  = 2
	kneeBatches = 16  // fewer would be counted too coarsely
	kneeGain    = 4   // one batch more is to bring this part of what it would bring to idle servers
	kneeHold    = 10  // rounds
	kneeLongest = 160 // rounds
)

// next returns how many batches there may be after a round in which there were some at once, of at most most.
func (k *knee) next(now, most int, done work, took time.Duration) int {
	for len(k.rates) < most+2 {
		k.rates = append(k.rates, 0)
	}
	if k.batches != now {
		k.batches, k.rounds, k.done, k.took = now, 0, work{}, 0
	}
	k.hold = max(0, k.hold-1)
	k.rounds++
	k.done.batches += done.batches
	k.done.members += done.members
	k.took += took
	if k.rounds < kneeRounds || k.done.batches < kneeBatches {
		return now
	}
	k.rates[now] = float64(k.done.members) / k.took.Seconds()
	k.rounds, k.done, k.took = 0, work{}, 0
	added, fewer := k.added, now-1
	k.added = false
	tooLittle := k.rates[fewer] > 0 && k.rates[now] < k.rates[fewer]*(1+1/float64(kneeGain*fewer))
	switch {
	case tooLittle && added:
		k.held = min(max(2*k.held, kneeHold), kneeLongest)
		k.enough, k.hold = fewer, k.held
		return fewer
	case tooLittle: // or what fewer do was measured in other times: it is measured again, and then one more
		k.held, k.hold = 0, 0
		return fewer
	case added:
		k.held = 0
	}
	if k.isEnough(now) || now >= most {
		return now
	}
	k.added = true
	return now + 1
}
