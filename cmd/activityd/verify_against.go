package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	limits "golang.org/x/time/rate"

	"github.com/activityd/activityd/internal/check"
	"github.com/activityd/activityd/internal/contacts"
)

// The bounds of a comparison with a site's own statement.
const (
	againstTimeout = 10 * time.Second // of a statement
	againstFailed  = 3                // members in a row: they end it
)

// runAgainst compares a site's own statement with the definition, for each member of a sample.
func (o *verifyOptions) runAgainst(cmd *cobra.Command, c *config, members memberRange) (err error) {
	a := &check.Against{Limit: o.limit, Timeout: againstTimeout}
	if a.Statement, err = check.ParseStatement(o.against); err != nil {
		return fmt.Errorf("--against: %w", err)
	}
	if err := c.check(cmd.Flags()); err != nil {
		return err
	}
	if a.DB, err = openMySQL(c, 1); err != nil {
		return err
	}
	defer func() { _ = a.DB.Close() }() // it only read
	ctx, p := cmd.Context(), &progress{w: cmd.ErrOrStderr()}
	if _, err := checkSchema(ctx, a.DB); err != nil {
		return advised(err)
	}
	sample, err := a.Sample(ctx, members.first, members.last, o.sample)
	if err != nil {
		return err
	}
	pace := limits.NewLimiter(cmp.Or(limits.Limit(o.rate), limits.Inf), 1)
	var compared, failed, inRow int
	found := map[check.Class][]*check.Difference{}
	for _, id := range sample {
		if pace.Wait(ctx) != nil || inRow == againstFailed {
			break
		}
		switch d, err := a.Compare(ctx, id); {
		case errors.Is(err, contacts.ErrNoMember): // it is gone since
			continue
		case err != nil && ctx.Err() == nil:
			failed, inRow = failed+1, inRow+1
			p.say("member %s: %v", id, err)
		case err == nil:
			compared, inRow = compared+1, 0
			if d != nil {
				found[d.Class] = append(found[d.Class], d)
			}
		}
		p.moved(int64(compared+failed), int64(len(sample)), "")
	}
	different, err := o.printDifferences(cmd, compared, failed, found)
	switch {
	case ctx.Err() != nil:
		err = errors.Join(err, errSignalled)
	case failed > 0:
		err = errors.Join(err, fmt.Errorf("%d members could not be compared, %d of them in a row at the end; the reasons are above", failed, inRow))
	}
	if different > 0 {
		return &exitError{exitWrong, errors.Join(fmt.Errorf("%d of %d answers differ", different, compared), err)}
	}
	return err
}

// printDifferences writes the smallest example of each class, the most frequent class first, and a summary. It returns how
// many answers differ.
func (o *verifyOptions) printDifferences(cmd *cobra.Command, compared, failed int, found map[check.Class][]*check.Difference) (different int, err error) {
	out, counts := cmd.OutOrStdout(), map[check.Class]int{}
	for _, class := range slices.SortedFunc(maps.Keys(found), func(a, b check.Class) int {
		return cmp.Or(len(found[b])-len(found[a]), cmp.Compare(a, b))
	}) {
		d := slices.MinFunc(found[class], func(a, b *check.Difference) int { return len(a.Ours) + len(a.Theirs) - len(b.Ours) - len(b.Theirs) })
		counts[class] = len(found[class])
		different += counts[class]
		if o.asJSON {
			err = errors.Join(err, printJSON(out, d))
			continue
		}
		sayf(out, "%d %s: %s\n  such as member %s, photo %d of member %s: ours %s, theirs %s", // the last line has the error
			counts[class], class, check.Meanings[class], d.Viewer, d.Photo, d.Owner, d.Ours, d.Theirs)
	}
	if o.asJSON {
		summary := map[string]any{"compared": compared, "same": compared - different, "failed": failed, "differences": counts}
		return different, errors.Join(err, printJSON(out, map[string]any{"summary": summary}))
	}
	_, err = fmt.Fprintf(out, "compared the answers for %d members: %d the same, %d differ\n", compared, compared-different, different)
	return different, err
}
