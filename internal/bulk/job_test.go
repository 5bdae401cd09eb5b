package bulk_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/once"
)

// servers are those of a job: MySQL with the members of a world, and Redis.
type servers struct{ *world }

func (servers) Existing(context.Context, []member.ID) (map[member.ID]bool, error) { return nil, nil }

func (s servers) CountMembers(context.Context, member.ID, member.ID) (int64, error) {
	return int64(len(s.members)), nil
}

func (servers) Generation(context.Context, index.Generation) (index.Generation, error) {
	return index.Generation{Lost: []int64{1}}, nil
}

func (servers) Begin(int64, member.ID, time.Time) {}
func (servers) Moved(int)                         {}
func (servers) Trouble(error)                     {}
func (servers) Lost(error)                        {}
func (servers) Paced(bulk.Pace)                   {}
func (servers) GaveUp(member.ID, error)           {}

// An outage while orphans are found or visited loses none of their counts.
func TestOrphansAreCountedInSpiteOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := servers{newWorld(10)}
		finds, visits := 0, 0
		fine := func(context.Context) error { return nil }
		r, err := bulk.Job{
			Range: bulk.All, Store: s, Generations: s, Reporter: s, Parallel: 1, Rate: 400, Schema: fine, Settings: fine, Visit: s.Visit,
			Orphans: func(context.Context, *bulk.Pacer) ([]member.ID, error) {
				finds++
				if finds == 1 {
					return []member.ID{1001}, index.ErrUnavailable
				}
				return from(1000, 300), nil
			},
			VisitOrphans: func(_ context.Context, ids []member.ID) (bulk.Counts, []member.ID, error) {
				visits++
				if visits == 2 {
					return nil, nil, mysql.ErrUnavailable
				}
				return bulk.Counts{"orphans": int64(len(ids))}, nil, nil
			},
		}.Run(t.Context())
		want := bulk.Checkpoint{Position: 28, Counts: bulk.Counts{"members": 10, "orphans": 300}}
		if diff := cmp.Diff(want, r.Checkpoint); err != nil || diff != "" {
			t.Errorf("%v, result (-want +got):\n%s", err, diff)
		}
	})
}

// losing is a Redis with the generations that a test makes.
type losing struct {
	servers
	now func() (index.Generation, error)
}

func (l losing) Generation(context.Context, index.Generation) (index.Generation, error) {
	return l.now()
}

// A job that writes begins when the data were looked at, and ends when sets were deleted
// because they might be old, however high the marks are by then. An earlier loss does not
// count.
func TestAJobEndsWithALossOfAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		watched := time.Duration(-1)
		s := losing{servers: servers{newWorld(1000)}}
		s.now = func() (index.Generation, error) {
			passed := time.Since(start)
			g := index.Generation{Lost: []int64{5, 0}, Marks: []int64{int64(passed), int64(passed)}}
			if passed > 5*time.Second {
				g.Lost[1] = 6
			}
			if passed > 20*time.Second {
				g.Lost[0], g.Lost[1] = 7, 8
			}
			return g, nil
		}
		visited := time.Duration(0)
		s.visit = func(context.Context, []member.ID) ([]member.ID, error) {
			if visited == 0 {
				visited = time.Since(start)
			}
			return nil, nil
		}
		fine := func(context.Context) error { return nil }
		_, err := bulk.Job{
			Range: bulk.All, Store: s, Generations: s, Reporter: s, Parallel: 1, Rate: 10, Schema: fine, Settings: fine, Visit: s.Visit,
			Writes: true, Once: once.New(oncetest.NewMemory(time.Now), once.Options{}),
			Watch: func(ctx context.Context) { <-ctx.Done(); watched = time.Since(start) },
		}.Run(t.Context())
		if took := time.Since(start); !errors.Is(err, bulk.ErrLost) || visited < 5*time.Second || took < 20*time.Second || watched != took {
			t.Errorf("%v: it began after %v and ended after %v, watched for %v", err, visited, took, watched)
		}
	})
}

// A job goes on when some nodes of a cluster lose their sets, also from a file that was
// written before. Its last error says so, also after an interruption.
func TestAJobGoesOnAfterALossOfANode(t *testing.T) {
	t.Parallel()
	for name, lostAt := range map[string]time.Duration{"before the file": 2 * time.Second, "between": 15 * time.Second, "later": 35 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				s := losing{servers: servers{newWorld(400)}}
				s.now = func() (index.Generation, error) {
					g := index.Generation{Lost: []int64{5, 6, 7}, Marks: []int64{9, 9, 9}}
					if time.Since(start) > lostAt {
						g.Lost[1] = 8
					}
					return g, nil
				}
				reported := &lossCounter{servers: s.servers}
				fine := func(context.Context) error { return nil }
				j := bulk.Job{
					Range: bulk.All, Store: s, Generations: s, Reporter: reported, Parallel: 1, Rate: 10, Schema: fine, Settings: fine, Visit: s.Visit,
					Work: bulk.Work{Command: "backfill"}, File: filepath.Join(t.TempDir(), "resume.json"),
				}
				bounded, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if _, err := j.Run(bounded); !errors.Is(err, bulk.ErrStopped) {
					t.Fatalf("interrupted: %v", err)
				}
				<-time.After(10 * time.Second)
				r, err := j.Run(t.Context())
				if !errors.Is(err, bulk.ErrPartlyLost) || r.Counts["members"] != 400 || reported.losses != 1 {
					t.Errorf("%v: %v, reported %d times", err, r.Counts, reported.losses)
				}
				if _, err := os.Stat(j.File); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the file: %v", err)
				}
			})
		})
	}
}

// lossCounter counts the losses that are reported.
type lossCounter struct {
	servers
	losses int
}

func (l *lossCounter) Lost(error) { l.losses++ }

// from returns n ids from first.
func from(first member.ID, n int) []member.ID {
	ids := make([]member.ID, n)
	for i := range ids {
		ids[i] = first + member.ID(i)
	}
	return ids
}
