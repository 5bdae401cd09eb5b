package index

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/redisreply"
)

// addFunction defines adder, the one way into a set, for all scripts that add; the
// package comment says why each of its rules is needed. The function that adder makes
// returns, and second how many ranks were cut off,
//
//	"missing"    there is no set, or something else; nothing was written
//	"outside"    the score lies below a set that may be cut off and is not full; nothing was written
//	"trimmed"    added, and the lowest rank was cut off: another contact, or this one
//	"unchanged"  the contact was a member already, with that score
//	"below"      the contact was a member already, with a higher score; nothing was written
//	"rose"       the contact was a member already, and its score rose
//	"added"      the contact is a new member, and no rank was cut off
//	"failed"     the server refused; nothing was written
//
// The trim counts from the lowest rank: 0 to -(max+1) leaves exactly max.
//
// What a set costs are the commands, so the common ways are short: one command for a
// member that rises, two for a contact that comes into a full set. Which it is, is
// guessed from the set before: in a fan-out most of the sets have the contact, or most
// do not. A wrong guess costs one command. Numbers are made strings once: Redis is slow to
// convert those of Lua.
//
// Only the size after the trim reports whether the contact should have stayed outside, or
// whether there was no set before. It is taken out again then: a script is one step, and
// no other command sees it.
const addFunction = `
local function adder(max, min)
  local last, expected = tostring(-(max + 1)), true

  local function settle(key, score, contact)
    local cut = redis.call('ZREMRANGEBYRANK', key, '0', last)
    if cut > 0 then return 'trimmed', cut end
    local size = redis.call('ZCARD', key)
    if size == 1 then
      redis.call('ZREM', key, contact)
      return 'missing', 0
    end
    if size > min then
      local low = redis.call('ZRANGE', key, '0', '1', 'WITHSCORES')
      if low[1] == contact and tonumber(score) < tonumber(low[4]) then
        redis.call('ZREM', key, contact)
        return 'outside', 0
      end
    end
    return 'added', 0
  end

  return function(key, score, contact)
    if expected and redis.pcall('ZADD', key, 'XX', 'GT', 'CH', score, contact) == 1 then return 'rose', 0 end
    expected = false
    local came = redis.pcall('ZADD', key, 'NX', score, contact)
    if came == 1 then return settle(key, score, contact) end
    if came ~= 0 then
      if string.find(came.err, 'WRONGTYPE', 1, true) then return 'missing', 0 end
      return 'failed', 0
    end
    expected = true
    if redis.call('ZADD', key, 'XX', 'GT', 'CH', score, contact) == 1 then return 'rose', 0 end
    if tonumber(redis.call('ZSCORE', key, contact)) > tonumber(score) then return 'below', 0 end
    return 'unchanged', 0
  end
end
`

// Addition is one contact's last upload, for one member's set.
type Addition struct {
	Member member.ID
	Entry
}

// addScript adds one contact to each of some sets. Where the upload leaves no trace in
// the set, or takes another's away, it deletes the guard: the update under way may have
// read MySQL before the upload, and be about to make the set, or to remove or lower the
// contact.
//
// It is run in two ways. For many sets of one node their keys are made here and not
// declared, because all that are declared must lie in one slot of a cluster. Servers accept
// that from a script, and refuse each command whose key lies elsewhere, or is being moved:
// all versions of Redis and Valkey do, though both advise against it. What failed is
// repeated, set by set, with declared keys, which every server accepts.
//
//	KEYS[1]  the set, KEYS[2] its guard; or none
//	ARGV[1]  the score
//	ARGV[2]  the contact
//	ARGV[3]  max
//	ARGV[4]  min
//	ARGV[5]  1 if the guards can be deleted by one command, else 0
//	ARGV[6…] the members whose sets they are
//	returns  {{outcome of adder, how often, …}, {i of each ARGV[5+i] whose set is missing, …},
//	         {i of each that failed, …}}
var addScript = redisnodes.NewScript(addFunction + `
local score, contact, together = ARGV[1], ARGV[2], ARGV[5] == '1'
local add = adder(tonumber(ARGV[3]), tonumber(ARGV[4]))
local counts, missing, failed, ended = {}, {}, {}, {}
for i = 1, #ARGV - 5 do
  local key = KEYS[1] or '` + userKeyPrefix + `' .. ARGV[5 + i]
  local outcome = add(key, score, contact)
  if outcome ~= 'added' and outcome ~= 'rose' and outcome ~= 'failed' then
    local guard = KEYS[2] or 'guard_{' .. key .. '}'
    if together then
      ended[#ended + 1] = guard
    elseif type(redis.pcall('DEL', guard)) == 'table' then
      outcome = 'failed'
    end
  end
  if outcome == 'failed' then failed[#failed + 1] = i else counts[outcome] = (counts[outcome] or 0) + 1 end
  if outcome == 'missing' then missing[#missing + 1] = i end
end
if #ended > 0 then redis.call('DEL', unpack(ended)) end
local pairwise = {}
for outcome, times in pairs(counts) do
  pairwise[#pairwise + 1] = outcome
  pairwise[#pairwise + 1] = times
end
return {pairwise, missing, failed}
`)

// setsPerCall is how many sets one run of addScript adds to: a run costs more than the
// commands for a set do. A hundred keep the server busy for about a quarter of a
// millisecond.
const setsPerCall = 100

// Add adds uploads to sets, pipelined. It needs no guard because it only ever raises. It
// returns the members whose set is missing or malformed and needs a refill, once each and
// sorted, and an error for each member of whose set it is not known whether the contact was
// added: call Add again for these. In all other sets the contact is there now, unless its
// upload lies outside the set.
func (ix *Index) Add(ctx context.Context, additions []Addition) (missing []member.ID, failed map[member.ID]error) {
	if len(additions) == 0 {
		return nil, nil
	}
	start := time.Now()
	a := &adding{Index: ix, outcomes: make(map[AddOutcome]int), failed: make(map[member.ID]error)}
	again := a.run(ctx, ix.callsByNode(ctx, a.trusted(ctx, additions)))
	for _, left := range a.run(ctx, ix.callsBySet(a.raise(ctx, again))) {
		a.failed[left.Member] = fmt.Errorf("add contact %s to the set of %s: %w: a command failed within a script", left.Contact, left.Member, ErrUnavailable)
	}
	for outcome, n := range a.outcomes {
		adds.WithLabelValues(string(outcome)).Add(float64(n))
	}
	// A set of at most Max members grows by one, so no more than one is cut off.
	trims.Add(float64(a.outcomes[AddTrimmed]))
	slices.Sort(a.missing)
	var err error
	for _, err = range a.failed {
		break
	}
	ix.observe(opAdd, start, err)
	return slices.Compact(a.missing), a.failed
}

// adding is one [Index.Add] under way, and what it has done.
type adding struct {
	*Index

	outcomes map[AddOutcome]int
	missing  []member.ID
	failed   map[member.ID]error
}

// trusted compares the stored settings where that was not done lately, and returns the
// additions to sets on nodes with the settings of the index. The others fail.
func (a *adding) trusted(ctx context.Context, additions []Addition) []Addition {
	errs := make(map[*redisnodes.Node]error)
	return slices.DeleteFunc(slices.Clone(additions), func(one Addition) bool {
		n, err := a.Of(ctx, UserKey(one.Member))
		if err != nil {
			err = redisnodes.Translate(ctx, "find the node of "+one.Member.String(), err)
		} else {
			if _, done := errs[n]; !done && !n.Trusted() {
				errs[n] = a.CheckStamp(ctx, n)
			}
			err = errs[n]
		}
		if err != nil {
			a.failed[one.Member] = err
		}
		return err != nil
	})
}

// raise raises the scores of contacts that are members of their sets, which is all that
// adder does for them, and returns the additions that it did not raise. Unlike a script,
// the command works in a slot that is being moved.
func (a *adding) raise(ctx context.Context, additions []Addition) (others []Addition) {
	commands, raised := make([]*redisnodes.Command, len(additions)), make([]*redis.IntCmd, len(additions))
	for i, one := range additions {
		key := UserKey(one.Member)
		raised[i] = redis.NewIntCmd(ctx, "zadd", key, "xx", "gt", "ch", one.Score, one.Contact.String())
		commands[i] = redisnodes.NewCommand(key, raised[i])
	}
	a.Send(ctx, commands)
	for i, cmd := range raised {
		passing, _ := redisreply.Passing(cmd.Err())
		switch one := additions[i]; {
		case cmd.Err() == nil && cmd.Val() == 1:
			a.outcomes[AddTaken]++
		case passing && !redisnodes.IsOfSlot(cmd.Err()): // nor would a script be run
			a.failed[one.Member] = redisnodes.Translate(ctx, fmt.Sprintf("add contact %s to the set of %s", one.Contact, one.Member), cmd.Err())
		default:
			others = append(others, one)
		}
	}
	return others
}

// addCall is one run of addScript and what it is to add.
type addCall struct {
	redisnodes.Call

	additions []Addition
}

// run runs addScript. It returns the additions that failed though their server can be
// used: another way may work.
func (a *adding) run(ctx context.Context, runs []addCall) (again []Addition) {
	calls := make([]redisnodes.Call, len(runs))
	for i, r := range runs {
		calls[i] = r.Call
	}
	for i, r := range a.Eval(ctx, addScript, calls, nil) {
		some := runs[i].additions
		parts, _ := r.Value.([]any)
		if r.Err == nil && len(parts) != 3 {
			r.Err = fmt.Errorf("unexpected reply %v", r.Value)
		}
		switch {
		case r.Err == nil:
			again = append(again, a.read(some, parts)...)
		case len(calls[i].Keys) == 0 && !redisnodes.IsUnreachable(r.Err):
			again = append(again, some...)
		default:
			err := redisnodes.Translate(ctx, fmt.Sprintf("add contact %s to %d sets, the first that of %s", some[0].Contact, len(some), some[0].Member), r.Err)
			for _, one := range some {
				a.failed[one.Member] = err
			}
		}
	}
	return again
}

// read reads a reply of addScript, and returns the additions that failed.
func (a *adding) read(some []Addition, parts []any) (failed []Addition) {
	counts, _ := parts[0].([]any)
	for pair := range slices.Chunk(counts, 2) {
		outcome, _ := pair[0].(string)
		n, _ := pair[1].(int64)
		if outcome == "rose" {
			outcome = string(AddTaken)
		}
		a.outcomes[AddOutcome(outcome)] += int(n)
	}
	for _, one := range pick(some, parts[1]) {
		a.missing = append(a.missing, one.Member)
	}
	return pick(some, parts[2])
}

// pick returns the additions at positions of a reply, which count from 1.
func pick(additions []Addition, positions any) (picked []Addition) {
	list, _ := positions.([]any)
	for _, position := range list {
		i, _ := position.(int64)
		picked = append(picked, additions[i-1])
	}
	return picked
}

// callsByNode makes one call of consecutive additions with the same entry, as those of a
// fan-out are, to sets on the same node.
func (ix *Index) callsByNode(ctx context.Context, additions []Addition) (calls []addCall) {
	var entry Entry
	open := make(map[*redisnodes.Node]int) // the places of the calls that have room
	for _, a := range additions {
		n, err := ix.Of(ctx, UserKey(a.Member))
		if err != nil { // it was found a moment ago
			n = nil
		}
		if a.Entry != entry {
			entry = a.Entry
			clear(open)
		}
		at, ok := open[n]
		if !ok || len(calls[at].additions) == setsPerCall {
			at, open[n] = len(calls), len(calls)
			calls = append(calls, addCall{Call: redisnodes.Call{On: n, Args: ix.addArgs(a, !ix.IsCluster())}})
		}
		calls[at].additions = append(calls[at].additions, a)
		calls[at].Args = append(calls[at].Args, uint64(a.Member))
	}
	return calls
}

// callsBySet makes a call of each addition.
func (ix *Index) callsBySet(additions []Addition) []addCall {
	calls := make([]addCall, len(additions))
	for i, a := range additions {
		set := UserKey(a.Member)
		args := append(ix.addArgs(a, false), uint64(a.Member))
		calls[i] = addCall{redisnodes.Call{Keys: []string{set, guardKey(set)}, Args: args}, additions[i : i+1]}
	}
	return calls
}

func (ix *Index) addArgs(a Addition, together bool) []any {
	s := ix.options.Settings
	return append(make([]any, 0, 5+setsPerCall), a.Score, a.Contact.String(), s.Max, s.Min, together)
}
