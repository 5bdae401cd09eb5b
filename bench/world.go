package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
	"github.com/activityd/activityd/internal/tasks"
)

// world is a made-up site: every member has the same number of contacts, spread
// over all members, all of whom have uploaded at different times.
type world struct{ members, contacts int }

// makeWorld fills the tables of the site and the set of every member.
func makeWorld(ctx context.Context, g *ground, w world) error {
	statements := []struct {
		text string
		args []any
	}{
		{"INSERT INTO users (id, last_upload) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)" +
			" SELECT i, 1700000000 + MOD(i * 2654435761, 50000000) FROM n", []any{w.members}},
		{
			"INSERT INTO contacts (user_id, contact_id) SELECT u.id, MOD(u.id - 1 + n.id * ?, ?) + 1 FROM users u JOIN users n ON n.id <= ?",
			[]any{w.stride(), w.members, w.contacts},
		},
		{"ANALYZE TABLE users, contacts", nil},
	}
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, setting := range []string{"max_recursive_iterations", "cte_max_recursion_depth"} { // of MariaDB and MySQL
		_, _ = conn.ExecContext(ctx, "SET SESSION "+setting+" = 1000000")
	}
	for _, s := range statements {
		if _, err := conn.ExecContext(ctx, s.text, s.args...); err != nil {
			return fmt.Errorf("make the site: %w", err)
		}
	}
	return w.fillSets(ctx, g)
}

// stride is how far a member's contacts are from each other.
func (w world) stride() int { return (w.members - 1) / (w.contacts + 1) }

// fillSets refills the set of every member.
func (w world) fillSets(ctx context.Context, g *ground) error {
	const atOnce = 128
	handler := &tasks.RefillHandler{Index: g.index, Store: contacts.NewMySQL(g.db)}
	for first := 1; first <= w.members; first += atOnce {
		var batch []queue.Task
		for user := first; user < first+atOnce && user <= w.members; user++ {
			batch = append(batch, queue.Task{Kind: tasks.Refill, Key: uint64(user)})
		}
		for _, err := range queuetest.Errors(handler.Handle(ctx, batch)) {
			if err != nil {
				return fmt.Errorf("fill the sets: %w", err)
			}
		}
	}
	return nil
}

// pairs returns n different rows of contacts in random order.
func (w world) pairs(n int, seed uint64) []contacts.Pair {
	random := rand.New(rand.NewPCG(seed, 1))
	seen := make(map[int]bool, n)
	list := make([]contacts.Pair, 0, n)
	for len(list) < n {
		at := random.IntN(w.members * w.contacts)
		if !seen[at] {
			seen[at] = true
			list = append(list, w.pair(at%w.members, at/w.members+1))
		}
	}
	return list
}

// strangers returns n different pairs that are no rows of contacts.
func (w world) strangers(n int, seed uint64) []contacts.Pair {
	list := w.pairs(n, seed)
	for i, p := range list {
		// One beside a contact: the stride is larger than that.
		list[i].Contact = member.ID(uint64(p.Contact)%uint64(w.members) + 1)
	}
	return list
}

// pair is a user, counted from 0, with its k-th contact, counted from 1.
func (w world) pair(user, k int) contacts.Pair {
	return contacts.Pair{
		User:    member.ID(user + 1),
		Contact: member.ID((user+k*w.stride())%w.members + 1),
	}
}
