package oncetest_test

import (
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/oncetest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	oncetest.TestStore(t, func(*testing.T) oncetest.Harness {
		m := oncetest.NewMemory(time.Now)
		return oncetest.Harness{Store: m, Age: m.Age}
	})
}
