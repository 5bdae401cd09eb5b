package index

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

// addFunction defines adder, the only way into a set, for all scripts that add. The package comment
// gives the reason for each of its rules. adder returns a function, whose results are an outcome
// and the number of ranks that it cut off:
//
//	"missing"    there is no set, or something else; nothing was written
//	"outside"    the score lies below a set that may be cut off and is not full; nothing was written
//	"trimmed"    added, and the lowest rank was cut off, perhaps the contact itself
//	"unchanged"  the contact was a member already, with that score
//	"below"      the contact was a member already, with a higher score; nothing was written
//	"rose"       the contact was a member already, and its score rose
//	"added"      the contact is a new member, and no rank was cut off
//	"failed"     the server refused, and the second is its error; nothing was written
//
// The trim counts from the lowest rank: 0 to -(max+1) leaves exactly max.
//
// The commands are the cost of an add, so the common ways are short: a member that rises takes one
// command, a contact that comes into a full set takes two. The function guesses the way from the
// set before: in a fan-out most of the sets have the contact, or most do not. A wrong guess costs a
// command. Numbers are made strings once: Redis is slow to convert Lua's numbers.
//
// Only the size after the trim reports whether the contact should have stayed outside, or whether
// there was no set before. The function then takes the contact out again: a script is one step, and
// no other command sees the contact.
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
      return 'failed', came
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

// addScript adds a contact to each of some sets. An upload may leave no trace in the set, or take
// the trace of another upload away. The script then deletes the guard: the update under way may
// have read MySQL before the upload, and be about to make the set, or to remove or lower the
// contact.
//
// A run for one server takes many sets; the script makes their keys, and none is declared. A run in
// a cluster takes one set. Its keys are declared, so that they lie in one slot and follow it.
//
//	KEYS[1]  the set, KEYS[2] its guard; or none
//	ARGV[1]  the score
//	ARGV[2]  the contact
//	ARGV[3]  max
//	ARGV[4]  min
//	ARGV[5…] the members whose sets they are
//	returns  {{outcome of adder, how often, …}, {i of each ARGV[4+i] whose set is missing, …}},
//	         or the error of the first set for which the server refused
var addScript = redisnodes.NewScript(addFunction + `
local score, contact = ARGV[1], ARGV[2]
local add = adder(tonumber(ARGV[3]), tonumber(ARGV[4]))
local counts, missing, ended = {}, {}, {}
for i = 1, #ARGV - 4 do
  local key = KEYS[1] or '` + userKeyPrefix + `' .. ARGV[4 + i]
  local outcome, more = add(key, score, contact)
  if outcome == 'failed' then return more end
  if outcome ~= 'added' and outcome ~= 'rose' then ended[#ended + 1] = KEYS[2] or 'guard_{' .. key .. '}' end
  counts[outcome] = (counts[outcome] or 0) + 1
  if outcome == 'missing' then missing[#missing + 1] = i end
end
if #ended > 0 then redis.call('DEL', unpack(ended)) end
local pairwise = {}
for outcome, times in pairs(counts) do
  pairwise[#pairwise + 1] = outcome
  pairwise[#pairwise + 1] = times
end
return {pairwise, missing}
`)

// setsPerCall is how many sets of one server a run of addScript adds to: a run costs more than the
// commands for a set do. A hundred keep the server busy for about a quarter of a
// millisecond.
const setsPerCall = 100

// Add adds uploads to sets, pipelined. It needs no guard because it only ever raises. It returns
// the members whose set is missing or malformed and needs a refill, once each and sorted. It
// returns an error for each member if it is unknown whether the member's set got the contact: call
// Add again for the members with an error. In all other sets the contact is there now, unless its
// upload lies outside the set.
func (ix *Index) Add(ctx context.Context, additions []Addition) (missing []member.ID, failed map[member.ID]error) {
	if len(additions) == 0 {
		return nil, nil
	}
	start := time.Now()
	calls, groups := ix.addCalls(additions)
	outcomes := make(map[AddOutcome]int)
	failed = make(map[member.ID]error)
	var err error
	for i, reply := range ix.Eval(ctx, addScript, calls) {
		some := groups[i]
		parts, _ := reply.Val().([]any)
		failure := reply.Err()
		if failure == nil && len(parts) != 2 {
			failure = fmt.Errorf("unexpected reply %v", reply.Val())
		}
		if failure != nil {
			err = redisnodes.Translate(ctx, fmt.Sprintf("add contact %s to %d sets, the first that of %s", some[0].Contact, len(some), some[0].Member), failure)
			for _, a := range some {
				failed[a.Member] = err
			}
			continue
		}
		count(outcomes, parts[0])
		list, _ := parts[1].([]any)
		for _, position := range list { // they count from 1
			at, _ := position.(int64)
			missing = append(missing, some[at-1].Member)
		}
	}
	for outcome, n := range outcomes {
		adds.WithLabelValues(string(outcome)).Add(float64(n))
	}
	// A set of at most Max members grows by one, so the trim cuts off at most one rank.
	trims.Add(float64(outcomes[AddTrimmed]))
	slices.Sort(missing)
	ix.observe(opAdd, start, err)
	return slices.Compact(missing), failed
}

// count adds the outcomes of a reply of addScript, as pairs, to outcomes.
func count(outcomes map[AddOutcome]int, pairwise any) {
	list, _ := pairwise.([]any)
	for pair := range slices.Chunk(list, 2) {
		outcome, _ := pair[0].(string)
		n, _ := pair[1].(int64)
		if outcome == "rose" {
			outcome = string(AddTaken)
		}
		outcomes[AddOutcome(outcome)] += int(n)
	}
}

// addCalls makes the calls of addScript, and returns the additions of each call. A call for one
// server takes consecutive additions with the same entry, as in a fan-out. A call in a cluster
// takes one addition.
func (ix *Index) addCalls(additions []Addition) (calls []redisnodes.Call, groups [][]Addition) {
	s := ix.options.Settings
	for _, a := range additions {
		last := len(groups) - 1
		isNew := last < 0 || ix.IsCluster() || groups[last][0].Entry != a.Entry || len(groups[last]) == setsPerCall
		if isNew {
			var keys []string
			if ix.IsCluster() {
				keys = []string{UserKey(a.Member), guardKey(UserKey(a.Member))}
			}
			calls = append(calls, redisnodes.Call{Keys: keys, Args: []any{a.Score, a.Contact.String(), s.Max, s.Min}})
			groups = append(groups, nil)
			last++
		}
		calls[last].Args = append(calls[last].Args, uint64(a.Member))
		groups[last] = append(groups[last], a)
	}
	return calls, groups
}
