package index

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

// Update is a guarded update of a member's set that has begun: the content of the set when its
// guard held the token. MySQL must be read after Begin, never before.
type Update struct {
	Member member.ID
	// Err is why the update has not begun; the other fields are empty then.
	Err     error
	Known   bool    // false: there is no set, and only a refill can make a set
	Members []Entry // lowest score first; Max at most, as Begin cuts a set that has more
	// Foreign says that activityd never wrote some members. Apply removes them, and may need a
	// refill, as for all removals.
	Foreign bool
	Token   string // the guard must still hold it at Apply

	malformed []string // members that activityd never wrote; Apply removes them
}

// Has reports whether contact was a member.
func (u Update) Has(contact member.ID) bool {
	_, isMember := u.Score(contact)
	return isMember
}

// Score returns the score of contact, and whether it was a member.
func (u Update) Score(contact member.ID) (score uint64, isMember bool) {
	for _, e := range u.Members {
		if e.Contact == contact {
			return e.Score, true
		}
	}
	return 0, false
}

// Low returns the lowest score; 0 for a set without members.
func (u Update) Low() uint64 {
	if len(u.Members) == 0 {
		return 0
	}
	return u.Members[0].Score
}

// Change is a change of a set, in this order: remove, correct, refill, cut to Max, add.
type Change struct {
	Update
	// Remove are members of the set that are no contacts. A member that came into the set or rose
	// since Begin is a conflict: it may have become a contact.
	Remove []member.ID
	// Correct lowers scores. It needs a refill, as the contacts that the lower score
	// leaves behind have to come in.
	Correct []Correction
	// WithRefill says that Refill holds the member's Max most recent contacts, or all there are,
	// read after Begin. An empty Refill deletes the set. If the set grew since Begin, it is a
	// conflict: the deletion would leave no trace of the additions.
	WithRefill bool
	Refill     []Entry
	Add        []Entry
}

// Correction lowers the score of a member, unless it changed since Begin.
type Correction struct {
	Contact member.ID
	Seen    uint64 // the score at Begin
	Score   uint64 // the score to write, read after Begin
}

// Outcome is the outcome of a change in Apply.
type Outcome int

// The outcomes of Apply.
const (
	// Conflict: nothing was written, because another update or an add came first, the
	// guard expired, or the change turned out to need a refill. Begin again.
	Conflict Outcome = iota
	// Applied: all of the change was written.
	Applied
)

// beginScript opens a guarded update. A token that is there already stays, and is shared: see the
// package comment.
//
// A set of more than max members was made by another program (I3), and may have millions. So the
// script reads at most max + 1 members; if it reads as many, a second call cuts the set. The cut
// may take the trace of an add, so it deletes the guard, as the cut of an add does.
//
//	KEYS[1]  the set
//	KEYS[2]  its guard
//	ARGV[1]  a fresh token
//	ARGV[2]  the TTL of the guard in milliseconds
//	ARGV[3]  max
//	ARGV[4]  1 to cut the set to max first, else 0
//	returns  {token, {contact, score, …}}, without members when the set is missing
var beginScript = redisnodes.NewScript(`
if ARGV[4] == '1' and redis.call('ZREMRANGEBYRANK', KEYS[1], '0', tostring(-(ARGV[3] + 1))) > 0 then
  redis.call('DEL', KEYS[2])
end
local token = ARGV[1]
if not redis.call('SET', KEYS[2], token, 'NX', 'PX', ARGV[2]) then token = redis.call('GET', KEYS[2]) end
local members = redis.pcall('ZRANGE', KEYS[1], '0', ARGV[3], 'WITHSCORES')
if members.err then members = {} end -- it is something else than a set
return {token, members}
`)

// Begin opens an update for each of the users, in one round trip to each node, and returns the
// updates in the same order. An update that cannot be opened has an error; the rest are not
// affected. Begin cuts sets of more than Max members, which activityd did not make, to Max.
func (ix *Index) Begin(ctx context.Context, users []member.ID) []Update {
	start := time.Now()
	updates, all := make([]Update, len(users)), make([]int, len(users))
	for i, user := range users {
		updates[i], all[i] = Update{Member: user}, i
	}
	ix.begin(ctx, updates, all, false)
	ix.begin(ctx, updates, slices.DeleteFunc(all, func(i int) bool {
		u := updates[i]
		return u.Err != nil || len(u.Members)+len(u.malformed) <= ix.options.Settings.Max
	}), true)
	ix.observe(opBegin, start, firstErr(updates, func(u Update) error { return u.Err }))
	return updates
}

// begin runs beginScript for the updates at some places.
func (ix *Index) begin(ctx context.Context, updates []Update, places []int, cut bool) {
	calls := make([]redisnodes.Call, len(places))
	for at, i := range places {
		set := UserKey(updates[i].Member)
		calls[at] = redisnodes.Call{Keys: []string{set, guardKey(set)}, Args: []any{rand.Text(), ix.options.GuardLife.Milliseconds(), ix.options.Settings.Max, cut}}
	}
	for at, reply := range ix.Eval(ctx, beginScript, calls) {
		user := updates[places[at]].Member
		u, err := parseUpdate(user, reply)
		if err != nil {
			u = Update{Member: user, Err: redisnodes.Translate(ctx, fmt.Sprintf("begin update of %s", user), err)}
		}
		updates[places[at]] = u
	}
}

// firstErr returns the first error in some results.
func firstErr[R any](results []R, errOf func(R) error) error {
	for _, r := range results {
		if err := errOf(r); err != nil {
			return err
		}
	}
	return nil
}

// parseUpdate reads a reply of beginScript. Members that activityd never wrote are kept
// apart for removal, so that any update mends the set.
func parseUpdate(user member.ID, reply *redis.Cmd) (Update, error) {
	if reply.Err() != nil {
		return Update{}, reply.Err()
	}
	parts, _ := reply.Val().([]any)
	if len(parts) != 2 {
		return Update{}, fmt.Errorf("unexpected reply %v", reply.Val())
	}
	u := Update{Member: user}
	u.Token, _ = parts[0].(string)
	flat, _ := parts[1].([]any)
	for i := 0; i+1 < len(flat); i += 2 {
		name, _ := flat[i].(string)
		text, _ := flat[i+1].(string)
		score, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return Update{}, fmt.Errorf("score of %.100q: %w", name, err)
		}
		if e, err := parseEntry(redis.Z{Member: name, Score: score}); err != nil {
			u.malformed = append(u.malformed, name)
		} else {
			u.Members = append(u.Members, e)
		}
	}
	u.Known, u.Foreign = len(u.Members) > 0, len(u.malformed) > 0
	return u, nil
}

// applyScript closes a guarded update: it writes all its changes, or none on a conflict. It decides
// before it writes, because Redis does not undo the writes of a script.
//
//	KEYS[1]   the set
//	KEYS[2]   its guard
//	ARGV[1]   the token
//	ARGV[2]   max
//	ARGV[3]   min
//	ARGV[4]   the TTL of the set in milliseconds, 0 for ever
//	ARGV[5]   1 if there was a set at Begin, else 0
//	ARGV[6]   number of removals
//	ARGV[7]   number of refill entries; 0 deletes the set, -1 is no refill
//	ARGV[8]   number of adds
//	ARGV[9]   number of corrections
//	ARGV[10]  number of members at Begin
//	ARGV[11…] removals: score at Begin ("" for no member, "*" for any), contact;
//	          corrections: score at Begin, score, contact;
//	          refill entries: score, contact;
//	          adds: score, contact
//	returns   how many members were cut off, or "conflict"
var applyScript = redisnodes.NewScript(addFunction + `
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
local add = adder(max, min)
for i = first, first + 2 * adds - 1, 2 do
  local _, more = add(key, ARGV[i], ARGV[i + 1])
  cut = cut + more
end
if life > 0 then redis.call('PEXPIRE', key, life) end
return cut
`)

// Result is the result of a change in Apply.
type Result struct {
	Outcome Outcome
	// Err is why it is not known whether the change was written: begin again.
	Err error
}

// Apply closes updates: it writes each change whole or not at all, in one round trip to each node,
// and returns the results in the same order. The error of a change does not affect the rest.
func (ix *Index) Apply(ctx context.Context, changes []Change) []Result {
	start := time.Now()
	calls := make([]redisnodes.Call, len(changes))
	for i, c := range changes {
		calls[i] = ix.applyCall(c)
	}
	trimmed, results := 0, make([]Result, len(changes))
	for i, r := range ix.Eval(ctx, applyScript, calls) {
		if r.Err() != nil {
			results[i].Err = redisnodes.Translate(ctx, fmt.Sprintf("apply update of %s", changes[i].Member), r.Err())
		}
		if cut, ok := r.Val().(int64); ok && r.Err() == nil {
			results[i].Outcome = Applied
			trimmed += int(cut)
		}
	}
	trims.Add(float64(trimmed))
	ix.observe(opApply, start, firstErr(results, func(r Result) error { return r.Err }))
	return results
}

func (ix *Index) applyCall(c Change) redisnodes.Call {
	s, refills := ix.options.Settings, -1
	if c.WithRefill {
		refills = len(c.Refill)
	}
	args := make([]any, 0, 10+2*len(c.malformed)+2*len(c.Remove)+3*len(c.Correct)+2*len(c.Refill)+2*len(c.Add))
	args = append(args, c.Token, s.Max, s.Min, ix.options.SetLife.Milliseconds(), c.Known,
		len(c.malformed)+len(c.Remove), refills, len(c.Add), len(c.Correct), len(c.Members)+len(c.malformed))
	for _, name := range c.malformed {
		args = append(args, "*", name)
	}
	args = c.appendRemovals(args)
	for _, r := range c.Correct {
		args = append(args, r.Seen, r.Score, r.Contact.String())
	}
	if c.WithRefill {
		args = appendEntries(args, c.Refill)
	}
	args = appendEntries(args, c.Add)
	set := UserKey(c.Member)
	return redisnodes.Call{Keys: []string{set, guardKey(set)}, Args: args}
}

// appendRemovals appends the score at Begin and the name of each contact to remove. The score is ""
// for a contact that was no member, and "*", any score, for a score that activityd did not write.
func (c Change) appendRemovals(args []any) []any {
	if len(c.Remove) == 0 {
		return args
	}
	seen := make(map[string]any, len(c.Members)+len(c.malformed))
	for _, name := range c.malformed {
		seen[name] = "*"
	}
	for _, e := range c.Members {
		seen[e.Contact.String()] = e.Score
	}
	for _, id := range c.Remove {
		name := id.String()
		score, isMember := seen[name]
		if !isMember {
			score = ""
		}
		args = append(args, score, name)
	}
	return args
}

func appendEntries(args []any, entries []Entry) []any {
	for _, e := range entries {
		args = append(args, e.Score, e.Contact.String())
	}
	return args
}
