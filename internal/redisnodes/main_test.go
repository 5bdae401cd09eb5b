package redisnodes

import (
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestMain gives servers more time than a service does: the machine may be busy.
func TestMain(m *testing.M) {
	RepeatFor, FindTimeout, ProbeTimeout = 5*time.Second, 10*time.Second, 10*time.Second
	servertest.Main(m)
}
