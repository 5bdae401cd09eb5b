package once_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // its errors come back from its methods
	servertest.Main(m)        // finds goroutines that are left
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
