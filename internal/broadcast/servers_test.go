package broadcast_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/clustertest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// serve works on tasks, and watches Redis, until the test ends.
func (g *ground) serve(activeOnly bool) {
	g.Helper()
	ctx, stop := context.WithCancel(context.Background())
	handlers := tasks.Handlers(g.index, g.truth, g.queue, tasks.HandlerOptions{PartSize: partSize, ActiveOnly: activeOnly, BroadcastAt: g.broadcastAt})
	pool := queue.NewPool(g.queue, handlers, queue.PoolOptions{Kinds: tasks.Kinds(), Workers: tasks.DefaultWorkers(), Poll: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	ended := make(chan error, 2)
	go func() { ended <- pool.Run(ctx) }()
	go func() { ended <- g.index.Watch(ctx, nil, func(time.Time, redisnodes.Status) {}) }()
	g.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				g.Error(err)
			}
		}
	})
}

// refills enqueues the refills that reads ask for.
type refills struct{ g *ground }

func (r refills) Refill(of member.ID) {
	_, _ = r.g.queue.Enqueue(context.Background(), []queue.New{tasks.NewRefill(of)}) // the next read repeats it
}
func (refills) LookAgain(member.ID, member.ID) {}

// post has the star upload a photo, whose task is left to others.
func (g *ground) post(date uint64, visibility string) {
	g.Helper()
	g.exec("INSERT INTO photos (owner_id, visibility, date_upload) VALUES (?, ?, ?)", star, visibility, date)
	g.exec("UPDATE users SET last_upload = ? WHERE id = ?", date, star)
	g.enqueue(tasks.NewUpload(star))
}

// answers counts the answers to all followers, by source; the wrong ones, by the definition, come as "wrong".
func (g *ground) answers() map[string]int {
	g.Helper()
	reader := recent.NewReader(g.index, g.store, refills{g}, recent.Options{IndexWait: 100 * time.Millisecond})
	count := make(map[string]int)
	for v := member.ID(1); v <= followers; v++ {
		a, err := reader.Read(g.Context(), contacts.Viewer{ID: v}, 10)
		if err != nil {
			g.Fatal(err)
		}
		want, err := g.store.Walk(g.Context(), contacts.Viewer{ID: v}, 10)
		if err != nil {
			g.Fatal(err)
		}
		if !a.IsSame(want.Album) {
			count["wrong"]++
		}
		count[string(a.Source)]++
	}
	return count
}

// becomes waits until all answers are right, and until all come from the index if they are to.
func (g *ground) becomes(what string, byIndex bool) {
	g.Helper()
	var got map[string]int
	servertest.Eventually(g.T, what, func() bool {
		got = g.answers()
		return got["wrong"] == 0 && (!byIndex || got[string(recent.FromDatabase)] == 0)
	})
}

// joined makes the star a broadcast member, with an upload that no set of a follower has.
func (g *ground) joined(activeOnly bool) {
	g.Helper()
	if _, err := g.admin.Add(g.Context(), star); err != nil {
		g.Fatal(err)
	}
	g.work()
	g.serve(activeOnly)
	g.post(6000, "public")
	g.becomes("the upload in the copies", true)
}

// A Redis that lost all sets, copies among them, is filled again, whichever members have sets.
func TestCopiesAreLost(t *testing.T) {
	t.Parallel()
	for _, activeOnly := range []bool{false, true} {
		t.Run(fmt.Sprint(activeOnly), func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.joined(activeOnly)
			if err := g.client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			g.post(7000, "public")
			g.becomes("right answers from the index", true)
			// Only the copies are lost: reads must not go by the sets of followers, which lack the upload.
			for _, of := range member.Copies {
				if err := g.client.Del(t.Context(), index.UserKey(of)).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if got := g.answers(); got["wrong"] > 0 {
				t.Errorf("answers without copies: %v", got)
			}
			g.becomes("right answers from the index", true)
		})
	}
}

// A Redis that starts with older data is not believed: neither the copies nor the sets.
func TestCopiesOfAnOldSnapshot(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.joined(false)
	if err := g.client.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	g.post(7000, "public")
	g.becomes("the upload in the copies", true)
	if err := g.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := g.answers(); got["wrong"] > 0 {
			t.Fatalf("answers after the restart: %v", got)
		}
	}
	g.becomes("right answers from the index", true)
}

// While one node of three is away, dead or hanging, all are shown an upload: those whose sets lie on it by walks. When it is back, all
// go by the index.
func TestANodeWithCopiesIsAway(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*clustertest.Node) error{
		"killed":  func(n *clustertest.Node) error { return n.Kill() },
		"stopped": func(n *clustertest.Node) error { return n.Pause() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := servertest.Cluster(t, 3, 0)
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = client.Close() })
			g := newGroundOn(t, client)
			g.joined(false)
			if err := fault(c.Nodes[1]); err != nil {
				t.Fatal(err)
			}
			g.post(7000, "public")
			g.becomes("right answers while a node is away", false)
			if got := g.answers(); got[string(recent.FromIndex)] == 0 || got[string(recent.FromDatabase)] == 0 {
				t.Errorf("answers while a node is away: %v, want some by walks", got)
			}
			back := c.Nodes[1].Resume
			if name == "killed" {
				back = func() error { return c.Nodes[1].Restart(t.Context()) }
			}
			if err := back(); err != nil {
				t.Fatal(err)
			}
			g.becomes("right answers from the index", true)
		})
	}
}

// The slot of a copy moves to another node while uploads go on.
func TestTheSlotOfACopyMoves(t *testing.T) {
	t.Parallel()
	c := servertest.Cluster(t, 3, 0)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	g := newGroundOn(t, client)
	g.joined(false)
	slot := redisnodes.SlotOf(index.UserKey(member.Copies[0]))
	moved := make(chan error, 1)
	go func() { moved <- c.MoveSlots(t.Context(), c.Nodes[0], c.Nodes[2], slot) }()
	for date := uint64(7000); date < 7010; date++ {
		g.post(date, "public")
		g.becomes("right answers while a slot moves", false)
	}
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	g.becomes("right answers from the index", true)
}

// Who may see what of a broadcast member is decided when it is read.
func TestWhatABroadcastMemberShows(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.joined(false)
	right := func(what string) {
		t.Helper()
		if got := g.answers(); got["wrong"] > 0 {
			t.Errorf("%s: answers %v", what, got)
		}
		g.becomes(what, true) // a busy machine may have been too slow for the index
	}
	g.exec("INSERT INTO blocks (user_id, blocked_id) VALUES (?, 1), (?, 2)", star, star)
	right("it blocks two")
	g.exec("INSERT INTO contacts (user_id, contact_id, is_friend) VALUES (?, 3, 1)", star)
	g.post(7000, "friends")
	g.becomes("one that only a friend sees", true)
	g.exec("UPDATE photos SET visibility = 'private' WHERE owner_id = ? AND date_upload = 6000", star)
	right("nothing but that photo is not private")
	// It is a viewer, too, whom a follower may follow back.
	g.exec("UPDATE contacts SET is_friend = 0 WHERE user_id = ?", star)
	g.exec("INSERT INTO contacts (user_id, contact_id) VALUES (?, 2001)", star)
	g.enqueue(tasks.NewAddContact(star, 3), tasks.NewAddContact(star, 2001))
	reader := recent.NewReader(g.index, g.store, refills{g}, recent.Options{})
	servertest.Eventually(t, "its own answer from the index", func() bool {
		a, err := reader.Read(t.Context(), contacts.Viewer{ID: star}, 10)
		return err == nil && a.Source == recent.FromIndex && a.Contact != nil && a.Contact.ID == 2001
	})
	g.exec("DELETE FROM contacts WHERE contact_id = ? AND user_id < ?", star, fewer)
	right("some follow it no more")
	g.exec("DELETE FROM users WHERE id = ?", star)
	right("it is deleted")
}

// Members become broadcast members and cease to be, by themselves, while they upload. No answer is wrong once uploads are done.
func TestComingAndGoingUnderUploads(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.broadcastAt = 2 * fewer
	g.serve(false)
	for round := range uint64(6) {
		date := 6000 + 100*round
		for i := range uint64(3) {
			g.post(date+i, "public")
		}
		g.becomes("right answers after uploads", true)
		var err error
		if round%2 == 1 {
			_, err = g.admin.Remove(t.Context(), star)
		} else {
			_, err = g.admin.Add(t.Context(), star)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.post(date+50, "public")
		g.becomes("right answers after a change", true)
	}
}
