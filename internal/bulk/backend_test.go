package bulk_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// backend is a site on real servers. The sets hold 12 and are refilled below 10.
type backend struct {
	site    *site.MySQL
	store   *contacts.MySQL
	client  *redis.Client
	index   *index.Index
	refills *tasks.RefillHandler
}

func newBackend(t testing.TB) *backend {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	g := &backend{site: site.NewMySQL(db), store: contacts.NewMySQL(db)}
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
func (g *backend) load(t testing.TB, n, most int) {
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

func (g *backend) builder() *bulk.Builder {
	return &bulk.Builder{Index: g.index, Refiller: g.refills}
}

// run backfills all members.
func (g *backend) run(t testing.TB, b *bulk.Builder, batch, parallel int) bulk.Counts {
	t.Helper()
	at, err := bulk.Walk{
		Range: bulk.All, Source: g.store, Visit: b.Build, Judge: bulk.Judge, Batch: batch,
		Pacer: bulk.NewPacer(bulk.PacerOptions{Parallel: parallel}),
	}.Run(t.Context(), bulk.Checkpoint{})
	must(t, err)
	return at.Counts
}
