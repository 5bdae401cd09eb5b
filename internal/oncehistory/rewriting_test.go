package oncehistory_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// mutation breaks a rule in what a store sends to its server. It says what is to be
// replaced, in pairs.
type mutation struct {
	pairs  []string
	second bool         // a lease is set in a second command, and one in four crashes before it
	met    atomic.Int64 // what was replaced
}

// rewrite replaces what is there of a script.
func (m *mutation) rewrite(script string) string {
	for i := 0; i < len(m.pairs); i += 2 {
		m.met.Add(int64(strings.Count(script, m.pairs[i])))
		script = strings.ReplaceAll(script, m.pairs[i], m.pairs[i+1])
	}
	return script
}

// noScriptError is what Redis answers to EVALSHA of a script that it does not know.
type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT the test wants the text" }
func (noScriptError) RedisError()   {}

// DialHook implements [redis.Hook].
func (m *mutation) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (m *mutation) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			m.rewriteCommand(cmd)
		}
		return next(ctx, cmds)
	}
}

func (m *mutation) rewriteCommand(cmd redis.Cmder) {
	if args := cmd.Args(); cmd.Name() == "eval" {
		args[1] = m.rewrite(args[1].(string))
	}
}

// ProcessHook implements [redis.Hook]: it rewrites the scripts on their way to Redis. It
// lets a client send their texts each time.
func (m *mutation) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			cmd.SetErr(noScriptError{})
			return noScriptError{}
		}
		m.rewriteCommand(cmd)
		err := next(ctx, cmd)
		if result, ok := cmd.(*redis.Cmd); ok && m.second && err == nil {
			m.setLease(ctx, next, result)
		}
		return err
	}
}

// setLease is the second command.
func (m *mutation) setLease(ctx context.Context, next redis.ProcessHook, cmd *redis.Cmd) {
	reply, _ := cmd.Text()
	answer, _, held := strings.Cut(reply, " held ")
	if key, ok := cmd.Args()[3].(string); ok && held && m.met.Add(1)%4 > 0 && strings.HasPrefix(answer, "ok\n") {
		_, ttl, _ := strings.Cut(answer, " ")
		_ = next(ctx, redis.NewBoolCmd(ctx, "pexpire", key, ttl)) // it may fail as well
	}
}

// rewritingProxy forwards connections to a server, and replaces what is of the same length
// in what clients send. It returns its address, and is closed when t ends.
func rewritingProxy(t testing.TB, target string, m *mutation) string {
	t.Helper()
	for i := 0; i < len(m.pairs); i += 2 {
		if len(m.pairs[i]) != len(m.pairs[i+1]) {
			t.Fatalf("%q and %q have different lengths", m.pairs[i], m.pairs[i+1])
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			running.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
			running.Go(func() { m.forward(server, client); _ = server.Close() })
		}
	})
	return listener.Addr().String()
}

func (m *mutation) forward(to io.Writer, from io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		for i := 0; i < len(m.pairs); i += 2 {
			m.met.Add(int64(bytes.Count(buffer[:n], []byte(m.pairs[i]))))
			copy(buffer, bytes.ReplaceAll(buffer[:n], []byte(m.pairs[i]), []byte(m.pairs[i+1])))
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// mustNotice plays histories until one is wrong. That takes far less than [enough], but for
// some rules an event must come at the right moment, and there is no seed for that: a run
// in which it comes late is no reason to fail.
func (s *stage) mustNotice(t *testing.T, m *mutation) {
	t.Helper()
	for first := uint64(0); first < 4*enough; first += uint64(s.size) {
		var seeds []uint64
		for n := range uint64(s.size) {
			seeds = append(seeds, first+n)
		}
		switch err := s.prove(t, seeds...); {
		case m.met.Load() == 0:
			t.Fatalf("nothing that the store sends has %q", m.pairs)
		case errors.Is(err, errRefuted):
			text, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("of histories %d to %d: %s", first, first+uint64(s.size)-1, text)
			return
		case err != nil:
			t.Fatal(err)
		}
	}
	t.Fatalf("no history of %d noticed", 4*enough)
}

// TestEachRuleOfRedisIsNeeded breaks one rule of the scripts at a time.
func TestEachRuleOfRedisIsNeeded(t *testing.T) {
	t.Parallel()
	const (
		hasMarker = `if not marker then`
		isMaster  = `if not string.find(info, 'role:master', 1, true)`
		itsServer = `or not string.find(info, 'master_replid:' .. string.sub(marker, 1, 40) .. '\r\n', 1, true) then`
	)
	for _, test := range []struct {
		rule string
		*mutation
	}{
		{"the owner's token is checked", replacing(`if phase ~= 'held' or owner ~= ARGV[1] then`, `if phase ~= 'held' then`)},
		{"an owner has one attempt", replacing(`if owner == ARGV[1] or was_ended('fail') or was_ended('release') or was_ended('expire') then`, `if false then`)},
		{"an owner has one attempt, also after the next one", replacing(` or was_ended('fail') or was_ended('release') or was_ended('expire') then`, ` then`)},
		{"a repetition is answered as the first one", replacing(`phase and was_ended(action)`, `phase and owner == ARGV[1] and was_ended(action)`)},
		{"the owner's token is checked when it is done", replacing(`string.find(v, 'held ' .. ARGV[1] .. '\n', 1, true) == 1`, `string.find(v, 'held ', 1, true) == 1`)},
		{"there are epochs", replacing(hasMarker, `marker = string.rep('x', 40) .. ' 1' if false then`, isMaster, `if false`, itsServer, `then`)},
		{"an epoch is of one server", replacing(itsServer, `then`)},
		{"the lease is set in the same command", &mutation{second: true, pairs: []string{`'PX', ARGV[3])`, `'PX', '999999999')`}}},
		{"done is no number", replacing(`if phase == 'done' then return 'done\n0 ' .. ttl .. ' ' .. v end`,
			`if phase == 'done' then phase, ttl = 'held', tonumber('done') or 0 end`)},
		{"an acquisition may be repeated", replacing(`if ttl > tonumber(keep) and owner ~= ARGV[1] then`, `if ttl > tonumber(keep) then`)},
		{"an expired lease is not extended", replacing(`or owner ~= ARGV[1] or ttl <= tonumber(keep) then`, `or owner ~= ARGV[1] then`)},
		{"a lease that has not expired is not taken over", replacing(`if ttl > tonumber(keep)`, `if ttl > tonumber(keep) + 50`)},
		{"an attempt that was handed back does not count", replacing(`attempt - 1`, `attempt - 0`)},
		{"attempts end", replacing(`tonumber(attempt) >= tonumber(newMax)`, `tonumber(attempt) > tonumber(newMax)`)},
		{"a state is forgotten", replacing(`v, 'PX', keep)`, `v)`)},
	} {
		t.Run(test.rule, func(t *testing.T) {
			t.Parallel()
			onRedis(t, 25, test.mutation).mustNotice(t, test.mutation)
		})
	}
}

// replacing returns a mutation.
func replacing(pairs ...string) *mutation { return &mutation{pairs: pairs} }

// The clock of MySQL in the fence of an acquisition, and one that stands still at 0, as
// after it was set back.
const (
	fenceClock    = "GREATEST(fence + 1, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED))"
	standingClock = "GREATEST(fence + 1, CAST(UNIX_TIMESTAMP(NOW(3)) * 0000 AS UNSIGNED))"
)

// TestEachRuleOfMySQLIsNeeded breaks one rule of the statements at a time. Those of the
// floor are needed where the clock does not help.
func TestEachRuleOfMySQLIsNeeded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rule string
		*mutation
	}{
		{"a row is written only as it was read", replacing(" AND changes = ", " AND changes>= ", " AND fence = ", " AND fence>= ")},
		{"all changes of a row are counted", replacing("changes = changes + 1", "changes = changes + 0")},
		{"a new row begins after the floor", replacing(fenceClock+") FROM", strings.Replace(standingClock, "fence", "    7", 1)+") FROM", fenceClock, standingClock)},
		{"a purge raises the floor", replacing("GREATEST(fence, ", "GREATEST(fence,-", fenceClock, standingClock)},
	} {
		t.Run(test.rule, func(t *testing.T) {
			t.Parallel()
			onRewrittenMySQL(t, test.mutation).mustNotice(t, test.mutation)
		})
	}
}

// TestMySQLNeedsNoClockForItsFences plays histories with fences that are counted alone.
func TestMySQLNeedsNoClockForItsFences(t *testing.T) {
	t.Parallel()
	m := replacing(fenceClock, standingClock)
	s := onRewrittenMySQL(t, m)
	for range 4 {
		var seeds []uint64
		for range s.size {
			seeds = append(seeds, rand.Uint64N(1e12))
		}
		if err := s.prove(t, seeds...); err != nil {
			t.Fatal(err)
		}
	}
	if m.met.Load() == 0 {
		t.Error("no statement has the clock")
	}
}

// onRewrittenMySQL is a stage on MySQL, with a mutation of what it is sent.
func onRewrittenMySQL(t *testing.T, m *mutation) *stage {
	t.Helper()
	dsn := servertest.MySQLDSN(t)
	proxied := address{MySQL: overTCP(dsn, rewritingProxy(t, socket(dsn), m))}
	s := &stage{clients: []once.Store{proxied.mustOpen(t)}, size: 25, pause: time.Millisecond, age: ageMySQL(t, dsn)}
	s.events = []event{churn(s.clients[0])}
	return s
}
