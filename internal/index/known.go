package index

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
	"github.com/activityd/activityd/internal/retry"
)

// What is stored in a server may be older than what was written to it: a replica may have
// taken over that had not been sent all, or the server may have started with data that
// was saved some time ago. Then I1 and I2 do not hold of its sets, though no task is
// pending. So the sets of a node are believed only while the run of the server that they
// were written to, which is stored beside them, is the run of the server that answers.
// INFO reports it; each start has a new one.
//
//   - It is looked up before the first reply of a node is believed, and again before the
//     next one whenever a connection to the node was made: a server that restarted, or
//     another one in its place, answers over new connections only ([node.dials]). A
//     replica that took over was no master before, and was not believed.
//   - The key of the run replicates, is saved and is restored as the sets are, so it
//     holds the run of those data. No process has to be there when it happens.
//   - In a cluster there are such keys for each node, in slots that are evenly spread. They
//     move with their slots: a run that is that of another master now says that a slot
//     came from there, and is overwritten. [Index.Probe] does so, which asks all masters.
//   - The sets of any other node are unknown. One process deletes them, and then stores
//     the run: after it a set is missing, which means unknown by I4, or was made since.
//   - Where an address is moved to another server, connections to the former one may stay
//     open: see below.
//   - Where a server does not report its run, as an ACL may forbid INFO, its data are
//     believed, and only the marks show what it lost.
//
// The address of a single server may be moved, as by a proxy or a name. The argument relies
// on it that it moves in one direction: a connection that was begun after another one had
// answered leads to the same server, or to a later one. (Not after another one was made: a
// proxy may choose the server later.) A connection is counted when it answers first. So
//
//   - a run is asked for over a connection that is made for it ([client.execNewest]), later than
//     all that were counted before;
//   - if it is not the run that was known, or none was, all other connections are closed,
//     and those that are being made ([client.noteRun]). All that there are afterwards lead to
//     that server or to a later one, and are counted: none is used before it is judged;
//   - if it is the run that was known, those counted before were begun after it was first
//     found, and answered before it was found again: they lead to that server, too;
//   - a reply to what was sent before such a closing is not believed after it
//     ([client.believes]): the epoch is raised when all are closed, so that what is sent in
//     the new one goes over none of them.
//
// Nor is one to what was sent while the data were unknown, of any node: the set may have been
// read before it was deleted.
//
// So no process believes two servers at a time. One that needs no new connection goes on
// with the former server until it probes, for a probe asks over a new connection as well.
// What it adds there by then is missing in sets that others have built at the new server.
//
// The marks are numbers that each probe raises. One that falls shows that a server which
// runs on has other data, as after a restore in place.

// ErrUnknown says that the node of a set came back with data that may be old. Its sets are
// not believed until they are deleted, within seconds or minutes.
var ErrUnknown = errors.New("what the node holds may be old")

// knowledge is what was found out about the data of a node.
type knowledge struct {
	dials int64  // of the node before it was found out
	run   string // of the server; "": it does not report it
	err   error  // nil: they can be believed
	at    time.Time
}

// unknownFor is how long an [ErrUnknown] holds before it is checked again.
const unknownFor = time.Second

// holds reports whether k applies to replies over connections of which so many were counted.
func (k *knowledge) holds(n *node, dials int64) bool {
	return k != nil && k.dials >= dials && (k.err == nil || n.now().Sub(k.at) < unknownFor)
}

// believes returns nil if the reply to a command can be believed, [ErrUnknown] if not, or why
// that cannot be found out.
func (c *client) believes(ctx context.Context, cmd *command) error {
	if err := c.knows(ctx, cmd.on); err != nil { // before the next look
		return err
	}
	return cmd.outdated()
}

// outdated returns [ErrUnknown] if the command was sent in an epoch of its node that is over.
func (cmd *command) outdated() error {
	if cmd.on != nil && cmd.epoch != cmd.on.epoch.Load() {
		return fmt.Errorf("%s: it answered before its data were known: %w", cmd.on.addr, ErrUnknown)
	}
	return nil
}

// knows returns nil if the replies of the node in its present epoch can be believed,
// [ErrUnknown] if not, or why that cannot be found out.
func (c *client) knows(ctx context.Context, n *node) error {
	counted := n.dials.Load() // with those that the replies came over
	if k := n.known.Load(); k.holds(n, counted) {
		return k.err
	}
	if err := n.lockKnown(ctx); err != nil {
		return translate(ctx, "ask for the run of "+n.addr, err)
	}
	defer func() { <-n.knowing }()
	before, dials := n.known.Load(), n.dials.Load()
	if before.holds(n, counted) {
		return before.err
	}
	tags := c.tags(ctx, n)
	if len(tags) == 0 { // as servers disagree after a failover
		return fmt.Errorf("%s has no slots: %w", n.addr, ErrUnknown)
	}
	info := redis.NewStringCmd(ctx, "info", "server")
	commands := []*command{newCommand("", info)}
	var servers []*redis.StringCmd
	for _, tag := range tags {
		server := textOf(ctx, serverKey(tag))
		servers = append(servers, server)
		commands = append(commands, newCommand(serverKey(tag), server))
	}
	c.execNewest(ctx, n, commands, false)
	run, err := runOf(info)
	n.noteAnswer(ctx, err)
	if err != nil {
		return translate(ctx, "ask for the run of "+n.addr, err)
	}
	c.noteRun(n, n.epoch.Load(), run) // no epoch began since it was asked for, as knowing is held
	k := &knowledge{dials: dials, run: run, at: n.now()}
	if before == nil || before.run != run || before.err != nil {
		for _, server := range servers {
			if hasMoved(server.Err()) { // not on this node any more
				continue
			}
			if err := server.Err(); err != nil {
				return translate(ctx, "ask for the run of the data of "+n.addr, err)
			}
			if stored := server.Val(); run != "" && stored != "" && stored != run {
				k.err = fmt.Errorf("%s: %w", n.addr, ErrUnknown)
			}
		}
	}
	n.known.Store(k)
	return k.err
}

// lockKnown waits for knowing. It fails if the node is known not to answer by then.
func (n *node) lockKnown(ctx context.Context) error {
	select {
	case n.knowing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := cmp.Or(ctx.Err(), n.down())
	if err != nil {
		<-n.knowing
	}
	return err
}

// noteRun begins an epoch of the node, unless the run was known and its data were believed.
// Where the connections of one server may lead to another run, it closes them. It reports
// false, and does nothing, if they may have been closed since the epoch in which the run was
// asked for: the run that was found by then may be a later one. The caller holds knowing.
func (c *client) noteRun(n *node, epoch int64, run string) bool {
	before := n.known.Load()
	switch isSame := before != nil && before.run == run; {
	case isSame && before.err == nil:
	case isSame || c.cluster != nil:
		n.beginEpoch(false)
	case epoch != n.epoch.Load():
		return false
	default:
		n.beginEpoch(true)
	}
	return true
}

// runOf returns the run of a server, "" if it does not report it.
func runOf(info *redis.StringCmd) (string, error) {
	if err := info.Err(); err != nil {
		passing, refused := redisreply.Passing(err)
		if isUnreachable(err) || errors.Is(err, redis.Nil) || passing && !refused { // nil is of a Sentinel
			return "", err
		}
		return "", nil // it forbids the command, or does not have it
	}
	for line := range strings.Lines(info.Val()) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", nil
}

// inspection is what a probe read of a node beside its sets.
type inspection struct {
	run   string
	dials int64 // before it was read
	epoch int64 // the same
	tags  []tagState
	// failed are the tags that could not be read, though they did not move.
	failed []string
}

// tagState is what is stored under a tag.
type tagState struct {
	tag, server string
	mark, lost  int64
	rewound     bool // its mark is not higher than it was, for a reason that no process noticed
}

// judge finds out whether the data of the nodes can be believed, after all were
// inspected. It begins to delete those that cannot, until background ends; nil: it leaves
// that to others.
func (c *client) judge(ctx, background context.Context, inspected map[*node]*inspection) {
	runs := make(map[string]bool)
	for _, in := range inspected {
		runs[in.run] = true
	}
	for n, in := range inspected {
		select {
		case n.knowing <- struct{}{}:
		case <-ctx.Done():
			continue // the next probe judges it
		}
		if !c.noteRun(n, in.epoch, in.run) { // it may be of a former server
			<-n.knowing
			continue
		}
		unknown, emptied, moved := c.judgeTags(ctx, n, in, runs)
		k := &knowledge{dials: in.dials, run: in.run, at: c.now()}
		if unknown {
			k.err = fmt.Errorf("%s: %w", n.addr, ErrUnknown)
		}
		switch before := n.known.Load(); {
		case !unknown && (len(in.failed) > 0 || len(in.tags) == 0): // not all was compared
		case before == nil || before.dials <= in.dials:
			n.known.Store(k)
		}
		<-n.knowing
		switch {
		case unknown && background != nil:
			c.purge(background, n, in)
		case unknown:
		case emptied:
			c.settle(ctx, n, in, c.now().UnixMilli())
		case moved:
			c.settle(ctx, n, in, 0)
		}
	}
}

// judgeTags finds out what the tags of a node say: that its data may be old, that some are
// gone, that some came from another node. runs are those of all nodes.
func (c *client) judgeTags(ctx context.Context, n *node, in *inspection, runs map[string]bool) (unknown, emptied, moved bool) {
	for i, t := range in.tags {
		c.lostAt = max(c.lostAt, t.lost)
		switch {
		case t.server == "": // nothing was written, or all of it is gone
			emptied = true
		case t.rewound && (t.server == in.run || t.server == unknownRun):
			unknown = true
			if n.Set(ctx, serverKey(t.tag), rewoundRun, 0).Err() == nil { // for the other processes
				in.tags[i].server = rewoundRun
			}
		case in.run == "" && t.server != rewoundRun, t.server == in.run:
		case runs[t.server], t.server == unknownRun:
			moved = true
		default:
			unknown = true
			// The server whose run it is may come to have these data: a former master that
			// follows this one, and is a master again.
			if t.server != rewoundRun && n.Set(ctx, serverKey(t.tag), rewoundRun, 0).Err() == nil {
				in.tags[i].server = rewoundRun
			}
		}
	}
	return unknown, emptied, moved
}

// settleScript stores the run of the server, and raises when data were lost last, unless
// another process has stored a run since.
//
//	KEYS[1] the run  KEYS[2] the last loss
//	ARGV[1] the run that was stored, "" for none  ARGV[2] the run  ARGV[3] the loss, 0 for none
//	returns the last loss
var settleScript = redis.NewScript(`
local lost = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
if (redis.call('GETRANGE', KEYS[1], 0, 99)) ~= ARGV[1] then return lost end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[3] == '0' then return lost end
lost = math.max(lost + 1, tonumber(ARGV[3]))
redis.call('SET', KEYS[2], string.format('%.0f', lost))
return lost
`)

// settle stores that the data of the node are those of its present run. The caller holds
// probing.
func (c *client) settle(ctx context.Context, n *node, in *inspection, lost int64) {
	run := in.run
	if run == "" {
		run = unknownRun // so that it shows when all is gone
	}
	if lost != 0 { // one of another node may have been noted by a clock that is ahead
		lost = max(lost, c.lostAt+1)
	}
	for _, t := range in.tags {
		if t.server == run {
			continue
		}
		reply := settleScript.Run(ctx, n.Client, []string{serverKey(t.tag), lostKey(t.tag)}, t.server, run, lost)
		if lost, err := reply.Int64(); err == nil { // otherwise the next probe does it
			c.lostAt = max(c.lostAt, lost)
			seen := c.marks[t.tag]
			seen.lost = lost
			c.marks[t.tag] = seen
			c.newLoss = true
		}
	}
}

// What stands for a run: unknownRun for that of a server that does not report it, rewoundRun
// for that of data which may be old.
const (
	unknownRun = "-"
	rewoundRun = "rewound"
)

const (
	purgeTTL  = 15 * time.Second // of the lock of the process that deletes the sets of a node
	purgeRest = 1                // after a page that took t there is a pause of purgeRest times t
)

// keepScript extends the lock of a purge, or deletes it, while it is of this process.
//
//	KEYS[1]  the lock
//	ARGV[1]  the token
//	ARGV[2]  its TTL in milliseconds, 0 to delete it
//	returns  1; 0 if it is of another process, or none
var keepScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`)

// errPurgeLost says that the lock of a purge ended, and another process may have it.
var errPurgeLost = errors.New("the lock of the purge was lost")

// purge deletes all sets of the node, if no other process does, and then settles it. The
// guards go as well: an update that found no set here may have begun before an add whose
// deletion of the guard was lost.
//
// A process that was paused past its lock deletes no further page: the sets may be those that
// were made since another process settled the node.
func (c *client) purge(ctx context.Context, n *node, in *inspection) {
	if len(in.tags) == 0 || !n.purging.CompareAndSwap(false, true) {
		return
	}
	c.purges.Go(func() {
		defer n.purging.Store(false)
		lock, token := purgeKey(in.tags[0].tag), rand.Text()
		if got, err := n.SetNX(ctx, lock, token, purgeTTL).Result(); err != nil || !got {
			return
		}
		keep := func(ttl time.Duration) error {
			kept, err := keepScript.Run(ctx, n.Client, []string{lock}, token, ttl.Milliseconds()).Int()
			if err == nil && kept == 0 {
				err = errPurgeLost
			}
			return err
		}
		err := eachPage(ctx, n.Client, func(keys []string) error {
			if err := keep(purgeTTL); err != nil {
				return err
			}
			began := time.Now()
			if err := unlink(ctx, n.Client, keys); err != nil {
				return err
			}
			return retry.Sleep(ctx, purgeRest*time.Since(began))
		})
		if err == nil {
			err = keep(purgeTTL)
		}
		if err == nil {
			c.probing.Lock()
			c.settle(ctx, n, in, c.now().UnixMilli())
			c.noteLosses(ctx)
			c.probing.Unlock()
			err = keep(0)
		}
		_ = err // the next probe starts over with what is left
	})
}

// eachPage calls do with the keys of the sets of one server and of their guards, a page at a
// time.
func eachPage(ctx context.Context, server redis.UniversalClient, do func(keys []string) error) error {
	for cursor := uint64(0); ; {
		keys, next, err := server.Scan(ctx, cursor, "*"+userKeyPrefix+"*", pipelineSize).Result()
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		keys = slices.DeleteFunc(keys, func(key string) bool { // other programs have keys, too
			_, isSet := ownerOf(key)
			_, isGuard := ownerOf(strings.TrimSuffix(strings.TrimPrefix(key, "guard_{"), "}"))
			return !isSet && !isGuard
		})
		if len(keys) > 0 {
			if err := do(keys); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// unlink deletes keys of one server, one a command, since a cluster node refuses a
// command whose keys lie in several slots. Keys that have moved to another node are left.
func unlink(ctx context.Context, server redis.UniversalClient, keys []string) error {
	cmds, err := server.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			pipe.Unlink(ctx, key)
		}
		return nil
	})
	if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil && !hasMoved(c.Err()) }) || len(cmds) == 0 && err != nil {
		return fmt.Errorf("unlink: %w", err)
	}
	return nil
}

// LostAt is when a node was last found to have lost data, in unix milliseconds by the clock
// of the process that found out; 0: never, as far as [Index.Probe] knows. [Index.LostSince]
// reports which sets it concerns.
func (ix *Index) LostAt() int64 {
	if known := ix.client.losses.Load(); known != nil {
		return known.last
	}
	return 0
}

// number reads a decimal; 0 for anything else.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
