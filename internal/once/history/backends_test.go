package history_test

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/once"
)

// quiet keeps go-redis from logging: its errors come back from its methods.
func quiet() { redis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// inMemory is a stage in memory, for a bubble of synctest: all of a history comes from its
// seed there.
func inMemory(b broken) *stage {
	v := newVault(b)
	return &stage{
		monotonic: true, clients: []once.Store{v}, age: v.age, drop: v.drop,
		events: []action{save, flush, restart}, happen: v.lose, pause: 2 * time.Millisecond, latency: time.Millisecond,
	}
}

// connect connects a process to a server.
func connect(string) (once.Store, error) { return nil, errors.New("no store yet") }
