package redisnodes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// newOne returns one server that is never asked.
func newOne(t *testing.T) (*Nodes, *Node) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "one.example:6379"})
	t.Cleanup(func() { _ = client.Close() })
	ns := Open(client, Options{
		Stamp:  func() string { return "need=10" },
		Differ: func(string) error { return ErrStamp },
	})
	t.Cleanup(func() { _ = ns.Close() })
	return ns, ns.node("one.example:6379")
}

// A probe judges what it finds by what the process saw and did before.
func TestJudge(t *testing.T) {
	t.Parallel()
	const deletes = -1 // the process deletes the data, as it was told
	type look struct {
		run, stored string
		token       int64
		isOld       bool
	}
	for name, looks := range map[string][]look{
		"a new process":                     {{"A", "A", 100, false}},
		"empty":                             {{"A", "", 0, true}},
		"a snapshot, or a replica":          {{"B", "A", 100, true}},
		"a token of another program":        {{"A", "A", 0, true}},
		"emptied, and built by another":     {{"A", "A", 100, false}, {"A", "", 0, true}, {"A", "A", 200, false}},
		"built by another, not seen":        {{"A", "A", 100, false}, {"A", "A", 200, false}},
		"elsewhere, where another built":    {{"A", "A", 100, false}, {"B", "B", 200, true}, {"B", "B", 200, true}},
		"elsewhere, and deleted here":       {{"A", "A", 100, false}, {"B", "B", 200, true}, {"B", "B", deletes, false}, {"B", "B", deletes, false}},
		"elsewhere, and deleted by both":    {{"A", "A", 100, false}, {"B", "B", deletes, false}, {"B", "B", 1 << 62, false}},
		"away and back":                     {{"A", "A", 100, false}, {"B", "B", deletes, false}, {"A", "A", 100, true}},
		"back, seen by a new process":       {{"B", "B", 200, false}, {"A", "A", 100, true}, {"A", "A", deletes, false}},
		"back, and elsewhere never deleted": {{"A", "A", 100, false}, {"B", "B", 200, true}, {"A", "A", 100, true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, n := newOne(t)
			for i, l := range looks {
				in := inspection{found: found{run: l.run, stored: map[string]stored{"": {"need=10", l.stored, l.token}}}, node: n}
				if l.stored == "" {
					in.stored[""] = stored{}
				}
				if l.token == deletes {
					in.stored[""] = stored{"need=10", l.stored, 0}
					in.stored[""] = stored{"need=10", l.stored, ns.next(in)}
				}
				err := ns.judge(t.Context(), in, nil)
				if errors.Is(err, ErrUnknown) != l.isOld || !l.isOld && err != nil {
					t.Fatalf("look %d: %v, want old: %t", i, err, l.isOld)
				}
				if (n.believe(in.found) == nil) == l.isOld { // a connection
					t.Errorf("look %d: a connection is believed: %t", i, l.isOld)
				}
			}
		})
	}
}

// A token is later than what the process saw, and than what it replaces, whatever the clock says.
func TestTokensRise(t *testing.T) {
	t.Parallel()
	ns, n := newOne(t)
	last := int64(0)
	for _, there := range []int64{0, 5, 1 << 62, 7} {
		token := ns.next(inspection{found: found{run: "A", stored: map[string]stored{"": {"need=10", "B", there}}}, node: n})
		if token <= max(last, there) {
			t.Errorf("after %d, where %d was: %d", last, there, token)
		}
		last = token
	}
	for text, want := range map[string]stored{
		stored{"need=10", "A", last}.String(): {"need=10", "A", last},
		"need=10 run=A JBSWY3DPEHPK3PXP":      {"need=10", "A", 0},
		"":                                    {},
	} {
		if got := parseStored(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
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

// What is stored beside the data is deleted before them.
func TestARunIsDeletedBeforeItsData(t *testing.T) {
	t.Parallel()
	ns, n := newOne(t)
	ns.options.Name = "settings"
	client := redis.NewClient(ns.plain)
	t.Cleanup(func() { _ = client.Close() })
	var first []any
	client.AddHook(stopped{&first})
	in := inspection{found: found{run: "B", stored: map[string]stored{"": {"need=10", "A", 100}}}, node: n}
	if err := ns.empty(t.Context(), client, in, "lock"); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	if len(first) != 2 || first[0] != "unlink" || first[1] != "settings" {
		t.Errorf("first %v", first)
	}
}

// A node of which no probe was seen for long is not read, but one that none has looked at yet is tried.
func TestAStaleNode(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		seen seen
		want error
	}{
		{seen{}, ErrUnseen},
		{seen{probed: now.Add(-seenFor() / 2)}, nil},
		{seen{probed: now.Add(-seenFor())}, errStale},
		{seen{probed: now.Add(-seenFor()), failed: ErrStamp}, errStale},
	} {
		if _, err := c.seen.state(now); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.seen, err, c.want)
		}
	}
	ns, n := newOne(t)
	ns.watched.Store(true)
	n.see(func(s *seen) { s.probed = now.Add(-seenFor()) })
	command := Command{Cmder: redis.NewCmd(t.Context(), "get", "x")}
	ns.Pipelined(t.Context(), []Command{command})
	if !errors.Is(command.Err(), errStale) {
		t.Errorf("a call to it: %v", command.Err())
	}
}
