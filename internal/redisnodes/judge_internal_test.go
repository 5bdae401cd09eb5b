package redisnodes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// newOne returns a server that is never asked.
func newOne(t *testing.T) *Node {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "one.example:6379"})
	ns := Open(client, Options{Name: "settings", Stamp: func() string { return "need=10" }})
	t.Cleanup(func() { _, _ = client.Close(), ns.Close() })
	return ns.one
}

// A probe judges a server by the record beside its data, and by the server that the process knew at the address.
func TestJudge(t *testing.T) {
	t.Parallel()
	type look struct {
		run, record string
		isOld       bool
		deletes     bool // the process deletes the data then
	}
	a, b := recordOf("need=10", "A", 100), recordOf("need=10", "B", 200)
	for name, looks := range map[string][]look{
		"a new process":                     {{"A", a, false, false}},
		"empty":                             {{"A", "", true, false}},
		"a snapshot, or a replica":          {{"B", a, true, false}},
		"a record of another program":       {{"A", "need=10 run=A JBSWY3DPEHPK3PXP", true, false}},
		"emptied, and built by another":     {{"A", a, false, false}, {"A", "", true, false}, {"A", recordOf("need=10", "A", 200), false, false}},
		"elsewhere, where another built":    {{"A", a, false, false}, {"B", b, true, false}, {"B", recordOf("need=10", "B", 300), true, false}},
		"elsewhere, and deleted here":       {{"A", a, false, false}, {"B", b, true, true}, {"B", b, false, false}},
		"away and back":                     {{"A", a, false, false}, {"B", b, true, true}, {"B", b, false, false}, {"A", a, true, false}},
		"back, and elsewhere never deleted": {{"A", a, false, false}, {"B", b, true, false}, {"A", a, true, true}, {"A", a, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newOne(t)
			for i, l := range looks {
				f := found{node: n, run: l.run, records: map[string]string{"": l.record}}
				err := n.ns.believes(t.Context(), f, map[string]bool{l.run: true})
				if errors.Is(err, ErrUnknown) != l.isOld || !l.isOld && err != nil {
					t.Fatalf("look %d: %v, want old: %t", i, err, l.isOld)
				}
				if _, _, err := n.judge(f, nil); (err == nil) == l.isOld { // a connection
					t.Errorf("look %d: a connection is believed: %t", i, l.isOld)
				}
				if l.deletes {
					n.belief.Store(&belief{run: l.run})
				}
			}
		})
	}
}

// stopped is a hook that sends nothing. It keeps the first command, and fails each.
type stopped struct{ first *[]any }

var errStopped = errors.New("stopped")

func (s stopped) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s stopped) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return errStopped }
}

func (s stopped) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		if *s.first == nil {
			*s.first = cmds[0].Args()
		}
		return nil
	}
}

// The record is deleted before the data.
func TestARunIsDeletedBeforeItsData(t *testing.T) {
	t.Parallel()
	n := newOne(t)
	var first []any
	if err := n.with(time.Second, func(c *redis.Client) error {
		c.AddHook(stopped{&first})
		return n.ns.empty(t.Context(), c, n.ns.tags(), func([]string) {})
	}); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	if len(first) != 2 || first[0] != "unlink" || first[1] != "settings" {
		t.Errorf("first %v", first)
	}
}

// A node is not believed if no probe has seen it for long; before the first it is tried, as connections are looked at.
func TestAStaleNode(t *testing.T) {
	t.Parallel()
	n := newOne(t)
	now := time.Now()
	for _, c := range []struct {
		seen  seen
		calls bool
	}{
		{seen{}, true},
		{seen{probed: now.Add(-seenFor() / 2)}, true},
		{seen{probed: now.Add(-seenFor())}, false},
		{seen{probed: now.Add(-seenFor()), failed: ErrRefused}, false},
	} {
		n.seen.Store(&c.seen)
		if state := n.state(); takesCalls(state) != c.calls {
			t.Errorf("%+v: %v", c.seen, state)
		}
	}
}
