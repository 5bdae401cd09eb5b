package servertest

import (
	"testing"

	"github.com/activityd/activityd/internal/localserver"
)

// Redis returns an empty Redis that is this test's alone, to kill, pause,
// restart and flush. It is closed when t ends.
func Redis(t testing.TB, args ...string) *localserver.Redis {
	t.Helper()
	r, err := localserver.StartRedis(t.Context(), args...)
	if err != nil {
		t.Fatalf("servertest: %v", err)
	}
	t.Cleanup(func() { closeServer(t, r) })
	return r
}
