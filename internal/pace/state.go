package pace

import (
	"fmt"
	"time"
)

// Mode is the answer in one word.
type Mode int

// The modes.
const (
	Free    Mode = iota // nothing is wrong: as many batches at once as are allowed, or soon
	Slowed              // a server is slow, or was until a moment ago
	Stopped             // a server does not answer
)

// State says how fast work may go, and why.
type State struct {
	Mode    Mode
	Batches int           // at once
	Pause   time.Duration // between the beginnings of two batches

	// The server that is to blame; empty in Free.
	Server  string
	Latency time.Duration // what it takes to answer
	Usual   time.Duration // what it usually takes
	Err     error         // why there was no answer
}

// String tells the state to people, as in "slowed down: MySQL answers in 80 ms,
// usually 1 ms; 2 batches at once".
func (s State) String() string {
	batches := "1 batch at once"
	if s.Batches != 1 {
		batches = fmt.Sprintf("%d batches at once", s.Batches)
	}
	switch s.Mode {
	case Stopped:
		return fmt.Sprintf("stopped: %s does not answer: %v", s.Server, s.Err)
	case Slowed:
		if s.Pause > 0 {
			batches = fmt.Sprintf("a batch every %v at most", s.Pause)
		}
		return fmt.Sprintf("slowed down: %s answers in %s, usually %s; %s", s.Server, milliseconds(s.Latency), milliseconds(s.Usual), batches)
	case Free:
	}
	return "all servers answer as usual; " + batches
}

// milliseconds writes a duration as people compare them: in one unit.
func milliseconds(d time.Duration) string {
	if ms := float64(d) / float64(time.Millisecond); ms < 10 {
		return fmt.Sprintf("%.2g ms", ms)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}
