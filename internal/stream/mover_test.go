package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// Only one of several processes moves entries at a time, each entry once.
func TestEntriesBecomeTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads(1, stream.MaxBatch+1) // before there is a process
	var enqueued, failed atomic.Int64
	for range 4 {
		m := b.mover(enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
			ids, err := b.queue.Enqueue(ctx, batch)
			enqueued.Add(int64(len(ids)))
			if err != nil {
				failed.Add(1) // as it may on a machine that stands still
			}
			return ids, err
		}))
		m.LeaseTime(time.Minute)
		b.run(m)
	}
	for i := 300; i < 2000; i += 100 {
		b.uploads(i, i+99)
	}
	b.add("task", `{"type":"add_contact","user_id":"2","contact_id":"3"}`)
	b.add("task", `{"type":"remove_contact","user_id":4,"contact_id":5}`)
	want := append(append(uploaded(1, stream.MaxBatch+1), uploaded(300, 1999)...), "add_contact:2", "remove_contact:4")
	slices.Sort(want)
	b.queued(want)
	if n := enqueued.Load(); int(n) != len(want) && failed.Load() == 0 {
		t.Errorf("%d tasks were enqueued, want %d: each by one process", n, len(want))
	}
}

func TestNonsenseIsSetAside(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	long := `{"type":"upload","user_id":"1"` + strings.Repeat(" ", stream.MaxTask) + "}"
	cases := []struct {
		fields []any
		reason string
		copied string
	}{
		{[]any{"task", "nonsense"}, "not JSON", "nonsense"},
		{[]any{"task", "\xff\xfe"}, "UTF-8", "\xff\xfe"},
		{[]any{"task", `{"type":"upload"}`}, "user_id: is missing", `{"type":"upload"}`},
		{[]any{"task", `{"type":"fan_out","user_id":"1"}`}, "unknown type", `{"type":"fan_out","user_id":"1"}`},
		{[]any{"task", uploadOf(1) + uploadOf(2)}, "not JSON", uploadOf(1) + uploadOf(2)},
		{[]any{"event", uploadOf(1)}, `want one field, task: it has 1`, `"event" "{\"type\":\"upload\",\"user_id\":\"1\"}" `},
		{[]any{"task", uploadOf(1), "also", "x"}, `it has 2`, `"task" "{\"type\":\"upload\",\"user_id\":\"1\"}" "also" "x" `},
		{[]any{"task", uploadOf(1), "task", uploadOf(2)}, `it has 2`, ``},
		{[]any{"task", long}, fmt.Sprintf("has %d bytes", len(long)), long[:2048]},
	}
	var ids []string
	for _, c := range cases {
		ids = append(ids, b.add(c.fields...))
	}
	b.upload(7)
	b.start()
	b.queued([]string{"upload:7"})
	dead := b.dead()
	if len(dead) != len(cases) {
		t.Fatalf("%d entries are dead, want %d: %v", len(dead), len(cases), dead)
	}
	for i, c := range cases {
		got := dead[i].Values
		reason, _ := got["reason"].(string)
		if got["id"] != ids[i] || !strings.Contains(reason, c.reason) || c.copied != "" && got["entry"] != c.copied {
			t.Errorf("%.60v: %.300v\nwant id %s, reason %q, entry %.100q", c.fields, got, ids[i], c.reason, c.copied)
		}
	}
	if n := b.log.count("stream entry makes no sense"); n != 1 {
		t.Errorf("%d lines about nonsense, want 1 a minute", n)
	}
}

// An entry that cannot be set aside stays, and holds up none but itself.
func TestWhatCannotBeSetAsideStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.must(b.client.Set(t.Context(), stream.DeadKey, "of another program", 0).Err())
	for range 2 * stream.MaxBatch {
		b.add("task", "nonsense")
	}
	b.upload(1)
	b.start()
	eventually(t, "the upload is a task", func() bool { return slices.Equal(b.tasks(), uploaded(1, 1)) })
	b.must(b.client.Del(t.Context(), stream.DeadKey).Err())
	b.queued(uploaded(1, 1))
	if n := len(b.dead()); n != 2*stream.MaxBatch {
		t.Errorf("%d entries are dead, want %d", n, 2*stream.MaxBatch)
	}
}

// A row that MySQL refuses holds up itself alone.
func TestWhatTheQueueRefusesIsSetAside(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.db.ExecContext(t.Context(), `CREATE TRIGGER refuse BEFORE INSERT ON tasks FOR EACH ROW
		IF NEW.subject IN (3, 7) THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF`)
	b.must(err)
	b.uploads(1, 9)
	b.start()
	want := slices.DeleteFunc(uploaded(1, 9), func(s string) bool { return s == "upload:3" || s == "upload:7" })
	b.queued(want)
	dead := b.dead()
	if len(dead) != 2 || dead[0].Values["entry"] != uploadOf(3) || dead[1].Values["entry"] != uploadOf(7) ||
		!strings.Contains(fmt.Sprint(dead[0].Values["reason"]), "not this one") {
		t.Errorf("dead: %v", dead)
	}
}

// The stream goes while a mover waits for entries, or everything, or another program has the key for a moment.
func TestTheStreamGoes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	added := 0
	for _, lose := range []func() error{
		func() error { return b.client.Del(b.Context(), stream.Key).Err() },
		func() error { return b.client.FlushAll(b.Context()).Err() },
		func() error { return b.client.ScriptFlush(b.Context()).Err() },
		func() error { return b.client.Rename(b.Context(), stream.Key, "elsewhere").Err() },
		func() error { return b.client.Set(b.Context(), stream.Key, "x", 50*time.Millisecond).Err() },
	} {
		b.must(lose())
		added++
		eventually(t, "the next can be added", func() bool {
			return b.client.XAdd(b.Context(), &redis.XAddArgs{Stream: stream.Key, Values: []any{"task", uploadOf(added)}}).Err() == nil
		})
		b.queued(uploaded(1, added))
	}
}

func TestEntriesWaitForMySQL(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	b := newBenchOn(t, server.DSN(servertest.Database), newClient(t, &redis.Options{Network: "unix", Addr: servertest.Redis(t).Addr()}))
	b.start()
	b.uploads(1, 5)
	b.queued(uploaded(1, 5))
	began := time.Now()
	b.must(server.Kill())
	b.uploads(6, 300)
	eventually(t, "the outage is reported", func() bool { return b.log.count("server cannot be used") > 0 })
	b.must(server.Restart(t.Context()))
	b.queued(uploaded(1, 300))
	eventually(t, "its end is reported", func() bool { return b.log.count("server can be used again") > 0 })
	if n := b.log.count("server cannot be used"); n > 1+int(time.Since(began).Minutes()) {
		t.Errorf("%d lines about the outage, want 1 a minute", n)
	}
}

// A Redis that does not answer, and answers later, as nobody waits any more.
func TestAPausedRedis(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	direct := newClient(t, &redis.Options{Network: "unix", Addr: server.Addr()})
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), ReadTimeout: 100 * time.Millisecond}))
	b.start()
	b.client = direct
	b.upload(1)
	b.queued(uploaded(1, 1))
	b.must(server.Pause())
	eventually(t, "the outage is reported", func() bool { return b.log.count("server cannot be used") > 0 })
	b.must(server.Resume())
	b.uploads(2, 300)
	b.queued(uploaded(1, 300))
}

// An answer of Redis is lost in each direction, again and again.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr())
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: server.Addr()}))
	direct := b.client
	b.client = newClient(t, &redis.Options{Addr: proxy.Addr()})
	b.start()
	b.client = direct
	for i := range 30 {
		b.uploads(10*i+1, 10*i+10)
		proxy.Cut()
	}
	b.queued(uploaded(1, 300))
}

// A full Redis gives no lease, and lets entries go: all processes move.
func TestAFullRedis(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: servertest.Redis(t).Addr()}))
	b.uploads(1, 300)
	b.must(b.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	b.start()
	b.start()
	b.queued(uploaded(1, 300))
}

// A batch that is on its way at the stop is moved, and the turn is another process' then, or after a failure.
func TestAStopFinishes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	m := b.mover(enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		close(begun)
		<-goOn
		return b.queue.Enqueue(ctx, batch)
	}))
	m.LeaseTime(time.Hour)
	stop := b.run(m)
	b.upload(1)
	<-begun
	time.AfterFunc(10*time.Millisecond, func() { close(goOn) })
	stop()
	b.queued(uploaded(1, 1))
	fails := b.mover(enqueueFunc(func(context.Context, []queue.New) ([]uint64, error) { return nil, mysql.ErrUnavailable }))
	fails.LeaseTime(time.Hour)
	b.run(fails)
	b.upload(2)
	eventually(t, "it fails", func() bool { return b.log.count("server cannot be used") > 0 })
	b.start()
	b.queued(uploaded(1, 2))
}

func TestInACluster(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, servertest.MySQLDSN(t), servertest.RedisCluster(t))
	b.uploads(1, 10)
	b.add("task", "nonsense")
	b.start()
	b.queued(uploaded(1, 10))
	b.must(b.client.Del(t.Context(), stream.Key).Err())
	b.upload(11)
	b.queued(uploaded(1, 11))
	if n := len(b.dead()); n != 1 {
		t.Errorf("%d entries are dead, want 1", n)
	}
}

// With an older protocol, and a client that waits for less than a read does.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), Protocol: 2, ReadTimeout: 300 * time.Millisecond}))
	b.start()
	for i := 1; i <= 3; i++ {
		b.upload(i)
		b.queued(uploaded(1, i))
	}
}

// Errors that are none of an outage are logged, once a minute, and entries wait.
func TestAMissingTable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("RENAME TABLE tasks TO elsewhere")
	b.start()
	b.uploads(1, 5)
	eventually(t, "it is logged", func() bool { return b.log.count("activityd schema --apply") > 0 })
	b.exec("RENAME TABLE elsewhere TO tasks")
	b.queued(uploaded(1, 5))
}

// A commit that takes too long is tried again.
func TestABatchThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads(1, 300)
	errSome := errors.New("some error")
	most := 100 // tasks in a transaction
	b.run(b.mover(enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		if len(batch) > most {
			return nil, errSome
		}
		return b.queue.Enqueue(ctx, batch)
	})))
	b.queued(uploaded(1, 300))
}

// An event whose entry is moved twice, after its task was started, has a single id: it is
// targeted once. So is an event that its producer added twice under an id of its own.
func TestAnEventThatIsMovedTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	answers := make(chan error, 1)
	answers <- mysql.ErrUnavailable // but it was committed
	b.add("task", anEvent)
	own := strings.Replace(anEvent, `"event":{`, `"event":{"id":"mine",`, 1)
	b.add("task", own)
	b.add("task", own)
	b.run(b.mover(enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		ids, err := b.queue.Enqueue(ctx, batch)
		select {
		case lost := <-answers:
			claimed, err := b.queue.Claim(ctx, push.QueuePush, 10, time.Minute)
			if err != nil || len(claimed) != 3 {
				t.Errorf("%d tasks are claimed, want 3: %v", len(claimed), err)
			}
			return nil, lost
		default:
		}
		return ids, err
	})))
	b.awaitEmpty()
	list, err := b.queue.List(t.Context(), queue.Filter{Kinds: []string{"notify"}, Queues: []string{push.QueuePush}, Key: 5}, 10)
	b.must(err)
	ids := map[string]int{}
	for _, r := range list {
		e, err := push.ParseEvent(5, r.Payload)
		b.must(err)
		ids[e.ID]++
	}
	if len(ids) != 2 || ids["mine"] != 4 {
		t.Errorf("tasks by the id of the event: %v, want two ids, and four tasks of mine", ids)
	}
}

// The user of activityd's ACL, as docs/deploy.md has it, may do all that is needed.
func TestTheRightsThatAreNeeded(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: server.Addr()}))
	all := b.client
	b.must(all.Do(t.Context(), "ACL", "SETUSER", "activityd", "on", ">secret", "+@read", "+@write", "+@scripting", "+@connection", "+@pubsub", "+info",
		"~user_*", "~guard_*", "~activityd_*", "&activityd_*").Err())
	b.must(all.Do(t.Context(), "ACL", "SETUSER", "site", "on", ">secret", "+xadd", "+hello", "~activityd_events").Err())
	b.client = newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), Username: "activityd", Password: "secret"})
	b.start()
	b.client = newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), Username: "site", Password: "secret"})
	b.upload(1)
	b.add("task", "nonsense")
	b.client = all
	b.queued(uploaded(1, 1))
	if n := len(b.dead()); n != 1 {
		t.Errorf("%d entries are dead, want 1", n)
	}
}
