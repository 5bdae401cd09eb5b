package index

import "github.com/redis/go-redis/v9"

// addFunction is the one way into a set, shared by all scripts that add; the
// package comment says why each of its rules is needed. What adder makes returns
//
//	"missing"    there is no set, or something else; nothing was written
//	"outside"    the score lies below a set that may be cut off and is not full; nothing was written
//	"trimmed"    added, and the lowest rank was cut off: another contact, or this one
//	"unchanged"  the contact was a member already, with that score
//	"below"      the contact was a member already, with a higher score; nothing was written
//	"added"      the contact is a member now, or rose, and nobody was cut off
//
// and, second, how many ranks were cut off. The trim counts from the lowest
// rank: 0 to -(max+1) leaves exactly max.
//
// What a set costs are the commands, so the common ways are short: one command for a
// member that rises, two for a contact that comes into a full set. Which it is, is
// guessed from the set before: in a fan-out most of the neighbours have the contact,
// or most have not. A wrong guess costs a command and nothing else, since XX and NX
// exclude each other. NX would make a missing set, so isThere is asked before.
// Numbers are made strings once: Redis is slow to write those of Lua.
//
// Only the size after the trim tells whether the contact should have stayed outside.
// It is taken out again then: a script is one step, and nobody saw it.
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
    if expected and redis.pcall('ZADD', key, 'XX', 'GT', 'CH', score, contact) == 1 then return 'added', 0 end
    expected = false
    if not isThere(key) then return 'missing', 0 end
    local came = redis.pcall('ZADD', key, 'NX', score, contact)
    if came == 1 then return settle(key, score, contact) end
    if came ~= 0 and redis.call('TYPE', key).ok ~= 'zset' then return 'missing', 0 end
    expected = true
    if redis.call('ZADD', key, 'XX', 'GT', 'CH', score, contact) == 1 then return 'added', 0 end
    if tonumber(redis.call('ZSCORE', key, contact)) > tonumber(score) then return 'below', 0 end
    return 'unchanged', 0
  end
end
`

// addScript adds one contact to each of some sets. Unless this upload leaves a trace in the
// set, and takes no other's away, it calls off the guarded update that may be under
// way: that one may have read MySQL before the upload, and be about to make the set,
// or to remove or lower what the upload found there.
//
//	KEYS[1] a set  KEYS[2] another set … and then their guards, in the same order
//	ARGV[1] max  ARGV[2] min  ARGV[3] score  ARGV[4] contact
//	returns {{a word that adding returned, how often, …}, {i of a KEYS[i] that is missing, …}}
var addScript = redis.NewScript(addFunction + `
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
  if outcome ~= 'added' then ended[#ended + 1] = KEYS[n + i] end
end
if #ended > 0 then redis.call('DEL', unpack(ended)) end
local told = {}
for outcome, times in pairs(counts) do
  told[#told + 1] = outcome
  told[#told + 1] = times
end
return {told, missing}
`)

// beginScript opens a guarded update. A token that is there already stays and
// is shared, see the package comment.
//
// A set of more than max members is not activityd's doing (I3), and may have millions.
// So no more than max + 1 are fetched; where that many come, the set is to be cut, by a
// second call when it is known that max is that of the stored settings. What is cut off
// may be the trace of an add, so the cut ends the updates under way, as that of an add
// does.
//
//	KEYS[1] the set  KEYS[2] its guard
//	ARGV[1] a fresh token  ARGV[2] the guard's life in milliseconds  ARGV[3] max  ARGV[4] 1 to cut the set to max first
//	returns {token, {contact, score, …}}; the members are empty when the set is missing
var beginScript = redis.NewScript(`
if ARGV[4] == '1' and redis.call('ZREMRANGEBYRANK', KEYS[1], '0', tostring(-(ARGV[3] + 1))) > 0 then
  redis.call('DEL', KEYS[2])
end
local token = ARGV[1]
if not redis.call('SET', KEYS[2], token, 'NX', 'PX', ARGV[2]) then token = redis.call('GET', KEYS[2]) end
local members = redis.pcall('ZRANGE', KEYS[1], '0', ARGV[3], 'WITHSCORES')
if members.err then members = {} end -- it is something else than a set
return {token, members}
`)

// applyScript closes a guarded update: all its changes, or "conflict" and none.
// It decides before it writes, because Redis does not undo what a script did.
//
//	KEYS[1] the set  KEYS[2] its guard
//	ARGV[1] the token  ARGV[2] max  ARGV[3] min  ARGV[4] the set's life in milliseconds, 0 for ever
//	ARGV[5] 1 if there was a set at Begin  ARGV[6] number of removals
//	ARGV[7] number of refill entries, 0 to delete the set, -1 for no refill  ARGV[8] number of adds
//	ARGV[9] number of corrections  ARGV[10] number of members at Begin
//	ARGV[11…] removals: score at Begin ("" for no member, "*" for any), contact; corrections: score at Begin, score, contact;
//	refill entries: score, contact; adds: score, contact
//	returns how many members were cut off, or "conflict"
var applyScript = redis.NewScript(addFunction + `
local key, guard = KEYS[1], KEYS[2]
local max, min, life = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local known, removals, refills, adds = ARGV[5] == '1', tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local corrections = tonumber(ARGV[9])
local first = 11

if redis.call('GET', guard) ~= ARGV[1] then return 'conflict' end
local isset = redis.call('TYPE', key).ok == 'zset'
if not isset and (known or refills < 0) then return 'conflict' end
if isset and refills == 0 and redis.call('ZCARD', key) > tonumber(ARGV[10]) then return 'conflict' end
local present, counted = 0, {}
for i = first, first + 2 * removals - 1, 2 do
  local seen, contact = ARGV[i], ARGV[i + 1]
  local score = isset and redis.call('ZSCORE', key, contact)
  if score and seen ~= '*' and tonumber(score) ~= tonumber(seen) then return 'conflict' end
  if score and not counted[contact] then present = present + 1 end
  counted[contact] = true
end
if refills < 0 and present > 0 and redis.call('ZCARD', key) - present < min then return 'conflict' end

if isset and refills ~= 0 then redis.call('DEL', guard) else redis.call('DEL', guard, key) end
for i = first, first + 2 * removals - 1, 2 do redis.call('ZREM', key, ARGV[i + 1]) end
first = first + 2 * removals
for i = first, first + 3 * corrections - 1, 3 do
  local score = redis.call('ZSCORE', key, ARGV[i + 2])
  if score and tonumber(score) == tonumber(ARGV[i]) then redis.call('ZADD', key, ARGV[i + 1], ARGV[i + 2]) end
end
first = first + 3 * corrections
for i = first, first + 2 * refills - 1, 1000 do -- Lua's stack has room for some thousands
  redis.call('ZADD', key, 'GT', unpack(ARGV, i, math.min(i + 999, first + 2 * refills - 1)))
end
local cut = 0
if isset or refills > max then cut = redis.call('ZREMRANGEBYRANK', key, '0', tostring(-(max + 1))) end
if refills > 0 then first = first + 2 * refills end
local add = adder(max, min, function() return redis.call('EXISTS', key) == 1 end)
for i = first, first + 2 * adds - 1, 2 do
  local _, more = add(key, ARGV[i], ARGV[i + 1])
  cut = cut + more
end
if life > 0 then redis.call('PEXPIRE', key, life) end
return cut
`)
