package index

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
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
//
// The trim counts from the lowest rank: 0 to -(max+1) leaves exactly max.
//
// What a set costs are the commands, so the common ways are short: one command for a
// member that rises, two for a contact that comes into a full set. Which it is, is
// guessed from the set before: in a fan-out most of the sets have the contact, or most
// do not. A wrong guess costs one command. NX would make a missing set, so isThere is
// called before. Numbers are made strings once: Redis is slow to convert those of Lua.
//
// Only the size after the trim reports whether the contact should have stayed outside.
// It is taken out again then: a script is one step, and no other command sees it.
const addFunction = `
local function adder(max, min, isThere)
  local last, expected = tostring(-(max + 1)), true

  local function settle(key, score, contact)
    local cut = redis.call('ZREMRANGEBYRANK', key, '0', last)
    if cut > 0 then return 'trimmed', cut end
    if redis.call('ZCARD', key) > min then
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
    if not isThere(key) then return 'missing', 0 end
    local came = redis.pcall('ZADD', key, 'NX', score, contact)
    if came == 1 then return settle(key, score, contact) end
    if came ~= 0 and redis.call('TYPE', key).ok ~= 'zset' then return 'missing', 0 end
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
//	KEYS[1…n]     the sets
//	KEYS[n+1…2n]  their guards, in the same order
//	ARGV[1]       max
//	ARGV[2]       min
//	ARGV[3]       the score
//	ARGV[4]       the contact
//	returns       {{outcome of adder, how often, …}, {i of each KEYS[i] that is missing, …}}
var addScript = newScript(addFunction + `
local n, all = #KEYS / 2, nil
local add = adder(tonumber(ARGV[1]), tonumber(ARGV[2]), function(key)
  if all == nil then all = redis.call('EXISTS', unpack(KEYS, 1, n)) == n end
  return all or redis.call('EXISTS', key) == 1
end)
local counts, missing, ended = {}, {}, {}
for i = 1, n do
  local outcome = add(KEYS[i], ARGV[3], ARGV[4])
  counts[outcome] = (counts[outcome] or 0) + 1
  if outcome == 'missing' then missing[#missing + 1] = i end
  if outcome ~= 'added' and outcome ~= 'rose' then ended[#ended + 1] = KEYS[n + i] end
end
if #ended > 0 then redis.call('DEL', unpack(ended)) end
local pairwise = {}
for outcome, times in pairs(counts) do
  pairwise[#pairwise + 1] = outcome
  pairwise[#pairwise + 1] = times
end
return {pairwise, missing}
`)

// Add adds uploads to sets, pipelined. It needs no guard because it only ever raises. It
// returns the members whose set is missing or malformed and needs a refill, once each and
// sorted, and the errors of those of whose set it is not known whether the contact was
// added: add again. In all other sets the contact is there now, unless its upload lies
// outside the set.
func (ix *Index) Add(ctx context.Context, additions []Addition) (missing []member.ID, failed map[member.ID]error) {
	if len(additions) == 0 {
		return nil, nil
	}
	start := time.Now()
	failed = make(map[member.ID]error)
	additions = ix.trusted(ctx, additions, failed)
	outcomes := make(map[AddOutcome]int)
	all := len(additions)
	if ix.rises.Load() {
		additions = ix.raise(ctx, additions, outcomes)
	}
	calls := ix.addCalls(additions)
	for i, r := range ix.client.evalAll(ctx, addScript, calls, nil) {
		n := len(calls[i].keys) / 2
		absent, err := readAdded(additions[:n], r, outcomes)
		missing = append(missing, absent...)
		if err != nil {
			err = translate(ctx, fmt.Sprintf("add contact %s to %d sets, the first that of %s", additions[0].Contact, n, additions[0].Member), err)
			for _, a := range additions[:n] {
				failed[a.Member] = err
			}
		}
		additions = additions[n:]
	}
	ix.rises.Store(2*outcomes[addRose] > all)
	outcomes[AddTaken] += outcomes[addRose]
	delete(outcomes, addRose)
	for outcome, n := range outcomes {
		adds.WithLabelValues(string(outcome)).Add(float64(n))
	}
	// A set of at most Max members grows by one, so no more than one is cut off.
	trims.Add(float64(outcomes[AddTrimmed]))
	slices.Sort(missing)
	var err error
	for _, err = range failed {
		break
	}
	ix.observe(opAdd, start, err)
	return slices.Compact(missing), failed
}

// trusted compares the stored settings where that was not done lately, and returns the
// additions to sets of nodes that have the own ones. The others have failed.
func (ix *Index) trusted(ctx context.Context, additions []Addition, failed map[member.ID]error) []Addition {
	errs := make(map[*node]error)
	return slices.DeleteFunc(slices.Clone(additions), func(a Addition) bool {
		n, err := ix.client.nodeOf(ctx, UserKey(a.Member))
		if err == nil {
			compared, ok := errs[n]
			if !ok {
				if !ix.trusts(n) {
					compared = ix.compareNode(ctx, n)
				}
				errs[n] = compared
			}
			err = compared
		}
		if err != nil {
			failed[a.Member] = translate(ctx, "find the node of "+a.Member.String(), err)
		}
		return err != nil
	})
}

// raise raises the scores of contacts that are members of their sets, which is all that
// adder does for them, and returns the additions that it did not raise. One command a set
// costs less than a script.
func (ix *Index) raise(ctx context.Context, additions []Addition, outcomes map[AddOutcome]int) (others []Addition) {
	commands, raised := make([]*command, len(additions)), make([]*redis.IntCmd, len(additions))
	for i, a := range additions {
		key := UserKey(a.Member)
		raised[i] = redis.NewIntCmd(ctx, "zadd", key, "xx", "gt", "ch", a.Score, a.Contact.String())
		commands[i] = newCommand(key, raised[i])
	}
	ix.client.send(ctx, commands)
	for i, cmd := range raised {
		if cmd.Err() == nil && cmd.Val() == 1 {
			outcomes[addRose]++
		} else {
			others = append(others, additions[i])
		}
	}
	return others
}

// addCalls makes one call of consecutive additions with the same entry, as those of a
// fan-out are, up to as many sets as one call may touch.
func (ix *Index) addCalls(additions []Addition) (calls []call) {
	maxSets, s := ix.client.setsPerCall(), ix.options.Settings
	for len(additions) > 0 {
		same, n := additions[0].Entry, 1
		for n < min(maxSets, len(additions)) && additions[n].Entry == same {
			n++
		}
		keys := make([]string, 2*n)
		for i, a := range additions[:n] {
			keys[i] = UserKey(a.Member)
			keys[n+i] = guardKey(keys[i])
		}
		calls = append(calls, call{keys, []any{s.Max, s.Min, same.Score, same.Contact.String()}})
		additions = additions[n:]
	}
	return calls
}

// readAdded reads the reply to one call: it counts the outcomes, and returns the members
// whose set is missing.
func readAdded(additions []Addition, r reply, outcomes map[AddOutcome]int) (missing []member.ID, err error) {
	parts, _ := r.value.([]any)
	if r.err == nil && len(parts) != 2 {
		r.err = fmt.Errorf("unexpected reply %v", r.value)
	}
	if r.err != nil {
		return nil, r.err
	}
	counts, _ := parts[0].([]any)
	for pair := range slices.Chunk(counts, 2) {
		outcome, _ := pair[0].(string)
		n, _ := pair[1].(int64)
		outcomes[AddOutcome(outcome)] += int(n)
	}
	positions, _ := parts[1].([]any)
	for _, position := range positions {
		i, _ := position.(int64)
		missing = append(missing, additions[i-1].Member)
	}
	return missing, nil
}
