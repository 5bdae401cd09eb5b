package index

import "github.com/redis/go-redis/v9"

// addFunction is the one way into a set, shared by all scripts that add; the
// package comment says why each of its rules is needed. It returns
//
//	"missing"    there is no set, or something else (ZCARD fails); nothing was written
//	"outside"    the score lies below a set that may be cut off and is not full; nothing was written
//	"trimmed"    added, and the lowest rank was cut off: another contact, or this one
//	"unchanged"  the contact was a member already, with that score
//	"below"      the contact was a member already, with a higher score; nothing was written
//	"added"      the contact is a member now, or rose, and nobody was cut off
//
// and, second, how many ranks were cut off. The trim counts from the lowest
// rank: 0 to -(max+1) leaves exactly max. CH makes ZADD count those that rose,
// too; it changes nothing of what is written.
//
// A full set, as most are, needs no look at its lowest score: what lies below it is
// the first to be cut off again.
const addFunction = `
local function add(key, max, min, score, contact)
  local size = redis.pcall('ZCARD', key)
  if size == 0 or type(size) == 'table' then return 'missing', 0 end
  if size >= min and size < max and not redis.call('ZSCORE', key, contact) then
    local low = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    if tonumber(score) < tonumber(low) then return 'outside', 0 end
  end
  if redis.call('ZADD', key, 'GT', 'CH', score, contact) == 0 then
    if tonumber(redis.call('ZSCORE', key, contact)) > tonumber(score) then return 'below', 0 end
    return 'unchanged', 0
  end
  if size >= max then
    local cut = redis.call('ZREMRANGEBYRANK', key, 0, -(max + 1))
    if cut > 0 then return 'trimmed', cut end
  end
  return 'added', 0
end
`

// addScript adds one contact to each of some sets. Unless this upload leaves a trace in the
// set, and takes no other's away, it calls off the guarded update that may be under
// way: that one may have read MySQL before the upload, and be about to make the set,
// or to remove or lower what the upload found there.
//
//	KEYS[1] a set  KEYS[2] its guard  KEYS[3] another set …
//	ARGV[1] max  ARGV[2] min  ARGV[3] score  ARGV[4] contact
//	returns {the word that add returns, …}, one for each set
var addScript = redis.NewScript(addFunction + `
local max, min = tonumber(ARGV[1]), tonumber(ARGV[2])
local outcomes, ended = {}, {}
for i = 1, #KEYS, 2 do
  local outcome = add(KEYS[i], max, min, ARGV[3], ARGV[4])
  if outcome ~= 'added' then ended[#ended + 1] = KEYS[i + 1] end
  outcomes[#outcomes + 1] = outcome
end
if #ended > 0 then redis.call('DEL', unpack(ended)) end
return outcomes
`)

// beginScript opens a guarded update. A token that is there already stays and
// is shared, see the package comment.
//
//	KEYS[1] the set  KEYS[2] its guard
//	ARGV[1] a fresh token  ARGV[2] the guard's life in milliseconds
//	returns {token, {contact, score, …}}; the members are empty when the set is missing
var beginScript = redis.NewScript(`
redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2])
local members = {}
if redis.call('TYPE', KEYS[1]).ok == 'zset' then
  members = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
end
return {redis.call('GET', KEYS[2]), members}
`)

// applyScript closes a guarded update: all its changes, or "conflict" and none.
// It decides before it writes, because Redis does not undo what a script did.
//
//	KEYS[1] the set  KEYS[2] its guard
//	ARGV[1] the token  ARGV[2] max  ARGV[3] min  ARGV[4] the set's life in milliseconds, 0 for ever
//	ARGV[5] 1 if there was a set at Begin  ARGV[6] number of removals
//	ARGV[7] number of refill entries, -1 for no refill  ARGV[8] number of adds
//	ARGV[9] number of corrections
//	ARGV[10…] removals: score at Begin ("" for no member, "*" for any), contact; corrections: score at Begin, score, contact;
//	refill entries: score, contact; adds: score, contact
//	returns how many members were cut off, or "conflict"
var applyScript = redis.NewScript(addFunction + `
local key, guard = KEYS[1], KEYS[2]
local max, min, life = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local known, removals, refills, adds = ARGV[5] == '1', tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local corrections = tonumber(ARGV[9])
local first = 10

if redis.call('GET', guard) ~= ARGV[1] then return 'conflict' end
local isset = redis.call('TYPE', key).ok == 'zset'
if not isset and (known or refills < 0) then return 'conflict' end
local present, counted = 0, {}
for i = first, first + 2 * removals - 1, 2 do
  local seen, contact = ARGV[i], ARGV[i + 1]
  local score = isset and redis.call('ZSCORE', key, contact)
  if score and seen ~= '*' and tonumber(score) ~= tonumber(seen) then return 'conflict' end
  if score and not counted[contact] then present = present + 1 end
  counted[contact] = true
end
if refills < 0 and present > 0 and redis.call('ZCARD', key) - present < min then return 'conflict' end

redis.call('DEL', guard)
if not isset then redis.call('DEL', key) end
for i = first, first + 2 * removals - 1, 2 do redis.call('ZREM', key, ARGV[i + 1]) end
first = first + 2 * removals
for i = first, first + 3 * corrections - 1, 3 do
  local score = redis.call('ZSCORE', key, ARGV[i + 2])
  if score and tonumber(score) == tonumber(ARGV[i]) then redis.call('ZADD', key, ARGV[i + 1], ARGV[i + 2]) end
end
first = first + 3 * corrections
for i = first, first + 2 * refills - 1, 2 do redis.call('ZADD', key, 'GT', ARGV[i], ARGV[i + 1]) end
local cut = redis.call('ZREMRANGEBYRANK', key, 0, -(max + 1))
if refills > 0 then first = first + 2 * refills end
for i = first, first + 2 * adds - 1, 2 do
  local _, more = add(key, max, min, ARGV[i], ARGV[i + 1])
  cut = cut + more
end
if life > 0 then redis.call('PEXPIRE', key, life) end
return cut
`)
