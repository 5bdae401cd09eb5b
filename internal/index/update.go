package index

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
)

// Update is a guarded update of one user's set that has begun: what the set held
// when its guard was known to hold the token. Read MySQL after Begin, never
// before; that order is the whole protection.
type Update struct {
	User    member.ID
	Known   bool    // false: there is no set, only a refill can make one
	Members []Entry // lowest score first; Max at most, as Begin cuts a set that has more
	// Foreign says that there are members which activityd never wrote. Apply
	// removes them, and as with all removals may need a refill for it.
	Foreign bool
	Token   string // what the guard must still hold at Apply

	malformed []string // members that activityd never wrote; Apply removes them
}

// Has tells whether contact was a member.
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

// Change is what an update does to its set, in this order: remove, correct,
// refill, cut to Max, add.
type Change struct {
	Update
	// Remove names who is no contact. Should one of them have come into the set or
	// risen since Begin, that is a conflict: it may have become a contact.
	Remove []member.ID
	// Correct lowers scores. Only with a refill: the contacts that the lower score
	// leaves behind have to come in.
	Correct []Correction
	// WithRefill says that Refill holds the user's Max most recent contacts, or
	// all there are, read after Begin. When it holds none the set is deleted. Should
	// the set have more members by then than at Begin, that is a conflict: what was
	// added may be a contact's upload, of which the deletion would leave no trace.
	WithRefill bool
	Refill     []Entry
	Add        []Entry
}

// Correction lowers the score of a member, unless it changed since Begin.
type Correction struct {
	Contact member.ID
	Seen    uint64 // what the score was at Begin
	Score   uint64 // what it is to be, read after Begin
}

// Outcome says what Apply did with a change.
type Outcome int

// The outcomes of Apply.
const (
	// Conflict: nothing was written, because the set was changed since Begin, so
	// was one of those who are to be removed, the guard expired, or the change
	// turned out to need a refill. Begin again.
	Conflict Outcome = iota
	// Applied: all of the change was written.
	Applied
)

// Begin opens an update for each of the users, in one round trip, and returns
// them in the same order. It cuts sets of more than Max members, which activityd did
// not make, to Max. It also makes sure that the stored settings are this index's own,
// storing them if there are none.
func (ix *Index) Begin(ctx context.Context, users []member.ID) (_ []Update, err error) {
	defer func(start time.Time) { ix.observe(opBegin, start, err) }(time.Now())
	calls := make([]call, len(users))
	for i, user := range users {
		calls[i] = ix.beginCall(user, false)
	}
	var stored *redis.StringCmd
	replies, err := ix.evalAll(ctx, beginScript, calls, func(pipe redis.Pipeliner) {
		pipe.SetNX(ctx, settingsKey, ix.options.Settings.String(), 0)
		if ix.options.Materialize != "" {
			pipe.SetNX(ctx, materializeKey, ix.options.Materialize, 0)
		}
		stored = getText(ctx, pipe, settingsKey)
	})
	if err != nil {
		return nil, translate(ctx, "begin update", err)
	}
	if err := ix.verify(ctx, stored); err != nil {
		return nil, err
	}
	if stored.Val() == "" { // none were stored above: another program has stored an empty text
		return nil, &SettingsError{Own: ix.options.Settings}
	}
	updates, tooLarge := make([]Update, len(users)), []int(nil)
	for i, user := range users {
		if updates[i], err = parseUpdate(user, replies[i]); err != nil {
			return nil, fmt.Errorf("begin update of %s: %w", user, err)
		}
		if u := updates[i]; len(u.Members)+len(u.malformed) > ix.options.Settings.Max {
			tooLarge = append(tooLarge, i)
		}
	}
	return updates, ix.beginCut(ctx, updates, tooLarge)
}

func (ix *Index) beginCall(user member.ID, cut bool) call {
	o := ix.options
	return call{[]string{UserKey(user), guardKey(user)}, []any{rand.Text(), o.GuardLife.Milliseconds(), o.Settings.Max, cut}}
}

// beginCut begins those of the updates once more whose sets are larger than Max, and
// cuts these. The settings were verified: with a smaller Max than that of the sets, a
// cut would leave sets that seem to be complete.
func (ix *Index) beginCut(ctx context.Context, updates []Update, tooLarge []int) error {
	calls := make([]call, len(tooLarge))
	for n, i := range tooLarge {
		calls[n] = ix.beginCall(updates[i].User, true)
	}
	replies, err := ix.evalAll(ctx, beginScript, calls, nil)
	if err != nil {
		return translate(ctx, "cut sets that are too large", err)
	}
	for n, i := range tooLarge {
		user := updates[i].User
		if updates[i], err = parseUpdate(user, replies[n]); err != nil {
			return fmt.Errorf("cut the set of %s: %w", user, err)
		}
	}
	return nil
}

// parseUpdate reads a reply of beginScript. A member that cannot be understood
// is remembered for removal, so that any update mends the set.
func parseUpdate(user member.ID, reply reply) (Update, error) {
	if reply.err != nil {
		return Update{}, reply.err
	}
	parts, _ := reply.value.([]any)
	if len(parts) != 2 {
		return Update{}, fmt.Errorf("unexpected reply %v", reply.value)
	}
	u := Update{User: user}
	u.Token, _ = parts[0].(string)
	flat, _ := parts[1].([]any)
	for i := 0; i+1 < len(flat); i += 2 {
		name, _ := flat[i].(string)
		text, _ := flat[i+1].(string)
		score, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return Update{}, fmt.Errorf("score of %.100q: %w", name, err)
		}
		if e, err := parseEntry(name, score); err != nil {
			u.malformed = append(u.malformed, name)
		} else {
			u.Members = append(u.Members, e)
		}
	}
	u.Known, u.Foreign = len(u.Members) > 0, len(u.malformed) > 0
	return u, nil
}

// Apply closes updates: each change is written whole or not at all, in one round
// trip for all of them, and its outcome is returned in the same order. After an
// error it is not known which of them were written; begin again.
func (ix *Index) Apply(ctx context.Context, changes []Change) (_ []Outcome, err error) {
	defer func(start time.Time) { ix.observe(opApply, start, err) }(time.Now())
	calls := make([]call, len(changes))
	for i, c := range changes {
		calls[i] = ix.applyCall(c)
	}
	replies, err := ix.evalAll(ctx, applyScript, calls, nil)
	if err != nil {
		return nil, translate(ctx, "apply update", err)
	}
	trimmed, outcomes := 0, make([]Outcome, len(changes))
	for i, r := range replies {
		if r.err != nil {
			return nil, translate(ctx, fmt.Sprintf("apply update of %s", changes[i].User), r.err)
		}
		if cut, ok := r.value.(int64); ok {
			outcomes[i] = Applied
			trimmed += int(cut)
		}
	}
	trims.Add(float64(trimmed))
	return outcomes, nil
}

func (ix *Index) applyCall(c Change) call {
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
	return call{[]string{UserKey(c.User), guardKey(c.User)}, args}
}

// appendRemovals appends the score at Begin and the name of each contact that is to go:
// "" for one that was no member, and "*", which stands for any score, for one whose score
// activityd did not write.
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
