// Package indextest has an index in memory, for tests.
package indextest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// Memory does in memory what [index.Index] does in Redis. It is the specification of
// the Lua scripts: tests compare the two, and use Memory where millions of schedules
// are tried. Nothing expires by itself; [Memory.Forget] and the other Forget methods
// represent expiry, eviction and loss.
//
// Its methods are safe for concurrent use, and atomic for each set. A set fails only with
// the error of a context that has ended, or with that which FailIf returns for it.
type Memory struct {
	// FailIf is called ahead of each operation on a set, Candidates, Look, Begin, Apply or
	// Add. Its error becomes that of the operation, which has its effect nevertheless if
	// written, as when the answer of a server is lost. Nil: nothing fails. It may be set
	// while no method runs.
	FailIf func(operation string, user member.ID) (written bool, err error)

	settings index.Settings

	mu     sync.Mutex
	sets   map[member.ID]map[member.ID]uint64 // never empty
	guards map[member.ID]string
	tokens int
}

// NewMemory returns an index without sets.
func NewMemory(s index.Settings) *Memory {
	return &Memory{settings: s, sets: map[member.ID]map[member.ID]uint64{}, guards: map[member.ID]string{}}
}

// Settings does what [index.Index.Settings] does.
func (m *Memory) Settings() index.Settings { return m.settings }

// Candidates does what [index.Index.Candidates] does.
func (m *Memory) Candidates(ctx context.Context, user member.ID) ([]index.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.fails(ctx, "Candidates", user); err != nil {
		return nil, err
	}
	members := m.members(user)
	if len(members) == 0 {
		return nil, fmt.Errorf("candidates of %s: %w", user, index.ErrMissing)
	}
	slices.Reverse(members)
	return members[:min(len(members), m.settings.Max)], nil
}

// fails returns the error of an operation on a set, if it has one, and whether the
// operation is to have its effect.
func (m *Memory) fails(ctx context.Context, operation string, user member.ID) (written bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if m.FailIf == nil {
		return true, nil
	}
	if written, err = m.FailIf(operation, user); err != nil {
		return written, err
	}
	return true, nil
}

// Look does what [index.Index.Look] does.
func (m *Memory) Look(ctx context.Context, users []member.ID) []index.Set {
	m.mu.Lock()
	defer m.mu.Unlock()
	sets := make([]index.Set, len(users))
	for i, user := range users {
		if _, err := m.fails(ctx, "Look", user); err != nil {
			sets[i] = index.Set{Member: user, Err: err}
			continue
		}
		members := m.members(user)
		sets[i] = index.Set{Member: user, Known: len(members) > 0, Members: members, Size: len(members)}
	}
	return sets
}

// NodeOf does what [index.Index.NodeOf] does where each set has a server of its own.
func (m *Memory) NodeOf(user member.ID) (node string, isUsable bool) { return user.String(), true }

// Add does what [index.Index.Add] does.
func (m *Memory) Add(ctx context.Context, additions []index.Addition) (missing []member.ID, failed map[member.ID]error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	failed = make(map[member.ID]error)
	for _, a := range additions {
		written, err := m.fails(ctx, "Add", a.Member)
		if err != nil {
			failed[a.Member] = err
		}
		if !written {
			continue
		}
		outcome := m.add(a.Member, a.Entry)
		if outcome != index.AddTaken {
			delete(m.guards, a.Member)
		}
		if outcome == index.AddMissing && err == nil && !slices.Contains(missing, a.Member) {
			missing = append(missing, a.Member)
		}
	}
	return missing, failed
}

// add adds to a set that exists, as the Lua function adder does.
func (m *Memory) add(user member.ID, e index.Entry) index.AddOutcome {
	set := m.sets[user]
	if set == nil {
		return index.AddMissing
	}
	score, isMember := set[e.Contact]
	switch {
	case !isMember && len(set) >= m.settings.Min && len(set) < m.settings.Max && e.Score < m.members(user)[0].Score:
		return index.AddOutside
	case isMember && score == e.Score:
		return index.AddUnchanged
	case isMember && score > e.Score:
		return index.AddBelow
	}
	set[e.Contact] = e.Score
	if m.trim(user) > 0 {
		return index.AddTrimmed
	}
	return index.AddTaken
}

// trim cuts a set to Max members.
func (m *Memory) trim(user member.ID) (cut int) {
	members := m.members(user)
	for _, e := range members[:max(0, len(members)-m.settings.Max)] {
		delete(m.sets[user], e.Contact)
		cut++
	}
	return cut
}

// Begin does what [index.Index.Begin] does.
func (m *Memory) Begin(ctx context.Context, users []member.ID) []index.Update {
	m.mu.Lock()
	defer m.mu.Unlock()
	updates := make([]index.Update, len(users))
	for i, user := range users {
		written, err := m.fails(ctx, "Begin", user)
		if written && m.guards[user] == "" {
			m.tokens++
			m.guards[user] = strconv.Itoa(m.tokens)
		}
		if err != nil {
			updates[i] = index.Update{Member: user, Err: err}
			continue
		}
		members := m.members(user)
		updates[i] = index.Update{Member: user, Known: len(members) > 0, Members: members, Token: m.guards[user]}
	}
	return updates
}

// Apply does what [index.Index.Apply] does.
func (m *Memory) Apply(ctx context.Context, changes []index.Change) []index.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]index.Result, len(changes))
	for i, c := range changes {
		written, err := m.fails(ctx, "Apply", c.Member)
		if written && m.mayApply(c) {
			results[i].Outcome = index.Applied
			m.apply(c)
		}
		if err != nil {
			results[i] = index.Result{Err: err}
		}
	}
	return results
}

func (m *Memory) mayApply(c index.Change) bool {
	set := m.sets[c.Member]
	if m.guards[c.Member] != c.Token || set == nil && (c.Known || !c.WithRefill) {
		return false
	}
	if c.WithRefill && len(c.Refill) == 0 && len(set) > len(c.Members) {
		return false
	}
	left := len(set)
	for i, contact := range c.Remove {
		score, present := set[contact]
		if present && !slices.Contains(c.Members, index.Entry{Contact: contact, Score: score}) {
			return false
		}
		if present && !slices.Contains(c.Remove[:i], contact) {
			left--
		}
	}
	return c.WithRefill || left == len(set) || left >= m.settings.Min
}

func (m *Memory) apply(c index.Change) {
	delete(m.guards, c.Member)
	set := m.sets[c.Member]
	if set == nil {
		set = map[member.ID]uint64{}
		m.sets[c.Member] = set
	}
	for _, contact := range c.Remove {
		delete(set, contact)
	}
	for _, r := range c.Correct {
		if score, isMember := set[r.Contact]; isMember && score == r.Seen {
			set[r.Contact] = r.Score
		}
	}
	if c.WithRefill {
		if len(c.Refill) == 0 {
			clear(set)
		}
		for _, e := range c.Refill {
			set[e.Contact] = max(set[e.Contact], e.Score)
		}
	}
	m.trim(c.Member)
	if len(set) == 0 {
		delete(m.sets, c.Member)
	}
	for _, e := range c.Add {
		m.add(c.Member, e)
	}
}

// members returns a set in the order of Redis: by score, then by name.
func (m *Memory) members(user member.ID) []index.Entry {
	var list []index.Entry
	for contact, score := range m.sets[user] {
		list = append(list, index.Entry{Contact: contact, Score: score})
	}
	slices.SortFunc(list, func(a, b index.Entry) int {
		return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Contact.String(), b.Contact.String()))
	})
	return list
}

// Forget deletes the set of user, as an expiry or eviction does.
func (m *Memory) Forget(user member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, user)
}

// ForgetGuard deletes the guard of user's set, as its expiry does.
func (m *Memory) ForgetGuard(user member.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.guards, user)
}

// ForgetAll deletes everything, as FLUSHALL does.
func (m *Memory) ForgetAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.sets)
	clear(m.guards)
}
