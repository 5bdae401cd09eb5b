//go:build unix

package endtoend_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/clustertest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// TestSentinelsPromoteAReplicaUnderLoad kills or hangs the master behind Sentinels, under reads and changes.
// The Sentinels promote a replica that had all data, or a replica that was away for the last changes. No
// answer is wrong at any time, tasks wait and go on, and the sets are built again.
func TestSentinelsPromoteAReplicaUnderLoad(t *testing.T) {
	t.Parallel()
	t.Run("it followed, the master hangs", func(t *testing.T) {
		t.Parallel()
		promoteUnderLoad(t, false, ways()["hanging"])
	})
	t.Run("it lagged, the master is killed", func(t *testing.T) {
		t.Parallel()
		promoteUnderLoad(t, true, ways()["killed"])
	})
}

func promoteUnderLoad(t *testing.T, lagged bool, lost way) {
	t.Helper()
	w := servertest.Watched(t, 3*time.Second)
	s := newSeveralSite(t, w.URL(), openSentinels(t, w), 100)
	ctx := t.Context()
	master, replica := w.Nodes[0], w.Nodes[1]
	stop := s.reading(t, s.viewers, rankOf("first of 2010", "first of 2011", "second of 2011"))
	befriend := func(viewers []member.ID) error {
		for _, viewer := range viewers {
			if err := s.site.SetContact(ctx, viewer, newcomer, site.Grant{}); err != nil {
				return err
			}
		}
		return nil
	}
	first, second := s.viewers[:50], s.viewers[50:]
	if lagged { // the replica misses the new contacts, and comes back with its old data
		eventually(t, "the replica has the sets", func() bool {
			info, err := replica.Client.Info(ctx, "replication").Result()
			n, sizeErr := replica.Client.DBSize(ctx).Result()
			return err == nil && sizeErr == nil && n >= int64(len(s.viewers)) && strings.Contains(info, "master_link_status:up")
		})
		must(t, replica.Client.Save(ctx).Err())
		must(t, replica.Kill())
	}
	must(t, befriend(first))
	eventually(t, "the changes are done", func() bool { return s.open(t) == 0 })
	var changes errgroup.Group
	changes.Go(func() error { return befriend(second) })
	must(t, lost.lose(master))
	died := time.Now()
	if lagged {
		must(t, replica.Restart(ctx))
	}
	eventually(t, "the Sentinels promote the replica", func() bool { return s.isMaster(ctx, replica) })
	t.Logf("the replica was the master after %v", time.Since(died).Round(time.Millisecond))
	must(t, changes.Wait())
	_, err := s.site.Upload(ctx, site.Photo{Owner: newcomer, Title: "second of 2011", Visibility: contacts.Public, DateUpload: start + 3000})
	must(t, err)
	eventually(t, "all tasks are done", func() bool { return s.open(t) == 0 })
	t.Logf("all tasks were done after %v", time.Since(died).Round(time.Millisecond))
	eventually(t, "the sets are built", func() bool { return s.built(ctx, 11) })
	t.Logf("its sets were built after %v", time.Since(died).Round(time.Millisecond))
	must(t, lost.restore(master)) // it is a master until a Sentinel makes it a replica
	reads, longest := stop()
	t.Logf("%d reads, the longest took %v", reads, longest.Round(time.Millisecond))
	s.checkAll(t)
}

// built reports whether all viewers have a set of n contacts.
func (s *severalSite) built(ctx context.Context, n int) bool {
	return !slices.ContainsFunc(s.index.Look(ctx, s.viewers), func(set index.Set) bool { return set.Err != nil || len(set.Members) != n })
}

// rankOf returns a function that returns the index of a title in titles, or -1.
func rankOf(titles ...string) func(title string) int {
	return func(title string) int { return slices.Index(titles, title) }
}

func openSentinels(t *testing.T, w *clustertest.Watched) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(w.FailoverOptions())
	t.Cleanup(func() { _ = client.Close() })
	return client
}
