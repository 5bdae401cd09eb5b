package once_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// As long as the server keeps its data, fences rise by counting, also where the clock is behind them
// and the state of the name is gone.
func TestRedisFencesAreCounted(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	store, ahead := once.NewRedis(client), time.Now().Add(24*time.Hour).UnixMilli()
	if err := client.Set(t.Context(), once.FenceKey(once.StateKey("a")), ahead, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if s := acquire(t, store, "a", "me"); s.Fence != once.Fence(ahead)+once.Fence(i)+1 {
			t.Errorf("fence %v, want %d more than %d", s.Fence, i+1, ahead)
		}
		if forgotten, err := store.Forget(t.Context(), "a", true); !forgotten || err != nil {
			t.Fatal(forgotten, err)
		}
	}
	if ttl := client.TTL(t.Context(), once.FenceKey(once.StateKey("a"))).Val(); ttl >= 0 {
		t.Errorf("the last fence expires in %v", ttl)
	}
}

// A server that loses data loses its locks, and no fence goes back: the clock is past them.
func TestRedisLosses(t *testing.T) {
	t.Parallel()
	restart := func(server *localserver.Redis, _ *redis.Client) error {
		return errors.Join(server.Kill(), server.Restart(t.Context()))
	}
	for name, loss := range map[string]struct {
		args []string // of the server
		lose func(*localserver.Redis, *redis.Client) error
		kept bool
	}{
		"FLUSHALL":                    {lose: func(_ *localserver.Redis, c *redis.Client) error { return c.FlushAll(t.Context()).Err() }},
		"restart without persistence": {lose: restart},
		"restart with an AOF":         {args: localserver.AOF, lose: restart, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Redis(t, loss.args...)
			client := connect(t, server)
			store := once.NewRedis(client)
			before := acquire(t, store, "a", "me")
			if r, err := store.Apply(t.Context(), "a", once.Operation{Action: once.Finish, Owner: "me"}); err != nil || r.Outcome != once.OK {
				t.Fatal(r, err)
			}
			clockIsPast(t, before.Fence)
			if err := loss.lose(server, client); err != nil {
				t.Fatal(err)
			}
			r, err := store.Apply(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "you", Terms: terms})
			switch {
			case err != nil:
				t.Error(err)
			case loss.kept && r.Outcome != once.AlreadyDone:
				t.Errorf("%s: %+v, want it done", r.Outcome, r.State)
			case !loss.kept && (r.Outcome != once.OK || r.State.Fence <= before.Fence):
				t.Errorf("%s: %+v after fence %v, want a higher one", r.Outcome, r.State, before.Fence)
			}
		})
	}
}
