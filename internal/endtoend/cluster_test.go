//go:build unix

package endtoend_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// severalSite is a site whose sets lie in some Redis, and an activityd. Its viewers are the members from 1
// on; each has the contacts 2001 to 2010; 2010 was the last of the contacts to upload. The newcomer uploaded
// after all contacts, and is no contact yet.
type severalSite struct {
	dsn, redisURL string

	db      *sql.DB
	queue   *queue.Queue
	site    *site.MySQL
	client  redis.UniversalClient // the test's own
	index   *index.Index
	program *program
	viewers []member.ID
}

const newcomer = member.ID(2011)

// newSeveralSite makes a site of so many viewers, whose sets are built when it returns.
func newSeveralSite(t *testing.T, redisURL string, client redis.UniversalClient, viewers member.ID) *severalSite {
	t.Helper()
	s := &severalSite{dsn: patiently(t, servertest.MySQLDSN(t)), redisURL: redisURL, client: client}
	s.db = openMySQL(t, s.dsn)
	s.site, s.queue = site.NewMySQL(s.db), queue.NewQueue(s.db, queue.Options{Kinds: tasks.Kinds()})
	var members []site.Member
	var relations []site.Relation
	var photos []site.Photo
	for id := member.ID(1); id <= viewers; id++ {
		s.viewers = append(s.viewers, id)
		members = append(members, site.Member{ID: id, Username: "viewer " + id.String()})
	}
	for contact := member.ID(2001); contact <= newcomer; contact++ {
		members = append(members, site.Member{ID: contact, Username: "contact " + contact.String()})
		photos = append(photos, site.Photo{Owner: contact, Title: "first of " + contact.String(), Visibility: contacts.Public, DateUpload: start + uint64(contact)})
		if contact == newcomer {
			break
		}
		for _, viewer := range s.viewers {
			relations = append(relations, site.Relation{User: viewer, Contact: contact})
		}
	}
	ctx := t.Context()
	must(t, s.site.LoadMembers(ctx, members))
	must(t, s.site.LoadContacts(ctx, relations))
	must(t, s.site.LoadPhotos(ctx, photos))
	settings, err := index.NewSettings(10, 20, 0)
	must(t, err)
	s.index = indexOf(t, client, s.db, index.Options{Settings: settings})
	s.program = serving(t, "activityd", s.dsn, s.redisURL).mustStart(t)
	eventually(t, "the sets of all viewers are built", func() bool { return s.built(ctx, 10) })
	eventually(t, "no task is left", func() bool { return s.open(t) == 0 })
	return s
}

// open returns how many tasks of the given types are not done; without a type, of all but the sweep.
func (s *severalSite) open(t *testing.T, types ...string) int {
	t.Helper()
	list, err := s.queue.List(t.Context(), queue.Filter{Kinds: types}, 1<<20)
	must(t, err)
	return len(slices.DeleteFunc(list, func(task queue.Record) bool { return task.Kind == tasks.CheckRange }))
}

// built reports whether all viewers have a set of n contacts.
func (s *severalSite) built(ctx context.Context, n int) bool {
	return !slices.ContainsFunc(s.index.Look(ctx, s.viewers), func(set index.Set) bool { return set.Err != nil || len(set.Members) != n })
}

// has reports whether the newcomer has a score in the sets of viewers.
func (s *severalSite) has(ctx context.Context, viewers []member.ID, score uint64) bool {
	return !slices.ContainsFunc(s.index.Look(ctx, viewers), func(set index.Set) bool {
		return set.Err != nil || !slices.Contains(set.Members, index.Entry{Contact: newcomer, Score: score})
	})
}

// befriend makes the newcomer a contact of viewers, some at a time.
func (s *severalSite) befriend(ctx context.Context, viewers []member.ID) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, viewer := range viewers {
		group.Go(func() error { return s.site.SetContact(ctx, viewer, newcomer, site.Grant{}) })
	}
	return group.Wait()
}

// upload uploads a photo of the newcomer.
func (s *severalSite) upload(ctx context.Context, title string, date uint64) error {
	_, err := s.site.Upload(ctx, site.Photo{Owner: newcomer, Title: title, Visibility: contacts.Public, DateUpload: date})
	return err
}

// reading reads as the viewers until the crew rests. titles ranks the titles that a viewer may see; the rank of
// a viewer's newest photo never falls. An error, or a photo without a rank, fails the test. On a busy machine,
// the API may ask some readers to come back, or answer too late.
func (s *severalSite) reading(ctx context.Context, viewers []member.ID, titles func(title string) int) (c *crew, reads *atomic.Int64) {
	const readers, pause = 4, 10 * time.Millisecond // without a pause they take all processors
	c, reads = newCrew(ctx), &atomic.Int64{}
	for i := range readers {
		next, seen := i, make(map[member.ID]int)
		c.each(pause, func(ctx context.Context) error {
			viewer := viewers[next%len(viewers)]
			next += readers
			answer, err := ask(ctx, http.DefaultClient, s.program, viewer, 1)
			if err != nil && (strings.Contains(err.Error(), "/problems/busy") || strings.Contains(err.Error(), "/problems/deadline-exceeded")) {
				return nil
			}
			if err != nil || len(answer.Photos) != 1 {
				return fmt.Errorf("viewer %s: %+v, %w", viewer, answer, err)
			}
			rank := titles(answer.Photos[0].Title)
			if rank < 0 || rank < seen[viewer] {
				return fmt.Errorf("viewer %s is shown %q after a photo of rank %d", viewer, answer.Photos[0].Title, seen[viewer])
			}
			seen[viewer] = rank
			reads.Add(1)
			return nil
		})
	}
	return c, reads
}

// rankOf returns a function that returns the index of a title in titles, or -1.
func rankOf(titles ...string) func(title string) int {
	return func(title string) int { return slices.Index(titles, title) }
}

// checkAll waits until verify finds nothing wrong, which compares sets and answers with plain SQL.
func (s *severalSite) checkAll(t *testing.T) {
	t.Helper()
	path := activityd(t)
	eventually(t, "verify finds nothing wrong", func() bool {
		output, err := exec.CommandContext(t.Context(), path, "verify", "--mysql-dsn="+s.dsn, "--redis-url="+s.redisURL).CombinedOutput()
		if err != nil {
			t.Logf("%s", output[max(0, len(output)-500):])
		}
		return err == nil
	})
	for _, viewer := range s.viewers {
		album, err := site.AskPlainly(t.Context(), s.db, site.ContactsFirst, contacts.Viewer{ID: viewer}, 1)
		must(t, err)
		answer, err := ask(t.Context(), http.DefaultClient, s.program, viewer, 1)
		if err != nil || len(answer.Photos) != 1 || answer.Photos[0].ID != album.Photos[0].ID {
			t.Errorf("viewer %s is shown %+v, want photo %d: %v", viewer, answer, album.Photos[0].ID, err)
		}
	}
	s.program.finish(t)
}

// TestAClusterUnderLoad is about 300 viewers, whose sets lie in a cluster of three masters, each with a replica. No node
// takes another for dead. A command may wait for its answer until long after the test has ended. Therefore a task that
// ends while a node hangs did not end by a timeout.
func TestAClusterUnderLoad(t *testing.T) {
	t.Parallel()
	c := servertest.NewCluster(t, 3, 1, "--cluster-node-timeout", "30000")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	s := newSeveralSite(t, c.URL()+"&read_timeout=1h", client, 300)
	s.nodesHang(t, c.Nodes[0], c.Nodes[3])
	s.slotsMove(t, c)
	s.checkAll(t)
}

// nodesHang has the master and the replica of a third of the sets hang: nothing says that they are gone. Changes of all
// other sets are done, and reads of them are right at all times. The rest follows when the nodes are back.
func (s *severalSite) nodesHang(t *testing.T, dead ...*servertest.Node) {
	t.Helper()
	ctx := t.Context()
	var theirs, others []member.ID
	for _, viewer := range s.viewers {
		if dead[0].Client.ZCard(ctx, index.UserKey(viewer)).Err() == nil {
			theirs = append(theirs, viewer)
		} else {
			others = append(others, viewer)
		}
	}
	for _, n := range dead {
		must(t, n.Pause())
	}
	readers, reads := s.reading(ctx, others, rankOf("first of 2010", "first of 2011", "second of 2011"))
	must(t, s.befriend(ctx, s.viewers))
	eventually(t, "the changes of living nodes are done", func() bool { return s.open(t) <= len(theirs) && s.has(ctx, others, start+2011) })
	if n := s.open(t, "add_contact"); n != len(theirs) || n == 0 {
		t.Errorf("%d changes wait, want those of %d members", n, len(theirs))
	}
	for upload := range uint64(2) { // the second upload does not wait for the rest of the first
		must(t, s.upload(ctx, "second of 2011", start+3000+upload))
		eventually(t, "the upload is fanned out to the others", func() bool {
			return s.open(t, "upload", "fan_out") == 0 && s.has(ctx, others, start+3000+upload)
		})
		// A task that runs at that moment cannot merge with a new task.
		if n := s.open(t, "fan_out_again"); n < 1 || n > 1+int(upload) {
			t.Errorf("%d tasks for what is left of %d fan-outs", n, upload+1)
		}
	}
	if n := reads.Load(); n < 50 {
		t.Errorf("%d reads of the others were answered", n)
	}
	for _, n := range dead {
		must(t, n.Resume())
	}
	eventually(t, "all tasks are done, and the sets of the node are built", func() bool { return s.open(t) == 0 && s.has(ctx, theirs, start+3001) })
	must(t, readers.rest())
}

// slotsMove moves slots between masters, under fan-outs and reads. No change is lost, and no answer is wrong.
func (s *severalSite) slotsMove(t *testing.T, c *servertest.Cluster) {
	t.Helper()
	ctx := t.Context()
	eventually(t, "all nodes answer a probe", func() bool { return s.index.Probe(ctx).Err() == nil })
	before := s.index.LostAt()
	readers, reads := s.reading(ctx, s.viewers, func(title string) int {
		var n int
		if _, err := fmt.Sscanf(title, "upload %d", &n); err != nil && title != "second of 2011" {
			return -1
		}
		return n
	})
	uploads := 0
	readers.each(50*time.Millisecond, func(ctx context.Context) error {
		uploads++
		return s.upload(ctx, fmt.Sprint("upload ", uploads), start+4000+uint64(uploads))
	})
	for _, from := range []int{0, 1} {
		var slots []int
		first := (from*16384 + 2) / 3
		for slot := first; slot < first+750; slot++ {
			slots = append(slots, slot)
		}
		must(t, c.MoveSlots(ctx, c.Nodes[from], c.Nodes[from+1], slots...))
	}
	must(t, readers.rest())
	if reads.Load() == 0 || uploads == 0 {
		t.Errorf("%d uploads, %d reads", uploads, reads.Load())
	}
	eventually(t, "all tasks are done", func() bool { return s.open(t) == 0 })
	eventually(t, "all nodes answer a probe", func() bool { return s.index.Probe(ctx).Err() == nil })
	if s.index.LostAt() != before {
		t.Errorf("moving slots was taken for a loss")
	}
}

// TestSentinelsPromoteAReplicaUnderLoad kills the master behind Sentinels, under reads and changes. The Sentinels
// promote a replica that was away for the last changes. No answer is wrong at any time, tasks wait and go on, and
// the sets are built again.
func TestSentinelsPromoteAReplicaUnderLoad(t *testing.T) {
	t.Parallel()
	w := servertest.NewWatched(t, time.Second)
	client := redis.NewFailoverClient(w.FailoverOptions())
	t.Cleanup(func() { _ = client.Close() })
	s := newSeveralSite(t, w.URL(), client, 100)
	ctx := t.Context()
	master, replica := w.Nodes[0], w.Nodes[1]
	readers, reads := s.reading(ctx, s.viewers, rankOf("first of 2010", "first of 2011", "second of 2011"))
	eventually(t, "the replica has the sets", func() bool {
		n, err := replica.Client.DBSize(ctx).Result()
		return err == nil && n >= int64(len(s.viewers))
	})
	must(t, replica.Client.Save(ctx).Err())
	must(t, replica.Kill())
	must(t, s.befriend(ctx, s.viewers[:50]))
	eventually(t, "the changes are done", func() bool { return s.open(t) == 0 })
	var changes errgroup.Group
	changes.Go(func() error { return s.befriend(ctx, s.viewers[50:]) })
	must(t, master.Kill())
	must(t, replica.Restart(ctx)) // with its old data
	eventually(t, "the Sentinels promote the replica", func() bool {
		role, err := replica.Client.Do(ctx, "ROLE").Slice()
		return err == nil && role[0] == "master"
	})
	must(t, changes.Wait())
	must(t, s.upload(ctx, "second of 2011", start+3000))
	eventually(t, "all tasks are done, and the sets are built", func() bool { return s.open(t) == 0 && s.built(ctx, 11) })
	must(t, master.Restart(ctx)) // it is a master until a Sentinel makes it a replica
	must(t, readers.rest())
	if reads.Load() == 0 {
		t.Error("no read was answered")
	}
	s.checkAll(t)
}
