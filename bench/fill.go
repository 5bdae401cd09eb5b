package main

import (
	"context"
	"fmt"

	"github.com/activityd/activityd/internal/mysql"
)

// fill makes n tasks wait, by doubling: contact changes, and among them one in a
// hundred that is a part of a fan-out. It returns when the table has come to
// rest.
func (b *backlogBench) fill(ctx context.Context, n int) error {
	have := 0
	if err := b.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks").Scan(&have); err != nil {
		return err
	}
	if have == 0 {
		if err := b.enqueue(ctx); err != nil {
			return err
		}
		have = backlogBatch
	}
	for have < n {
		more := min(have, n-have)
		if _, err := b.db.ExecContext(ctx, copyTasks, more); err != nil {
			return mysql.Translate(ctx, fmt.Sprintf("insert %d tasks", more), err)
		}
		have += more
		fmt.Fprintf(b.log, "%d tasks wait\n", have)
	}
	_, err := b.db.ExecContext(ctx, "ANALYZE TABLE tasks")
	return err
}

// copyTasks inserts as many tasks as it is told, each under a key of its own.
const copyTasks = `
	INSERT INTO tasks (queue, type, subject, args, dedupe_key)
	SELECT IF(MOD(id, 100) = 0, 'fan_out', 'default'), IF(MOD(id, 100) = 0, 'fan_out', 'add_contact'),
		MOD(id * 7919, 1000003) + 1, args, CONCAT('pair:', UUID_SHORT(), ':', id)
	FROM tasks LIMIT ?`
