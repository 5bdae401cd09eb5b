package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/sweep"
)

// orphans looks for sets of whoever is no member: nobody who goes over the members
// comes upon them. After a failure of Redis it begins anew, without those that it
// has seen.
func (v *verification) orphans(ctx context.Context, gate sweep.Gate, counts sweep.Counts) error {
	seen := make(map[member.ID]bool)
	return v.patiently(ctx, func(ctx context.Context) error {
		err := v.index.EachStored(ctx, func(ctx context.Context, users []member.ID) error {
			for some := range slices.Chunk(users, v.orphanBatch(len(users))) {
				leave, err := gate.Enter(ctx)
				if err != nil {
					return err
				}
				err = v.judgeOrphans(ctx, some, seen, counts)
				leave()
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("look for sets of nobody: %w", err)
		}
		return nil
	})
}

// orphanBatch is how many of n users enter at once: all, unless a rate is asked for.
func (v *verification) orphanBatch(n int) int {
	if v.longRun.options.rate > 0 {
		return v.longRun.options.batch()
	}
	return n
}

// judgeOrphans judges those of users who are no members, each once.
func (v *verification) judgeOrphans(ctx context.Context, users []member.ID, seen map[member.ID]bool, counts sweep.Counts) error {
	members, err := v.store.Existing(ctx, users)
	if err != nil {
		return err
	}
	users = slices.DeleteFunc(users, func(user member.ID) bool { return members[user] || seen[user] })
	if len(users) == 0 {
		return nil
	}
	report, err := v.auditor.Check(ctx, users)
	if err != nil {
		return err
	}
	if err := v.tell(ctx, report, counts); err != nil {
		return err
	}
	counts[countChecked] += int64(report.Checked)
	for _, user := range users {
		seen[user] = true
	}
	return nil
}
