package main

import (
	"context"
	"fmt"
	"time"
)

// The broadcast members, and viewers who follow some of them beside 200 members.
const (
	firstBroadcast = 900_001
	broadcasts     = 1000
	fan            = 701 // the first of the viewers
	fanCircle      = 200
)

// followed are how many broadcast members the viewers follow.
var followed = []int{0, 10, 900}

// benchBroadcasts compares reads beside broadcast members that uploaded with the reads before.
func (b *bench) benchBroadcasts(ctx context.Context, p *program) error {
	c, err := dial(ctx, p.addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	const contacts = "INSERT INTO contacts (user_id, contact_id) "
	list := []statement{
		{"INSERT INTO users (id, username, last_upload) SELECT id - ?, CONCAT('broadcast', id), last_upload - ? FROM users WHERE id BETWEEN ? AND ?",
			[]any{firstMember - firstBroadcast, 2 * uploadSpan, firstMember, firstMember + broadcasts - 1}},
		{"INSERT INTO photos (owner_id, visibility, date_upload) SELECT id, 'public', last_upload FROM users WHERE id BETWEEN ? AND ?", []any{firstBroadcast, firstBroadcast + broadcasts - 1}},
	}
	for i, n := range followed {
		id := fan + i
		list = append(list,
			statement{"INSERT INTO users (id, username) VALUES (?, 'fan')", []any{id}},
			statement{contacts + "SELECT ?, id FROM users WHERE id >= ? ORDER BY id LIMIT ?", []any{id, firstMember + broadcasts, fanCircle}},
			statement{contacts + "SELECT ?, id FROM users WHERE id BETWEEN ? AND ? ORDER BY MOD(id * 7919, 1009) LIMIT ?", []any{id, firstBroadcast, firstBroadcast + broadcasts - 1, n}})
	}
	if err := b.exec(ctx, list); err != nil {
		return err
	}
	if err := b.command(ctx, "backfill"); err != nil {
		return err
	}
	read := func(i int) contender {
		return contender{name: fmt.Sprint(followed[i]), run: func(context.Context) (o outcome, err error) {
			for start := time.Now(); o.ops == 0 || o.ops < b.size.reads && time.Since(start) < b.size.longest; o.ops++ {
				began := time.Now()
				if _, source, err := c.read(fan + i); err != nil || source != "index" {
					return o, fmt.Errorf("from the %s: %w", source, err)
				}
				o.times = append(o.times, milliseconds(time.Since(began)))
			}
			return o, nil
		}}
	}
	var readers []contender
	for i := range followed {
		readers = append(readers, read(i))
	}
	before, err := b.rounds(ctx, readers...)
	if err != nil {
		return err
	}
	// Broadcast members upload as often as the rest, but the sets of their followers do not have
	// the uploads.
	if err := b.exec(ctx, []statement{
		{"UPDATE users SET last_upload = ? - MOD(id * 7919, 1009) * ? WHERE id BETWEEN ? AND ?", []any{epoch, uploadSpan / broadcasts, firstBroadcast, firstBroadcast + broadcasts - 1}},
		{"UPDATE photos SET date_upload = ? - MOD(owner_id * 7919, 1009) * ? WHERE owner_id BETWEEN ? AND ?", []any{epoch, uploadSpan / broadcasts, firstBroadcast, firstBroadcast + broadcasts - 1}},
		{"INSERT INTO broadcast_members (member_id, last_upload) SELECT id, last_upload FROM users WHERE id BETWEEN ? AND ?", []any{firstBroadcast, firstBroadcast + broadcasts - 1}},
		{"ANALYZE TABLE broadcast_members", nil},
	}); err != nil {
		return err
	}
	after, err := b.rounds(ctx, readers...)
	if err != nil {
		return err
	}
	for _, r := range readers {
		b.report.Figures = append(b.report.Figures, figure{
			Part: fmt.Sprintf("A read beside %d broadcast members", broadcasts), Name: r.name + " of them followed, p50", Unit: "ms", Value: spreadOf(after[r.name].times["p50"]),
			Against: "the same before they uploaded", Ratio: ratio(after[r.name].times["p50"], before[r.name].times["p50"]), Bound: atMost(1.3),
		})
	}
	return b.exec(ctx, []statement{{"DELETE FROM broadcast_members", nil}})
}

// exec runs statements.
func (b *bench) exec(ctx context.Context, list []statement) error {
	for _, s := range list {
		if _, err := b.db.ExecContext(ctx, s.text, s.args...); err != nil {
			return fmt.Errorf("%s: %w", s.text, err)
		}
	}
	return nil
}
