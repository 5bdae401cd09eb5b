package pace

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// answersOfRound is how many answers of each server make a round. Their median
// does not heed one or two outliers.
const answersOfRound = 5

// usualRise is the time in which what is usual may rise by its own size: 5 % a
// minute.
const usualRise = 20 * time.Minute

// server is what is known of one server. It belongs to the goroutine of Run but
// for the time of a question.
type server struct {
	Probe

	answers []time.Duration // of this round
	err     error           // of the last question
	usual   time.Duration   // 0: unknown yet
	median  time.Duration   // of the last round
}

// ask asks once and notes what came of it.
func (s *server) ask(ctx context.Context, patience time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	s.err = s.Ask(bounded)
	took := time.Since(start)
	switch {
	case s.err == nil:
		s.answers = append(s.answers, took)
	case bounded.Err() != nil:
		s.err = fmt.Errorf("no answer within %v: %w", patience, s.err)
	}
}

// endRound judges the answers of a round that took so long.
func (s *server) endRound(took time.Duration) {
	if len(s.answers) == 0 {
		return
	}
	slices.Sort(s.answers)
	s.median = s.answers[len(s.answers)/2]
	s.answers = s.answers[:0]
	switch {
	case s.usual == 0:
		s.usual = s.median
	case s.median < s.usual:
		s.usual -= (s.usual - s.median) / 2
	default:
		rise := time.Duration(float64(s.usual) * float64(took) / float64(usualRise))
		s.usual = min(s.usual+max(rise, time.Nanosecond), s.median)
	}
}

// slow reports whether the last round took several times as long as usual, or too
// long whatever is usual.
func (s *server) slow(times float64, ceiling time.Duration) bool {
	return s.median > s.Floor && (float64(s.median) > times*float64(s.usual) || s.median > ceiling)
}
