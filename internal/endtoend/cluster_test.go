//go:build unix

package endtoend_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/clustertest"
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
	address string
	viewers []member.ID
}

const newcomer = member.ID(2011)

// clusterSite is a site of 300 viewers, whose sets lie in a cluster of three masters, each with a replica.
// The other nodes take a node for dead when it is silent for longer than the timeout, in milliseconds. A
// command may wait for its answer until long after a test has ended. Therefore a task that ends while a node
// hangs did not end by a timeout.
type clusterSite struct {
	*severalSite
	*clustertest.Cluster
}

func newClusterSite(t *testing.T, timeout string) *clusterSite {
	t.Helper()
	c := servertest.Cluster(t, 3, 1, "--cluster-node-timeout", timeout)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return &clusterSite{newSeveralSite(t, c.URL()+"&read_timeout=1h", client, 300), c}
}

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
	s.address, err = s.program.address()
	must(t, err)
	eventually(t, "the sets of all viewers are built", func() bool { return s.built(ctx, 10) })
	eventually(t, "no task is left", func() bool { return s.open(t) == 0 })
	return s
}

// open returns how many tasks of the given types are not done; without a type, of all.
func (s *severalSite) open(t *testing.T, types ...string) int {
	t.Helper()
	list, err := s.queue.List(t.Context(), queue.Filter{Kinds: types}, 1<<20)
	must(t, err)
	list = slices.DeleteFunc(list, func(task queue.Record) bool { return task.Kind == tasks.CheckRange }) // the next part of the sweep
	return len(list)
}

// on splits the viewers by whether their sets lie on one of the nodes.
func (s *clusterSite) on(t *testing.T, nodes ...*clustertest.Node) (there, elsewhere []member.ID) {
	t.Helper()
	for _, viewer := range s.viewers {
		if slices.ContainsFunc(nodes, func(n *clustertest.Node) bool {
			return n.Client.ZCard(t.Context(), index.UserKey(viewer)).Err() == nil
		}) {
			there = append(there, viewer)
		} else {
			elsewhere = append(elsewhere, viewer)
		}
	}
	return there, elsewhere
}

// each calls do for all viewers, some at a time.
func (s *severalSite) each(t *testing.T, viewers []member.ID, do func(ctx context.Context, viewer member.ID) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for _, viewer := range viewers {
		group.Go(func() error { return do(ctx, viewer) })
	}
	must(t, group.Wait())
}

// read asks the API for the photos of a viewer.
func (s *severalSite) read(ctx context.Context, viewer member.ID) (answer shown, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/v1/users/%s/recent-contact-photos?limit=1", s.address, viewer), http.NoBody)
	if err != nil {
		return answer, err
	}
	err = exchange(http.DefaultClient, request, http.StatusOK, &answer)
	return answer, err
}

// reading reads as the viewers until the returned function is called, which returns the number of reads and
// the longest duration. titles ranks the titles that a viewer may see; the rank of a viewer's newest photo
// never falls. An error, or a photo without a rank, fails the test. On a busy machine, the API may ask some
// readers to come back, or answer too late.
func (s *severalSite) reading(t *testing.T, viewers []member.ID, titles func(title string) int) (stop func() (reads int64, longest time.Duration)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var count, late atomic.Int64
	var mu sync.Mutex
	var longest time.Duration
	var readers sync.WaitGroup
	const at = 4 // readers, each every 40 ms: without a pause they take all processors
	for i := range at {
		readers.Go(func() {
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			seen := make(map[member.ID]int)
			for ctx.Err() == nil {
				for place := i; place < len(viewers) && ctx.Err() == nil; place += at {
					viewer, began := viewers[place], time.Now()
					answer, err := s.read(ctx, viewer)
					took := time.Since(began)
					if ctx.Err() != nil {
						return
					}
					select {
					case <-tick.C:
					case <-ctx.Done():
					}
					if err != nil && (strings.Contains(err.Error(), "/problems/busy") || strings.Contains(err.Error(), "/problems/deadline-exceeded")) {
						late.Add(1)
						continue
					}
					if err != nil || len(answer.Photos) != 1 {
						t.Errorf("viewer %s: %+v, %v", viewer, answer, err)
						return
					}
					rank := titles(answer.Photos[0].Title)
					if rank < 0 || rank < seen[viewer] {
						t.Errorf("viewer %s is shown %q after one of rank %d", viewer, answer.Photos[0].Title, seen[viewer])
						return
					}
					seen[viewer] = rank
					count.Add(1)
					mu.Lock()
					longest = max(longest, took)
					mu.Unlock()
				}
			}
		})
	}
	return func() (int64, time.Duration) {
		cancel()
		readers.Wait()
		if n := late.Load(); n > count.Load() {
			t.Errorf("%d reads were refused or came too late, and %d in time", n, count.Load())
		}
		return count.Load(), longest
	}
}

// checkAll waits until verify finds nothing wrong, and holds the answers against plain SQL.
func (s *severalSite) checkAll(t *testing.T) {
	t.Helper()
	var output []byte
	path := activityd(t)
	eventually(t, "verify finds nothing wrong", func() bool {
		var err error
		output, err = exec.CommandContext(t.Context(), path, "verify", "--all", "--max-lag=1ms", "--mysql-dsn="+s.dsn, "--redis-url="+s.redisURL).CombinedOutput()
		if err != nil {
			t.Logf("%s", output[max(0, len(output)-500):])
		}
		return err == nil
	})
	s.each(t, s.viewers, func(ctx context.Context, viewer member.ID) error {
		album, err := site.AskPlainly(ctx, s.db, site.ContactsFirst, contacts.Viewer{ID: viewer}, 1)
		if err != nil {
			return err
		}
		answer, err := s.read(ctx, viewer)
		if err == nil && (len(answer.Photos) != 1 || answer.Photos[0].ID != album.Photos[0].ID) {
			err = fmt.Errorf("viewer %s is shown %+v, want photo %d", viewer, answer, album.Photos[0].ID)
		}
		return err
	})
	s.program.finish(t)
	s.program.checkLogs(t)
}

// TestADeadNodeHoldsUpItsOwnMembersOnly kills the master and the replica of a third of the sets. Changes of
// all other sets are done at once, and reads of them are right at all times. The rest follows when the nodes
// are back.
func TestADeadNodeHoldsUpItsOwnMembersOnly(t *testing.T) {
	t.Parallel()
	for name, w := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loseNode(t, w)
		})
	}
}

func loseNode(t *testing.T, w way) {
	t.Helper()
	s := newClusterSite(t, "3000")
	ctx := t.Context()
	dead := []*clustertest.Node{s.Nodes[0], s.Nodes[3]}
	theirs, others := s.on(t, dead[0])
	if len(theirs) < 70 || len(theirs) > 130 {
		t.Fatalf("%d of 300 sets on one of three nodes", len(theirs))
	}
	for _, n := range dead {
		must(t, w.lose(n))
	}
	titles := []string{"first of 2010", "first of 2011", "second of 2011"}
	stop := s.reading(t, others, func(title string) int { return slices.Index(titles, title) })
	s.each(t, s.viewers, func(ctx context.Context, viewer member.ID) error {
		return s.site.SetContact(ctx, viewer, newcomer, site.Grant{})
	})
	changed := time.Now()
	has := func(viewers []member.ID, score uint64) bool {
		return !slices.ContainsFunc(s.index.Look(ctx, viewers), func(set index.Set) bool {
			return set.Err != nil || !slices.Contains(set.Members, index.Entry{Contact: newcomer, Score: score})
		})
	}
	eventually(t, "the changes of living nodes are done", func() bool { return s.open(t) <= len(theirs) && has(others, start+2011) })
	t.Logf("%d changes of living nodes were done %v after the last of them", len(others), time.Since(changed).Round(time.Millisecond))
	if n := s.open(t, "add_contact"); n != len(theirs) {
		t.Errorf("%d changes wait, want those of %d members", n, len(theirs))
	}
	for upload := range uint64(2) { // the second upload does not wait for the rest of the first
		_, err := s.site.Upload(ctx, site.Photo{Owner: newcomer, Title: "second of 2011", Visibility: contacts.Public, DateUpload: start + 3000 + upload})
		must(t, err)
		eventually(t, "the upload is fanned out to the others", func() bool { return s.open(t, "upload", "fan_out") == 0 && has(others, start+3000+upload) })
		// A task that runs at that moment cannot merge with a new task.
		if n := s.open(t, "fan_out_again"); n < 1 || n > 1+int(upload) {
			t.Errorf("%d tasks for what is left of %d fan-outs", n, upload+1)
		}
	}
	for _, n := range dead {
		must(t, w.restore(n))
	}
	must(t, s.AwaitOK(ctx, s.Nodes...))
	back := time.Now()
	eventually(t, "all tasks are done", func() bool { return s.open(t) == 0 })
	t.Logf("the others were done %v after the node's return", time.Since(back).Round(time.Millisecond))
	eventually(t, "the sets of the node are built", func() bool { return has(theirs, start+3001) })
	reads, longest := stop()
	t.Logf("%d reads, the longest took %v", reads, longest.Round(time.Millisecond))
	s.checkAll(t)
}

// TestSlotsMoveUnderLoad moves slots between masters, under fan-outs and reads. No change is lost, no answer
// is wrong, and no task waits for long. The slowest fan-out takes about a second on a busy machine: it
// repeats a command for half a second, and then its rest.
func TestSlotsMoveUnderLoad(t *testing.T) {
	t.Parallel()
	s := newClusterSite(t, "30000") // no node is to die
	ctx := t.Context()
	s.each(t, s.viewers, func(ctx context.Context, viewer member.ID) error {
		return s.site.SetContact(ctx, viewer, newcomer, site.Grant{})
	})
	eventually(t, "the changes are done", func() bool { return s.open(t) == 0 })
	eventually(t, "all nodes answer a probe", func() bool { return s.index.Probe(ctx).Err() == nil })
	before := s.index.LostAt()
	stop := s.reading(t, s.viewers, func(title string) int {
		var n int
		if _, err := fmt.Sscanf(title, "upload %d", &n); err != nil && title != "first of 2011" {
			return -1
		}
		return n
	})
	uploading, end := context.WithCancel(ctx)
	var uploads errgroup.Group
	var slowest time.Duration
	uploads.Go(func() error {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := uint64(1); uploading.Err() == nil; n++ {
			began := time.Now()
			_, err := s.site.Upload(ctx, site.Photo{Owner: newcomer, Title: fmt.Sprint("upload ", n), Visibility: contacts.Public, DateUpload: start + 3000 + n})
			if err != nil {
				return err
			}
			for s.openNow(ctx) > 0 {
				if time.Since(began) > time.Minute {
					return errors.New("a fan-out is not done after a minute")
				}
				<-tick.C
			}
			slowest = max(slowest, time.Since(began))
		}
		return nil
	})
	for _, from := range []int{0, 1} {
		var slots []int
		first := (from*16384 + 2) / 3
		for slot := first; slot < first+750; slot++ {
			slots = append(slots, slot)
		}
		must(t, s.MoveSlots(ctx, s.Nodes[from], s.Nodes[from+1], slots...))
	}
	end()
	must(t, uploads.Wait())
	reads, longest := stop()
	t.Logf("the slowest fan-out took %v; %d reads, the longest %v", slowest.Round(time.Millisecond), reads, longest.Round(time.Millisecond))
	eventually(t, "all nodes answer a probe", func() bool { return s.index.Probe(ctx).Err() == nil })
	if s.index.LostAt() != before {
		t.Errorf("moving slots was taken for a loss")
	}
	s.checkAll(t)
}

func (s *severalSite) openNow(ctx context.Context) (n int) {
	if err := s.db.QueryRowContext(ctx, "SELECT "+leftTasks).Scan(&n); err != nil {
		return 1
	}
	return n
}

// way is how a server is lost, and comes back.
type way struct {
	lose, restore func(*clustertest.Node) error
}

// ways are by its end, and by a hang: nothing says that it is gone, and connections are made to
// it and not answered.
func ways() map[string]way {
	return map[string]way{
		"killed":  {(*clustertest.Node).Kill, func(n *clustertest.Node) error { return n.Restart(context.Background()) }},
		"hanging": {(*clustertest.Node).Pause, (*clustertest.Node).Resume},
	}
}

func (s *severalSite) isMaster(ctx context.Context, n *clustertest.Node) bool {
	role, err := n.Client.Do(ctx, "ROLE").Slice()
	return err == nil && len(role) > 0 && role[0] == "master"
}
