package sweep

import (
	"errors"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/member"
)

// feeding is a batch that has entered, or the end: no more members, or an error.
type feeding struct {
	users    []member.ID
	leave    func()
	complete bool
	err      error
}

// feed reads the members and lets them in, batch by batch and in order, until
// there are no more, nothing may start any more, or reading fails.
func (r *run) feed() {
	defer close(r.fed)
	after := max(r.ledger.state.Position, r.options.Range.First-1)
	for r.starting.Err() == nil {
		f := r.next(after)
		if errors.Is(f.err, ErrStopped) {
			return
		}
		r.fed <- f // Run takes it, if only to turn it away
		if f.users == nil {
			return
		}
		after = f.users[len(f.users)-1]
	}
}

// next reads a batch and waits until it may begin.
func (r *run) next(after member.ID) feeding {
	users, err := r.read(after)
	if err != nil || len(users) == 0 {
		return feeding{complete: err == nil, err: err}
	}
	leave, err := r.options.Gate.Enter(r.starting)
	if err != nil {
		return feeding{err: ErrStopped}
	}
	return feeding{users: users, leave: leave}
}

// read returns the members of the range that follow, in spite of errors that
// pass.
func (r *run) read(after member.ID) ([]member.ID, error) {
	for try, own := 1, 0; ; try++ {
		users, err := r.readOnce(after)
		if err == nil {
			beyond := func(id member.ID) bool { return id > r.options.Range.Last }
			return slices.DeleteFunc(users, beyond), nil
		}
		if r.starting.Err() != nil {
			return nil, ErrStopped
		}
		fault := r.judge(err)
		if fault == Own {
			own++
		}
		if fault == Fatal || own == mostTries {
			return nil, fmt.Errorf("list the members after %s: %w", after, err)
		}
		r.options.Trouble(err)
		if !r.pause(try) {
			return nil, ErrStopped
		}
	}
}
