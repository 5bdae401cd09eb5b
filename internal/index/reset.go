package index

import "context"

// Reset deletes all sets and all other keys of activityd, and returns how many sets
// there were. Foreign keys stay. It is the way to other settings. No process may write
// until it returns, or a set of the old settings could outlive it.
func (ix *Index) Reset(ctx context.Context) (sets int64, err error) {
	err = ix.Clear(ctx, func(keys []string) { sets += int64(len(ownersOf(keys))) })
	return sets, err
}
