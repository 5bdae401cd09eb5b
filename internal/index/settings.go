package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
)

// Settings are part of what the stored sets mean: a set of nine members is
// complete under Min 10 and is not under Min 9. So they are stored in Redis too,
// and a process with other settings refuses to use the sets.
type Settings struct {
	Need int // how many candidates a read wants; Max is derived from it
	Max  int // members a set holds at most
	Min  int // members below which a set is refilled, unless there are no more contacts
}

// NewSettings derives Max from need and the headroom in percent, rounded up.
// Min is minimum, or need if minimum is 0. An error names the number that is wrong.
func NewSettings(need, headroomPercent, minimum int) (Settings, error) {
	const maxNeed = 10_000
	switch {
	case need < 1 || need > maxNeed:
		return Settings{}, fmt.Errorf("need is %d: want 1 to %d", need, maxNeed)
	case headroomPercent < 0 || headroomPercent > 1000:
		return Settings{}, fmt.Errorf("headroom is %d %%: want 0 to 1000", headroomPercent)
	}
	s := Settings{Need: need, Max: need + (need*headroomPercent+99)/100, Min: minimum}
	if minimum == 0 {
		s.Min = need
	}
	if s.Min < 1 || s.Min > s.Max {
		return Settings{}, fmt.Errorf("min is %d: want 1 to %d (need %d plus %d %%)", minimum, s.Max, need, headroomPercent)
	}
	return s, nil
}

// String is the form in which the settings are stored.
func (s Settings) String() string {
	return fmt.Sprintf("need=%d max=%d min=%d", s.Need, s.Max, s.Min)
}

// ErrSettings says that the sets in Redis were built with other settings than this process
// was started with. Nothing was read from them or written.
var ErrSettings = errors.New("other settings")

// differ returns an [ErrSettings] that names both settings and what to do.
func (s Settings) differ(stored string) error {
	return fmt.Errorf("%w: the sets in Redis were built with %q, this process was started with %q: "+
		"start it with the numbers of the sets, or stop all processes and run `activityd reset --yes`, "+
		"after which the sets are built again from MySQL", ErrSettings, stored, s)
}

// settingsTrust is how long the stored settings are trusted after a comparison. Within it
// the methods use sets without comparing again. A comparison goes in the pipeline that is
// sent anyway; Add, which would have written by then, makes a round trip for it.
//
// The stored settings change in two ways only.
//
//   - An operator stops all processes, runs `activityd reset`, and starts them with other
//     settings. They compare at their start, by [Index.Check].
//   - Redis loses them, with the sets: by a FLUSHALL, a restart without persistence, or a
//     failover to a replica that lacks them. The processes that run go on, all with the
//     settings that were stored. What must not happen is that a set is made before they
//     are stored again, for a process with other settings could store its own beside it.
//     A set is made only by an update whose Begin found it missing (I4). So such a Begin
//     stores and compares, however recent the last comparison was; and if Redis is
//     emptied after it, the guard is gone, and Apply conflicts.
//
// What remains: Redis is emptied while processes run, or comes back with a backup from
// before a reset, and before one of them makes a set, a process is started with other
// settings, against the documentation. Then the old ones may change the sets of the new
// one until their trust ends: for five seconds, or one second where [Index.Watch]
// runs, whose probe compares.
const settingsTrust = 5 * time.Second

// Check reports whether the index can be used now: nil, or an error that matches
// [ErrUnavailable], as [ErrNoDatabase] does, or [ErrSettings]. Of a cluster all nodes must
// answer.
func (ix *Index) Check(ctx context.Context) (err error) {
	defer func(start time.Time) { ix.observe(opCheck, start, err) }(time.Now())
	nodes, err := ix.client.masters(ctx)
	if err != nil {
		return translate(ctx, "find the nodes", err)
	}
	var wrong, away error
	for _, n := range nodes {
		switch err := ix.compareNode(ctx, n); {
		case errors.Is(err, ErrSettings):
			wrong = cmp.Or(wrong, err)
		default:
			away = cmp.Or(away, err)
		}
	}
	return cmp.Or(wrong, away)
}

// trusts reports whether the settings that are stored on the node were compared not long
// ago.
func (ix *Index) trusts(n *node) bool {
	return ix.options.Now().UnixNano() < n.trustedUntil.Load()
}

// compareNode compares all settings that are stored on the node with those of the index.
func (ix *Index) compareNode(ctx context.Context, n *node) error {
	commands, stored := ix.readSettings(ctx, n)
	ix.client.sendTo(ctx, n, commands, false)
	return ix.compare(ctx, n, stored, false)
}

// readSettings returns commands that read all settings that are stored on the node.
func (ix *Index) readSettings(ctx context.Context, n *node) (commands []*command, stored []*redis.StringCmd) {
	for _, tag := range ix.client.tags(ctx, n) {
		cmd := textOf(ctx, settingsKeyOf(tag))
		stored = append(stored, cmd)
		commands = append(commands, newCommand(settingsKeyOf(tag), cmd))
	}
	return commands, stored
}

// compare compares the settings that are stored on a node with those of the index. That none are
// stored is no error, as there are no sets then, unless mustBe, after they were stored. The node
// is then not trusted either, so that the next Begin stores them.
func (ix *Index) compare(ctx context.Context, n *node, stored []*redis.StringCmd, mustBe bool) error {
	found := false
	for _, cmd := range stored {
		value, own := cmd.Val(), ix.options.Settings
		switch {
		case hasMoved(cmd.Err()) && !mustBe: // it is on another node by now
			continue
		case cmd.Err() != nil:
			n.trustedUntil.Store(0)
			return translate(ctx, "settings", cmd.Err())
		case value == "" && !mustBe:
			continue
		case value != own.String():
			n.trustedUntil.Store(0)
			if len(value) == maxTextBytes {
				value = strings.ToValidUTF8(value, "") + "…"
			}
			return own.differ(value)
		}
		found = true
	}
	if found {
		n.trustedUntil.Store(ix.options.Now().Add(settingsTrust).UnixNano())
	} else {
		n.trustedUntil.Store(0)
	}
	return nil
}

// storeSettings returns commands that store the settings of the index on the node unless there
// are some, and the one that reads what is stored then. For a node without a tag they are stored
// on another.
func (ix *Index) storeSettings(ctx context.Context, n *node) ([]*command, *redis.StringCmd) {
	tags := ix.client.tags(ctx, n)
	if len(tags) == 0 {
		tags = tagsOf(ix.client.UniversalClient)
	}
	tag := tags[0]
	key := settingsKeyOf(tag)
	stored := textOf(ctx, key)
	return []*command{newCommand(key, redis.NewBoolCmd(ctx, "setnx", key, ix.options.Settings.String())), newCommand(key, stored)}, stored
}

// byNode returns the nodes of the users' sets, and the users of each by their place. A user
// whose node cannot be found has an error.
func (ix *Index) byNode(ctx context.Context, users []member.ID) (nodes map[*node][]int, failed map[int]error) {
	nodes = make(map[*node][]int)
	for i, user := range users {
		n, err := ix.client.nodeOf(ctx, UserKey(user))
		if err != nil {
			if failed == nil {
				failed = make(map[int]error)
			}
			failed[i] = translate(ctx, "find the node of "+user.String(), err)
			continue
		}
		nodes[n] = append(nodes[n], i)
	}
	return nodes, failed
}
