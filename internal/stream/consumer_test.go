package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func TestEntriesBecomeTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.upload(1) // before there is a group
	b.start("a")
	b.add("task", `{"type":"add_contact","user_id":"2","contact_id":"3"}`)
	b.add("task", `{"type":"remove_contact","user_id":4,"contact_id":5}`)
	b.upload(1) // absorbed
	b.queued([]string{"add_contact:2", "remove_contact:4", "upload:1"})
	if n := len(b.dead()); n != 0 {
		t.Errorf("%d entries are dead", n)
	}
}

func TestManyEntries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads(1, 3*stream.MaxBatch+1)
	b.start("a")
	b.queued(uploaded(1, 3*stream.MaxBatch+1))
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
		{[]any{"task", ""}, "not JSON", ""},
		{[]any{"task", "\xff\xfe"}, "UTF-8", "\xff\xfe"},
		{[]any{"task", `{"type":"upload"}`}, "user_id: is missing", `{"type":"upload"}`},
		{[]any{"task", `{"type":"fan_out","user_id":"1"}`}, "unknown type", `{"type":"fan_out","user_id":"1"}`},
		{[]any{"task", `{"type":"upload","user_id":"0"}`}, "user_id", `{"type":"upload","user_id":"0"}`},
		{[]any{"task", `[` + uploadOf(1) + `]`}, "want an object", `[` + uploadOf(1) + `]`},
		{[]any{"task", uploadOf(1) + uploadOf(2)}, "not JSON", uploadOf(1) + uploadOf(2)},
		{[]any{"event", uploadOf(1)}, `want one field, task: it has "event"`, `"event" "{\"type\":\"upload\",\"user_id\":\"1\"}"`},
		{[]any{"task", uploadOf(1), "also", "x"}, `it has "task", "also"`, `"task" "{\"type\":\"upload\",\"user_id\":\"1\"}" "also" "x"`},
		{[]any{"task", uploadOf(1), "task", uploadOf(2)}, `it has "task", "task"`, ``},
		{[]any{"task", long}, fmt.Sprintf("has %d bytes", len(long)), long[:2048]},
	}
	var ids []string
	for _, c := range cases {
		ids = append(ids, b.add(c.fields...))
	}
	b.upload(7)
	b.start("a")
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

// An entry that cannot be set aside stays, and holds up no other.
func TestWhatCannotBeSetAsideStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.must(b.client.Set(t.Context(), stream.DeadKey, "of another program", 0).Err())
	for range 2 * stream.MaxBatch {
		b.add("task", "nonsense")
	}
	b.upload(1)
	b.start("a")
	b.awaitHeld(2 * stream.MaxBatch)
	eventually(t, "the upload is a task", func() bool { return slices.Equal(b.tasks(), uploaded(1, 1)) })
	b.must(b.client.Del(t.Context(), stream.DeadKey).Err())
	b.queued(uploaded(1, 1))
	if n := len(b.dead()); n != 2*stream.MaxBatch {
		t.Errorf("%d entries are dead, want %d", n, 2*stream.MaxBatch)
	}
}

// A row that MySQL refuses holds up no other.
func TestWhatTheQueueRefusesIsSetAside(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.db.ExecContext(t.Context(), `CREATE TRIGGER refuse BEFORE INSERT ON tasks FOR EACH ROW
		IF NEW.subject IN (3, 7) THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF`)
	b.must(err)
	b.uploads(1, 9)
	b.start("a")
	want := slices.DeleteFunc(uploaded(1, 9), func(s string) bool { return s == "upload:3" || s == "upload:7" })
	b.queued(want)
	dead := b.dead()
	if len(dead) != 2 || dead[0].Values["entry"] != uploadOf(3) || dead[1].Values["entry"] != uploadOf(7) ||
		!strings.Contains(fmt.Sprint(dead[0].Values["reason"]), "not this one") {
		t.Errorf("dead: %v", dead)
	}
}

// While a consumer waits for entries, and between its steps, the stream goes, the group, or
// everything.
func TestALostGroupIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start("a")
	added := 0
	for _, lose := range []func() error{
		func() error { return b.client.Del(b.Context(), stream.Key).Err() },
		func() error { return b.client.FlushAll(b.Context()).Err() },
		func() error { return b.client.XGroupDestroy(b.Context(), stream.Key, stream.Group).Err() },
		func() error { return b.client.ScriptFlush(b.Context()).Err() },
		func() error { return b.client.Rename(b.Context(), stream.Key, "elsewhere").Err() },
		func() error { return b.client.Set(b.Context(), stream.Key, "x", 50*time.Millisecond).Err() }, // of another program
	} {
		for range 3 {
			b.must(lose())
			added++
			eventually(t, "the next can be added", func() bool {
				return b.client.XAdd(b.Context(), &redis.XAddArgs{Stream: stream.Key, Values: []any{"task", uploadOf(added)}}).Err() == nil
			})
			b.queued(uploaded(1, added)) // and the consumer waits for entries
		}
	}
}

// The group goes while a batch is on its way to MySQL; what else is in the stream is moved,
// and the batch does not come back from the queue.
func TestTheGroupGoesInTheMiddle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := make(chan struct{}, 1)
	first <- struct{}{}
	b.uploads(1, 5)
	b.run(b.consumer("a", enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		select {
		case <-first:
			b.uploads(6, 9)
			b.must(b.client.XGroupDestroy(ctx, stream.Key, stream.Group).Err())
		default:
		}
		return b.queue.Enqueue(ctx, batch)
	})))
	b.queued(uploaded(1, 9))
}

// Entries that were delivered and that no consumer holds are delivered again.
func TestEntriesThatWerePassedOver(t *testing.T) {
	t.Parallel()
	for name, pass := range map[string]func(*bench){
		"group made at the end": func(b *bench) {
			b.must(b.client.XGroupCreate(b.Context(), stream.Key, stream.Group, "$").Err())
		},
		"consumer deleted": func(b *bench) {
			b.must(b.client.XGroupCreate(b.Context(), stream.Key, stream.Group, "0").Err())
			b.holdAll("gone")
			b.must(b.client.XGroupDelConsumer(b.Context(), stream.Key, stream.Group, "gone").Err())
		},
		"acknowledged by hand": func(b *bench) {
			b.must(b.client.XGroupCreate(b.Context(), stream.Key, stream.Group, "0").Err())
			for _, id := range b.holdAll("gone")[1:] {
				b.must(b.client.XAck(b.Context(), stream.Key, stream.Group, id).Err())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.uploads(1, 5)
			pass(b)
			c := b.consumer("a", b.queue)
			b.run(c)
			eventually(t, "all are tasks", func() bool {
				b.must(c.Chore(t.Context()))
				return len(b.tasks()) == 5
			})
			b.queued(uploaded(1, 5))
		})
	}
}

// holdAll makes a consumer hold all entries.
func (b *bench) holdAll(name string) (ids []string) {
	b.Helper()
	read, err := b.client.XReadGroup(b.Context(), &redis.XReadGroupArgs{
		Group: stream.Group, Consumer: name, Streams: []string{stream.Key, ">"}, Count: 10_000, Block: -1,
	}).Result()
	b.must(err)
	for _, m := range read[0].Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// What was trimmed while it was held is forgotten and counted, and nothing is stuck.
func TestTrimmedEntries(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "another"} { // the heir finds its own, and claims those of another
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.uploads(1, 5)
			b.must(b.client.XGroupCreate(b.Context(), stream.Key, stream.Group, "0").Err())
			b.holdAll(name)
			b.must(b.client.XTrimMaxLen(t.Context(), stream.Key, 2).Err())
			b.start("a")
			b.queued(uploaded(4, 5))
			eventually(t, "the loss is logged", func() bool { return b.log.count("stream entries lost") > 0 })
		})
	}
}

func TestEntriesWaitForMySQL(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	b := newBenchOn(t, server.DSN(servertest.Database), newClient(t, &redis.Options{Network: "unix", Addr: servertest.Redis(t).Addr()}))
	b.start("a")
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

// While MySQL is away the consumer pauses longer and longer, and keeps what it holds.
func TestNoHotLoop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads(1, 5)
	var times []time.Time
	enough := make(chan struct{})
	stop := b.run(b.consumer("a", enqueueFunc(func(context.Context, []queue.New) ([]uint64, error) {
		times = append(times, time.Now())
		if len(times) == 6 {
			close(enough)
		}
		return nil, mysql.ErrUnavailable
	})))
	<-enough
	stop()
	const least = (25 + 50 + 100 + 200 + 400) * time.Millisecond // half of each pause
	if took := times[5].Sub(times[0]); took < least {
		t.Errorf("6 attempts in %v, want them to take at least %v", took, least)
	}
}

func TestARestartedRedisWithAOF(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, localserver.AOF...)
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: server.Addr()}))
	var away atomic.Bool
	away.Store(true)
	b.run(b.consumer("a", enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		if away.Load() {
			return nil, mysql.ErrUnavailable
		}
		return b.queue.Enqueue(ctx, batch)
	})))
	b.uploads(1, 300)
	eventually(t, "entries are held", func() bool {
		p, err := b.client.XPending(t.Context(), stream.Key, stream.Group).Result()
		return err == nil && p.Count > 0
	})
	b.must(server.Kill())
	b.must(server.Restart(t.Context()))
	away.Store(false)
	b.uploads(301, 400)
	b.queued(uploaded(1, 400))
}

// A Redis without its data has no group: what is added from then on is moved.
func TestARestartedRedisWithoutData(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: server.Addr()}))
	b.start("a")
	b.upload(1)
	b.queued(uploaded(1, 1))
	b.must(server.Kill())
	eventually(t, "the outage is reported", func() bool { return b.log.count("server cannot be used") > 0 })
	b.must(server.Restart(t.Context()))
	b.upload(2)
	b.queued(uploaded(1, 2))
}

// A Redis that does not answer, and answers later what was given up: the entries of such
// an answer are held, and no consumer knows of them.
func TestAPausedRedis(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	direct := newClient(t, &redis.Options{Network: "unix", Addr: server.Addr()})
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), ReadTimeout: 100 * time.Millisecond}))
	b.start("a")
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
	b.start("a")
	b.client = direct
	for i := range 30 {
		b.uploads(10*i+1, 10*i+10)
		proxy.Cut()
	}
	b.queued(uploaded(1, 300))
}

// A consumer that is slow loses what it holds to another. Both commit, and it is done once.
func TestASlowConsumer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	stopSlow := b.run(b.consumer("slow", enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		once.Do(func() { close(held) })
		<-goOn
		return b.queue.Enqueue(ctx, batch)
	})))
	b.uploads(1, 5)
	<-held
	b.start("quick")
	b.queued(uploaded(1, 5)) // though the slow one holds some
	close(goOn)
	b.uploads(6, 9)
	b.queued(uploaded(1, 9))
	stopSlow()
	b.queued(uploaded(1, 9))
}

func TestConsumersRace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var enqueued, failed atomic.Int64
	for i := range 4 {
		c := b.consumer(fmt.Sprint("racer ", i), enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
			ids, err := b.queue.Enqueue(ctx, batch)
			enqueued.Add(int64(len(ids)))
			if err != nil {
				failed.Add(1) // as it may on a machine that stands still
			}
			return ids, err
		}))
		c.ClaimAfter(time.Minute)
		b.run(c)
	}
	for i := range 20 {
		b.uploads(100*i+1, 100*i+100)
	}
	b.queued(uploaded(1, 2000))
	if n := enqueued.Load(); n != 2000 && failed.Load() == 0 {
		t.Errorf("%d tasks were enqueued, want 2000: each by one consumer", n)
	}
}

// What a consumer holds at its stop, others may claim at once; one that holds nothing is
// deleted.
func TestAStopHandsBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer("a", enqueueFunc(func(context.Context, []queue.New) ([]uint64, error) { return nil, mysql.ErrUnavailable }))
	c.ClaimAfter(stream.ClaimIdle)
	b.uploads(1, 5)
	stop := b.run(c)
	b.awaitHeld(5)
	stop()
	waiting, err := b.client.XPendingExt(t.Context(), &redis.XPendingExtArgs{
		Stream: stream.Key, Group: stream.Group, Start: "-", End: "+", Count: 10, Idle: stream.ClaimIdle,
	}).Result()
	if err != nil || len(waiting) != 5 {
		t.Errorf("%d of 5 entries may be claimed: %v", len(waiting), err)
	}
	heir := b.consumer("b", b.queue)
	heir.ClaimAfter(stream.ClaimIdle)
	stop = b.run(heir)
	b.queued(uploaded(1, 5))
	stop()
	if names := b.consumers(); slices.Contains(names, "b") {
		t.Errorf("there are the consumers %v, and b holds nothing", names)
	}
}

// What is being moved at the stop is moved.
func TestAStopFinishes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	stop := b.run(b.consumer("a", enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		close(begun)
		<-goOn
		return b.queue.Enqueue(ctx, batch)
	})))
	b.upload(1)
	<-begun
	time.AfterFunc(10*time.Millisecond, func() { close(goOn) })
	stop()
	b.queued(uploaded(1, 1))
	if names := b.consumers(); len(names) > 0 {
		t.Errorf("there are the consumers %v", names)
	}
}

func (b *bench) consumers() (names []string) {
	b.Helper()
	list, err := b.client.XInfoConsumers(b.Context(), stream.Key, stream.Group).Result()
	b.must(err)
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}

// Consumers that are gone are deleted, once they hold nothing.
func TestGoneConsumersAreDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads(1, 5)
	b.must(b.client.XGroupCreate(b.Context(), stream.Key, stream.Group, "0").Err())
	b.holdAll("gone")
	b.must(b.client.XGroupCreateConsumer(b.Context(), stream.Key, stream.Group, "idle").Err())
	c := b.consumer("a", b.queue)
	eventually(t, "idle is deleted", func() bool {
		b.must(c.Chore(t.Context()))
		return slices.Equal(b.consumers(), []string{"gone"})
	})
	b.run(c)
	b.queued(uploaded(1, 5))
	eventually(t, "gone is deleted", func() bool {
		b.must(c.Chore(t.Context()))
		return !slices.Contains(b.consumers(), "gone")
	})
}

// A consumer that is deleted while it waits goes on.
func TestADeletedConsumerGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start("a")
	for i := 1; i <= 3; i++ {
		b.upload(i)
		b.queued(uploaded(1, i))
		b.must(b.client.XGroupDelConsumer(t.Context(), stream.Key, stream.Group, "a").Err())
	}
}

func TestInACluster(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, servertest.MySQLDSN(t), servertest.RedisCluster(t))
	b.uploads(1, 10)
	b.add("task", "nonsense")
	c := b.consumer("a", b.queue)
	stop := b.run(c)
	b.queued(uploaded(1, 10))
	b.must(c.Chore(t.Context()))
	b.must(b.client.Del(t.Context(), stream.Key).Err())
	b.upload(11)
	b.queued(uploaded(1, 11))
	if n := len(b.dead()); n != 1 {
		t.Errorf("%d entries are dead, want 1", n)
	}
	stop()
	if names := b.consumers(); len(names) > 0 {
		t.Errorf("there are the consumers %v", names)
	}
}

// With an older protocol, and a client that waits for less than a read does.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), Protocol: 2, ReadTimeout: 300 * time.Millisecond}))
	b.start("a")
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
	b.start("a")
	b.uploads(1, 5)
	eventually(t, "it is logged", func() bool { return b.log.count("activityd schema --apply") > 0 })
	b.exec("RENAME TABLE elsewhere TO tasks")
	b.queued(uploaded(1, 5))
}

func (b *bench) exec(statement string) {
	b.Helper()
	_, err := b.db.ExecContext(b.Context(), statement)
	b.must(err)
}

// A commit that takes too long is tried again.
func TestABatchThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads(1, 300)
	errSome := errors.New("some error")
	most := 100 // tasks in a transaction
	b.run(b.consumer("a", enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		if len(batch) > most {
			return nil, errSome
		}
		return b.queue.Enqueue(ctx, batch)
	})))
	b.queued(uploaded(1, 300))
}

// An event whose entry is moved twice, after its task was started, has one id: it is
// targeted once. So is one that its producer added twice under an id of its own.
func TestAnEventThatIsMovedTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	answers := make(chan error, 1)
	answers <- mysql.ErrUnavailable // which was committed
	b.add("task", anEvent)
	own := strings.Replace(anEvent, `"event":{`, `"event":{"id":"mine",`, 1)
	b.add("task", own)
	b.add("task", own)
	b.run(b.consumer("a", enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		ids, err := b.queue.Enqueue(ctx, batch)
		select {
		case lost := <-answers:
			claimed, err := b.queue.Claim(ctx, push.QueuePush, 10, time.Minute)
			if err != nil || len(claimed) != 2 {
				t.Errorf("%d tasks are claimed, want 2: %v", len(claimed), err)
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
	if len(ids) != 2 || ids["mine"] != 2 {
		t.Errorf("tasks by the id of the event: %v, want two of each id", ids)
	}
}

// The user of activityd's ACL, as docs/servers.md has it, may do all that is needed.
func TestTheRightsThatAreNeeded(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: server.Addr()}))
	all := b.client
	b.must(all.Do(t.Context(), "ACL", "SETUSER", "activityd", "on", ">secret", "+@read", "+@write", "+@scripting", "+@connection", "+@pubsub", "+info",
		"~user_*", "~guard_*", "~activityd_*", "&activityd_*").Err())
	b.must(all.Do(t.Context(), "ACL", "SETUSER", "site", "on", ">secret", "+xadd", "+hello", "~activityd_events").Err())
	b.client = newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), Username: "activityd", Password: "secret"})
	c := b.consumer("a", b.queue)
	stop := b.run(c)
	b.client = newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), Username: "site", Password: "secret"})
	b.upload(1)
	b.add("task", "nonsense")
	b.client = all
	b.queued(uploaded(1, 1))
	b.must(c.Chore(t.Context()))
	stop()
	if n, names := len(b.dead()), b.consumers(); n != 1 || len(names) > 0 {
		t.Errorf("%d entries are dead, want 1; there are the consumers %v", n, names)
	}
}

// claimHook replies to XAUTOCLAIM as Redis 6.2 does when what it claimed was trimmed, and
// notes whether what is held is read.
type claimHook struct {
	redis.Hook

	replied, readHeld atomic.Bool
}

func (h *claimHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *claimHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *claimHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c, ok := cmd.(*redis.Cmd)
		switch {
		case !ok:
		case c.Name() == "xautoclaim" && !h.replied.Swap(true):
			c.SetVal([]any{"0-0", []any{nil}})
			return nil
		case c.Name() == "xreadgroup":
			if c.Args()[len(c.Args())-1] == "0" {
				h.readHeld.Store(true)
			}
		}
		return next(ctx, cmd)
	}
}

// Before Redis 7 what was claimed and is gone has no id: the consumer reads again what it
// holds, to learn it.
func TestClaimsOfRedis6(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer("a", b.queue)
	stop := b.run(c)
	b.upload(1)
	b.queued(uploaded(1, 1)) // it reads what is fresh by now
	stop()
	hook := &claimHook{}
	b.client.AddHook(hook)
	b.run(c)
	// It may read what is fresh first, as its run before has just claimed.
	servertest.Eventually(t, "after the claim it reads what it holds", hook.readHeld.Load)
	b.upload(2)
	b.queued(uploaded(1, 2))
}
