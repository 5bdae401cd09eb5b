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

// The master behind Sentinels dies, or hangs, under reads and changes, and they promote a
// replica that had all, or one that was away for the last changes: no answer is wrong at any
// time, tasks wait and go on, and the sets are built again.
func TestSentinelsPromoteAReplicaUnderLoad(t *testing.T) {
	t.Parallel()
	for name, lagged := range map[string]bool{"it followed": false, "it lagged": true} {
		for how, lost := range ways() {
			t.Run(name+", master "+how, func(t *testing.T) {
				t.Parallel()
				promoteUnderLoad(t, lagged, lost)
			})
		}
	}
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
	if lagged { // it is away while contacts come in, and comes back with what it had before
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

// One Redis dies and comes back empty, or with what it had saved before the last changes; or it
// hangs, and goes on.
func TestARedisThatComesBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ saved, hangs bool }{"empty": {}, "with an old snapshot": {saved: true}, "as it was": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Redis(t)
			s := newSeveralSite(t, server.URL(), openRedis(t, server), 100)
			ctx := t.Context()
			if c.saved {
				must(t, s.client.Save(ctx).Err())
			}
			stop := s.reading(t, s.viewers, rankOf("first of 2010", "first of 2011", "second of 2011"))
			s.each(t, s.viewers, func(ctx context.Context, viewer member.ID) error {
				return s.site.SetContact(ctx, viewer, newcomer, site.Grant{})
			})
			eventually(t, "the changes are done", func() bool { return s.open(t) == 0 && s.built(ctx, 11) })
			lose, restore := server.Kill, func() error { return server.Restart(ctx) }
			if c.hangs {
				lose, restore = server.Pause, server.Resume
			}
			must(t, lose())
			_, err := s.site.Upload(ctx, site.Photo{Owner: newcomer, Title: "second of 2011", Visibility: contacts.Public, DateUpload: start + 3000})
			must(t, err)
			if c.hangs {
				eventually(t, "its task waits", func() bool { return s.waits(t) == 1 })
			}
			must(t, restore())
			back := time.Now()
			eventually(t, "all tasks are done", func() bool { return s.open(t) == 0 })
			eventually(t, "the sets are built", func() bool { return s.built(ctx, 11) })
			t.Logf("the sets were built %v after its return", time.Since(back).Round(time.Millisecond))
			reads, longest := stop()
			t.Logf("%d reads, the longest took %v", reads, longest.Round(time.Millisecond))
			s.checkAll(t)
		})
	}
}

// waits is how many tasks were tried, and wait for their server.
func (s *severalSite) waits(t *testing.T) (n int) {
	t.Helper()
	must(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks WHERE state = 'scheduled' AND attempts = 0").Scan(&n))
	return n
}

// built reports whether all viewers have a set of n contacts.
func (s *severalSite) built(ctx context.Context, n int) bool {
	return !slices.ContainsFunc(s.index.Look(ctx, s.viewers), func(set index.Set) bool { return set.Err != nil || len(set.Members) != n })
}

// rankOf returns a function that returns the place of a title, -1 for any other.
func rankOf(titles ...string) func(title string) int {
	return func(title string) int { return slices.Index(titles, title) }
}

func openSentinels(t *testing.T, w *clustertest.Watched) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(w.FailoverOptions())
	t.Cleanup(func() { _ = client.Close() })
	return client
}
