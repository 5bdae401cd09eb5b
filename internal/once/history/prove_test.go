package history_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(3000) {
			if err := inMemory(broken{}).prove(t, seed); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// prove plays a history for each seed, and judges them.
func (s *stage) prove(t *testing.T, seeds ...uint64) error {
	t.Helper()
	histories, err := s.play(t.Context(), seeds...)
	if err != nil {
		return fmt.Errorf("history %d and those beside it: %w", seeds[0], err)
	}
	for _, h := range histories {
		err = errors.Join(err, s.judge(h))
	}
	return err
}
