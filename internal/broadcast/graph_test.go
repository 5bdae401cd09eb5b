package broadcast_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/broadcast"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/indextest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// graph is a site in memory whose numbers of followers follow a power law.
type graph struct {
	*testing.T
	random    *rand.Rand
	now       time.Time
	store     *contacts.Memory
	sets      *countingSets
	queue     *queuetest.Memory
	handlers  map[string]queue.Handler
	followers map[member.ID]int
}

const (
	graphMembers = 20_000
	graphAt      = 500 // followers of a broadcast member
)

// countingSets counts the additions to sets that are no copies.
type countingSets struct {
	*indextest.Memory

	added int
}

func (s *countingSets) Add(ctx context.Context, additions []index.Addition) ([]member.ID, map[member.ID]error) {
	for _, a := range additions {
		if !a.Member.IsCopy() {
			s.added++
		}
	}
	return s.Memory.Add(ctx, additions)
}

// popular returns a member; the lower its id, the likelier, by a power law.
func (g *graph) popular() member.ID {
	return 1 + member.ID(float64(graphMembers)*math.Pow(g.random.Float64(), 4))
}

func newGraph(t *testing.T) *graph {
	t.Helper()
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := &graph{
		T: t, random: rand.New(rand.NewPCG(1, 2)), now: time.Unix(1_700_000_000, 0), store: contacts.NewMemory(),
		sets: &countingSets{Memory: indextest.NewMemory(settings)}, followers: make(map[member.ID]int),
	}
	g.queue = queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, func() time.Time { return g.now })
	g.handlers = tasks.Handlers(g.sets, broadcast.Truth{Store: g.store}, g.queue, tasks.HandlerOptions{PartSize: 2000, ConflictPause: -1, BroadcastAt: graphAt})
	for id := member.ID(1); id <= graphMembers; id++ {
		g.store.AddMember(id, id.String())
	}
	for id := member.ID(1); id <= graphMembers; id++ {
		followed := make(map[member.ID]bool)
		for range 5 + g.random.IntN(30) {
			if c := g.popular(); c != id && !followed[c] {
				followed[c] = true
				g.store.SetContact(id, c, false, false)
				g.followers[c]++
			}
		}
	}
	return g
}

// drain does all tasks but looks.
func (g *graph) drain() {
	g.Helper()
	for quiet := 0; quiet < 50; quiet++ { // some wait for two seconds
		for _, name := range queues {
			claimed, err := g.queue.Claim(g.Context(), name, graphMembers, time.Hour)
			if err != nil {
				g.Fatal(err)
			}
			for _, t := range claimed {
				quiet = 0
				o := g.handlers[t.Kind].Handle(g.Context(), []queue.Task{t})[0]
				if _, err := g.queue.Finish(g.Context(), []queue.Result{{Task: t, Err: o.Err, Next: o.Next}}); err != nil {
					g.Fatal(err)
				}
			}
		}
		g.now = g.now.Add(100 * time.Millisecond)
		if _, err := g.queue.Sweep(g.Context()); err != nil {
			g.Fatal(err)
		}
	}
}

// In a graph whose numbers of followers follow a power law, the few members with many followers become broadcast members by
// themselves, most writes are spared, and all answers are those of the definition.
func TestAPowerLawOfFollowers(t *testing.T) {
	t.Parallel()
	g := newGraph(t)
	for id := member.ID(1); id <= graphMembers; id++ {
		if _, err := g.queue.Enqueue(t.Context(), []queue.New{tasks.NewRefill(id)}); err != nil {
			t.Fatal(err)
		}
	}
	g.drain()
	reader := recent.NewReader(g.sets, g.store, noHints{}, recent.Options{Min: g.sets.Settings().Min, IndexWait: time.Hour})
	date, all, byIndex, reads := uint64(1000), 0, 0, 0
	for range 30 {
		for range 40 {
			date++
			of := g.popular()
			all += g.followers[of]
			g.store.AddPhoto(0, of, "photo", contacts.Public, date)
			g.store.SetLastUpload(of, date)
			if _, err := g.queue.Enqueue(t.Context(), []queue.New{tasks.NewUpload(of)}); err != nil {
				t.Fatal(err)
			}
		}
		g.drain()
		for range 300 {
			v := contacts.Viewer{ID: 1 + member.ID(g.random.IntN(graphMembers))}
			a, err := reader.Read(t.Context(), v, 3)
			if err != nil {
				t.Fatal(err)
			}
			want, err := g.store.Walk(t.Context(), v, 3)
			if err != nil {
				t.Fatal(err)
			}
			reads++
			if a.Source == recent.FromIndex {
				byIndex++
			}
			if !a.IsSame(want.Album) {
				t.Fatalf("member %d is shown %+v by the %s, want %+v: %+v", v.ID, a.Album, a.Source, want.Album, a.Trace)
			}
		}
	}
	list, _, err := g.store.BroadcastUploads(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d broadcast members of %d; %d writes to followers' sets of %d; %d reads, %d by the index", len(list), graphMembers, g.sets.added, all, reads, byIndex)
	if len(list) < 20 || len(list) > graphMembers/50 || g.sets.added > all/2 || byIndex < reads*9/10 {
		t.Error("broadcast members spare too little")
	}
	for _, c := range list {
		if g.followers[c.ID] < graphAt {
			t.Errorf("member %d is a broadcast member, with %d followers", c.ID, g.followers[c.ID])
		}
	}
}
