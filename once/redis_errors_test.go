package once_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// Processes of all versions share the keys.
func TestRedisKeys(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a":            "activityd_once_{3}_a",
		"digest":       "activityd_once_{50}_digest",
		"sweep:2024/1": "activityd_once_{25}_sweep:2024/1",
	} {
		if got := once.StateKey(name); got != want {
			t.Errorf("key of %s: %s, want %s", name, got, want)
		}
	}
	if got, want := once.FenceKey(once.StateKey("a")), "activityd_once_{3}"; got != want {
		t.Errorf("the last fence is in %s, want %s", got, want)
	}
}

var terms = once.Terms{Lease: time.Hour, Keep: time.Hour, Attempts: 3}

// Processes of all versions share the stored states, and never store without a time to live.
func TestRedisStored(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	store := once.NewRedis(client)
	key := once.StateKey("a")
	for _, step := range []struct {
		op   once.Operation
		want string
	}{
		{once.Operation{Action: once.Acquire, Owner: "me", Terms: terms}, "held me\n3600000 3600000 3 1\nFENCE BEGAN\n\n"},
		{once.Operation{Action: once.Extend, Owner: "me"}, "held me\n3600000 3600000 3 1\nFENCE BEGAN\n\n"},
		{once.Operation{Action: once.Fail, Owner: "me", Reason: "no\nluck"}, "free me\n3600000 3600000 3 1\nFENCE BEGAN\nfail me\t\nno\nluck"},
		{once.Operation{Action: once.Acquire, Owner: "you", Terms: terms}, "held you\n3600000 3600000 3 2\nFENCE BEGAN\nfail me\t\nno\nluck"},
		{once.Operation{Action: once.Acquire, Owner: "you", Terms: terms}, "held you\n3600000 3600000 3 2\nFENCE BEGAN\nfail me\t\nno\nluck"},
		{once.Operation{Action: once.Release, Owner: "you"}, "free you\n3600000 3600000 3 1\nFENCE BEGAN\nrelease you\tfail me\t\nno\nluck"},
		{once.Operation{Action: once.Acquire, Owner: "him", Terms: once.Terms{Lease: time.Hour, Keep: time.Minute, Attempts: 1}}, "exhausted you\n60000 3600000 1 1\nFENCE BEGAN\nrelease you\tfail me\t\nno\nluck"},
	} {
		r, err := store.Apply(t.Context(), "a", step.op)
		if err != nil {
			t.Fatal(err)
		}
		v := strings.Replace(client.Get(t.Context(), key).Val(), fmt.Sprintf("\n%v %d\n", r.State.Fence, r.State.Began.UnixMilli()), "\nFENCE BEGAN\n", 1)
		if v != step.want {
			t.Errorf("%s: stored %q, want %q", step.op.Action, v, step.want)
		}
		ttl := client.PTTL(t.Context(), key).Val()
		if want := r.State.ForgetAt.Sub(r.Now); ttl > want || ttl < want-time.Minute/2 {
			t.Errorf("%s: time to live %v, want %v", step.op.Action, ttl, want)
		}
	}
}

// all are the operations of a store on a name.
var all = map[string]func(context.Context, once.Store) error{
	"acquire": func(ctx context.Context, s once.Store) error {
		_, err := s.Apply(ctx, "a", once.Operation{Action: once.Acquire, Owner: "me", Terms: terms})
		return err
	},
	"finish": func(ctx context.Context, s once.Store) error {
		_, err := s.Apply(ctx, "a", once.Operation{Action: once.Finish, Owner: "me"})
		return err
	},
	"get":    func(ctx context.Context, s once.Store) error { _, err := s.Get(ctx, "a"); return err },
	"list":   func(ctx context.Context, s once.Store) error { _, err := s.List(ctx); return err },
	"forget": func(ctx context.Context, s once.Store) error { _, err := s.Forget(ctx, "a", false); return err },
	"force":  func(ctx context.Context, s once.Store) error { _, err := s.Forget(ctx, "a", true); return err },
}

// try does all operations, and checks their errors.
func try(t *testing.T, client redis.UniversalClient, want func(error) bool, except ...string) {
	t.Helper()
	for name, do := range all {
		expected := true
		for _, e := range except {
			expected = expected && e != name
		}
		err := do(t.Context(), once.NewRedis(client))
		if expected && !want(err) || !expected && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func unavailable(words string) func(error) bool {
	return func(err error) bool {
		return errors.Is(err, once.ErrUnavailable) && strings.Contains(err.Error(), words)
	}
}

func TestRedisAway(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := connect(t, server)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	try(t, client, unavailable(""))
}

// A server that hangs is waited for until the context ends.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := connect(t, server)
	if err := errors.Join(client.Ping(t.Context()).Err(), server.Pause()); err != nil {
		t.Fatal(err)
	}
	for name, do := range all {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := do(ctx, once.NewRedis(client)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	// An acquisition goes on for a second, not for the read timeout or the 10 s of an operation.
	patient := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = patient.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := once.New(once.NewRedis(patient), once.Options{}).Do(ctx, once.Key{Name: "a"}, never(t))
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took >= 10*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

func TestRedisReplica(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	try(t, client, unavailable("read-only replica"), "get", "list", "finish", "forget") // find nothing
}

func TestRedisFull(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	try(t, client, unavailable("OOM"), "get", "list", "finish", "forget", "force")
}

func TestRedisDenied(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	admin := connect(t, server)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~user_*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), Username: "app", Password: "secret"})
	defer func() { _ = client.Close() }()
	try(t, client, unavailable("keys activityd_once_*"), "list")
	wrong := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), Username: "app", Password: "wrong"})
	defer func() { _ = wrong.Close() }()
	try(t, wrong, unavailable("password"))
}

// The rights that the error names are enough.
func TestRedisRights(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	rule := []any{"ACL", "SETUSER", "app", "on", ">secret", "~activityd_once_*"}
	for command := range strings.FieldsSeq("evalsha eval get set del pttl pexpire scan time") {
		rule = append(rule, "+"+command)
	}
	if err := connect(t, server).Do(t.Context(), rule...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), Username: "app", Password: "secret"})
	defer func() { _ = client.Close() }()
	try(t, client, func(err error) bool { return err == nil })
}

func TestRedisForeignKeys(t *testing.T) {
	t.Parallel()
	foreign := func(key string) func(error) bool {
		return func(err error) bool {
			return err != nil && !errors.Is(err, once.ErrUnavailable) && strings.Contains(err.Error(), key) && strings.Contains(err.Error(), "delete the key")
		}
	}
	client := connect(t, servertest.Redis(t))
	key := once.StateKey("a")
	last := once.FenceKey(key)
	for _, set := range []func() error{
		func() error { return client.HSet(t.Context(), key, "a", "b").Err() },
		func() error { return client.Set(t.Context(), key, "gibberish", 0).Err() },
		func() error { return client.Set(t.Context(), key, "held 1 2 3", 0).Err() },
		func() error { return client.Set(t.Context(), key, "held me\n1 1 1 1", 0).Err() },
		func() error { return client.Set(t.Context(), key, "held me\n1 1 1 1\n1 1 BEGAN\n", 0).Err() },
		func() error { return client.Set(t.Context(), key, "lost me\n1 1 1 1\n1 1 BEGAN\n\n", 0).Err() },
	} {
		if err := errors.Join(client.FlushAll(t.Context()).Err(), set()); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"get", "list"} {
			if err := all[name](t.Context(), once.NewRedis(client)); !foreign(key)(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		store := once.NewRedis(client)
		if forgotten, err := store.Forget(t.Context(), "a", true); !forgotten || err != nil {
			t.Errorf("forget: %v, %v", forgotten, err)
		}
		if err := all["acquire"](t.Context(), store); err != nil {
			t.Error(err)
		}
	}
	for _, set := range []func() error{
		func() error { return client.Set(t.Context(), last, "x", 0).Err() },
		func() error { return client.HSet(t.Context(), last, "seq", "many").Err() },
	} {
		if err := errors.Join(client.Del(t.Context(), key, last).Err(), set()); err != nil {
			t.Fatal(err)
		}
		if err := all["acquire"](t.Context(), once.NewRedis(client)); !foreign(last)(err) {
			t.Error(err)
		}
	}
	// Keys that only look like states are left alone.
	if err := client.Set(t.Context(), "activityd_once_{1}_a", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if list, err := once.NewRedis(client).List(t.Context()); err != nil || len(list) > 1 {
		t.Errorf("%+v, %v", list, err)
	}
}
