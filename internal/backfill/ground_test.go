package backfill_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/backfill"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/site"
	"github.com/activityd/activityd/internal/sweep"
	"github.com/activityd/activityd/internal/tasks"
)

// ground is a site on real servers. The sets hold 12 and are refilled below 10.
type ground struct {
	site    *site.MySQL
	store   *contacts.MySQL
	client  *redis.Client
	index   *index.Index
	refills *tasks.RefillHandler
}

func newGround(t testing.TB) *ground {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	g := &ground{site: site.NewMySQL(db), store: contacts.NewMySQL(db)}
	g.client, g.index = newSets(t)
	g.refills = &tasks.RefillHandler{Index: g.index, Store: g.store}
	return g
}

// newSets are those of a Redis of their own.
func newSets(t testing.TB) (*redis.Client, *index.Index) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: servertest.Redis(t).Addr(), ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	settings, err := index.NewSettings(10, 20, 0)
	must(t, err)
	return client, index.New(client, index.Options{Settings: settings})
}

// load makes members 1 to n with so many contacts each at most, one in seven with
// none. Half of the members never uploaded.
func (g *ground) load(t testing.TB, n, most int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 1))
	var members []site.Member
	var relations []site.Relation
	var photos []site.Photo
	for i := 1; i <= n; i++ {
		id := member.ID(i)
		members = append(members, site.Member{ID: id, Username: fmt.Sprint("member ", i)})
		if i%2 == 0 {
			photos = append(photos, site.Photo{Owner: id, Visibility: contacts.Public, DateUpload: uint64(1000 + rnd.IntN(1_000_000))})
		}
		if i%7 == 0 {
			continue
		}
		for _, contact := range rnd.Perm(n)[:1+rnd.IntN(min(most, n-1))] {
			if contact+1 != i {
				relations = append(relations, site.Relation{User: id, Contact: member.ID(contact + 1)})
			}
		}
	}
	must(t, g.site.LoadMembers(t.Context(), members))
	must(t, g.site.LoadContacts(t.Context(), relations))
	must(t, g.site.LoadPhotos(t.Context(), photos))
}

// sets reads all sets of a Redis.
func sets(t testing.TB, client *redis.Client) map[string][]redis.Z {
	t.Helper()
	keys, err := client.Keys(t.Context(), "user_*").Result()
	must(t, err)
	all := make(map[string][]redis.Z, len(keys))
	for _, key := range keys {
		all[key], err = client.ZRangeWithScores(t.Context(), key, 0, -1).Result()
		must(t, err)
	}
	return all
}

func (g *ground) builder() *backfill.Builder {
	return &backfill.Builder{Index: g.index, Refiller: g.refills}
}

// run backfills everybody.
func (g *ground) run(t testing.TB, b *backfill.Builder, batch, parallel int) sweep.Counts {
	t.Helper()
	state, err := sweep.Run(t.Context(), sweep.State{}, sweep.Options{
		Range: sweep.All, Source: g.store, Gate: make(gate, parallel), Visit: b.Build, Judge: backfill.Judge, Batch: batch,
	})
	must(t, err)
	return state.Counts
}

// gate lets in as many at once as it has places.
type gate chan struct{}

func (g gate) Enter(ctx context.Context) (func(), error) {
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
