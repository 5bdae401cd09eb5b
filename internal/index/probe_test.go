package index_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// clocked returns an index on a real server, a way to let time pass, and the server
// for its administrator.
func clocked(t *testing.T, user string) (ix bench, pass func(time.Duration), admin *redis.Conn) {
	t.Helper()
	server := servertest.Redis(t)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	admin = client.Conn()
	do(t, admin, "ACL SETUSER app on >right ~* &* +@all")
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	o := index.Options{Now: func() time.Time { return time.Unix(0, now.Load()) }}
	ix = newBench(t, &redis.Options{Network: "unix", Addr: server.Addr(), Username: user, Password: strings.Repeat("right", len(user)/3)}, o)
	return ix, func(d time.Duration) { now.Add(int64(d)) }, admin
}

func do(t *testing.T, admin *redis.Conn, command string) {
	t.Helper()
	var args []any
	for word := range strings.FieldsSeq(command) {
		args = append(args, word)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
}

// A refusal is known for a while after it, so that a server which refuses now and
// then is one that refuses.
func TestARefusalIsKnownForAWhile(t *testing.T) {
	t.Parallel()
	b, pass, admin := clocked(t, "app")
	b.refill(t, ladder(3))
	if err := errors.Join(b.Probe(t.Context()), b.Refused(t)); err != nil {
		t.Fatal(err)
	}
	do(t, admin, "CONFIG SET maxmemory 1")
	if err := b.Refused(t); err != nil {
		t.Errorf("known before a write was tried: %v", err)
	}
	if err := b.Probe(t.Context()); !errors.Is(err, index.ErrRefused) || !errors.Is(err, index.ErrUnavailable) || !strings.Contains(redisnodes.Reason(err), "OOM") {
		t.Errorf("probe: %v", err)
	}
	if got, err := b.Candidates(t.Context(), user); !errors.Is(err, index.ErrBehind) || len(got) != 3 {
		t.Errorf("it reads: %v, %v", got, err)
	}
	do(t, admin, "CONFIG SET maxmemory 0")
	pass(4 * time.Second)
	if err := b.Probe(t.Context()); !errors.Is(err, index.ErrRefused) || b.Refused(t) == nil {
		t.Errorf("four seconds later: %v, %v", err, b.Refused(t))
	}
	pass(2 * time.Second) // the probe of before was not refused
	if err := errors.Join(b.Probe(t.Context()), b.Refused(t)); err != nil {
		t.Errorf("six seconds later: %v", err)
	}
	keys, err := b.client.Keys(t.Context(), "*probe*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("left behind: %v, %v", keys, err)
	}
}

// What the workers are refused is known, too; but what an ACL forbids may be about a
// single key, and must not make all reads walk for ever.
func TestRefusalsOfWorkersAreKnown(t *testing.T) {
	t.Parallel()
	b, pass, admin := clocked(t, "app")
	b.refill(t, ladder(3))
	do(t, admin, "ACL SETUSER app resetkeys ~user_1* ~guard_* ~activityd_* ~user_probe*")
	_, err := b.Add(t.Context(), []index.Addition{{Member: 2, Entry: index.Entry{Contact: 1, Score: 1}}})
	if !errors.Is(err, index.ErrRefused) || b.Refused(t) != nil || b.Probe(t.Context()) != nil {
		t.Errorf("add to a forbidden set: %v; refused %v", err, b.Refused(t))
	}
	do(t, admin, "CONFIG SET min-replicas-to-write 1")
	if _, err := b.Begin(t.Context(), []member.ID{user}); !errors.Is(err, index.ErrRefused) || b.Refused(t) == nil {
		t.Errorf("begin: %v; refused %v", err, b.Refused(t))
	}
	do(t, admin, "CONFIG SET min-replicas-to-write 0")
	pass(time.Minute)
	do(t, admin, "ACL SETUSER app resetkeys %R~*")
	if err := b.Probe(t.Context()); !errors.Is(err, index.ErrRefused) || b.Refused(t) == nil {
		t.Errorf("where no key may be written: %v; refused %v", err, b.Refused(t))
	}
}

// A probe leaves nothing behind, whichever command the ACL forbids; and it finds
// out about each that an update needs.
func TestTheProbeFindsEachForbiddenCommand(t *testing.T) {
	t.Parallel()
	b, pass, admin := clocked(t, "app")
	if err := b.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"set", "pexpire", "del", "zadd", "zrem", "zremrangebyrank", "evalsha"} {
		do(t, admin, "ACL SETUSER app -"+command)
		if err := b.Probe(t.Context()); !errors.Is(err, index.ErrRefused) {
			t.Errorf("%s is forbidden: %v", command, err)
		}
		do(t, admin, "ACL SETUSER app +"+command)
		pass(time.Minute)
		if err := b.Probe(t.Context()); err != nil {
			t.Errorf("%s is allowed again: %v", command, err)
		}
		if n := admin.Exists(t.Context(), "user_probe").Val(); n != 0 {
			t.Errorf("%s was forbidden: a set is left", command)
		}
	}
}

// Without a connection no command has an answer, and none may be taken for one that
// found nothing.
func TestAWrongPasswordIsAnOutage(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"wrong password": "ACL SETUSER app resetpass >other", "no such user": "ACL DELUSER app", "user is off": "ACL SETUSER app off",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _, admin := clocked(t, "app")
			b.refill(t, ladder(3))
			do(t, admin, change)
			_ = admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
			b.allFail(t, t.Context(), index.ErrUnavailable)
			if err := b.Probe(t.Context()); !strings.Contains(redisnodes.Reason(err), "password") || b.Refused(t) != nil {
				t.Errorf("probe: %v, refused %v", err, b.Refused(t))
			}
			if g, err := b.Generation(t.Context(), index.Generation{}); !errors.Is(err, index.ErrUnavailable) {
				t.Errorf("generation: %+v, %v", g, err)
			}
		})
	}
	t.Run("none given", func(t *testing.T) {
		t.Parallel()
		b, _, admin := clocked(t, "")
		do(t, admin, "CONFIG SET requirepass other")
		b.allFail(t, t.Context(), index.ErrUnavailable)
	})
}

// Each probe is reported, and so each change within a second.
func TestTheWatchTellsOfEachProbe(t *testing.T) {
	t.Parallel()
	b, pass, admin := clocked(t, "app")
	told := make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- b.Watch(ctx, func(_ time.Time, s redisnodes.Status) {
			select {
			case told <- s.Err():
			case <-ctx.Done():
			}
		})
	}()
	for _, c := range []struct{ change, reason string }{
		{"CONFIG SET maxmemory 1", "OOM"},
		{"CONFIG SET maxmemory 0", ""},
		{"CONFIG SET min-replicas-to-write 1", "NOREPLICAS"},
		{"CONFIG SET min-replicas-to-write 0", ""},
	} {
		do(t, admin, c.change)
		pass(time.Minute)
		changed := func(err error) bool {
			return err == nil && c.reason == "" || err != nil && c.reason != "" && strings.Contains(redisnodes.Reason(err), c.reason)
		}
		for err := range told { // the first may have begun before the change
			if changed(err) {
				break
			}
			pass(time.Minute) // so that no refusal of before is known
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
