package tasks_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/miniredistest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// hooked is the index, the store and the queue of the handlers. It records their calls in order, and
// calls before ahead of each, whose error becomes the call's.
type hooked struct {
	tasks.Index
	tasks.Store
	tasks.Enqueuer
	calls  []string
	before func(call string) error
	away   []member.ID // whose sets are on a node that cannot be used
	tried  int         // additions
}

func (h *hooked) called(name string) error {
	h.calls = append(h.calls, name)
	if h.before != nil {
		return h.before(name)
	}
	return nil
}

func hook[T any](h *hooked, name string, call func() (T, error)) (T, error) {
	if err := h.called(name); err != nil {
		var none T
		return none, err
	}
	return call()
}

func (h *hooked) Begin(ctx context.Context, users []member.ID) []index.Update {
	err := h.called("Begin")
	var updates []index.Update
	for _, user := range users {
		if err := cmp.Or(err, h.out(user)); err != nil {
			updates = append(updates, index.Update{Member: user, Err: err})
		} else {
			updates = append(updates, h.Index.Begin(ctx, []member.ID{user})...)
		}
	}
	return updates
}

func (h *hooked) Apply(ctx context.Context, changes []index.Change) []index.Result {
	err := h.called("Apply")
	var results []index.Result
	for _, c := range changes {
		if err := cmp.Or(err, h.out(c.Member)); err != nil {
			results = append(results, index.Result{Err: err})
		} else {
			results = append(results, h.Index.Apply(ctx, []index.Change{c})...)
		}
	}
	return results
}

func (h *hooked) Add(ctx context.Context, additions []index.Addition) (missing []member.ID, failed map[member.ID]error) {
	err := h.called("Add")
	failed = make(map[member.ID]error)
	var others []index.Addition
	for _, a := range additions {
		h.tried++
		if err := cmp.Or(err, h.out(a.Member)); err != nil {
			failed[a.Member] = err
		} else {
			others = append(others, a)
		}
	}
	missing, more := h.Index.Add(ctx, others)
	maps.Copy(failed, more)
	return missing, failed
}

// out returns the error of a set whose node cannot be used.
func (h *hooked) out(user member.ID) error {
	if slices.Contains(h.away, user) {
		return fmt.Errorf("set of %s: %w", user, index.ErrUnavailable)
	}
	return nil
}

// NodeOf has a node for the odd users, and a node for the even users.
func (h *hooked) NodeOf(user member.ID) (node string, isUsable bool) {
	return strconv.FormatUint(uint64(user)%2, 10), !slices.Contains(h.away, user)
}

func (h *hooked) LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error) {
	return hook(h, "LastUploads", func() (map[member.ID]uint64, error) { return h.Store.LastUploads(ctx, ids) })
}

func (h *hooked) Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error) {
	return hook(h, "Relations", func() (map[contacts.Pair]uint64, error) { return h.Store.Relations(ctx, pairs) })
}

func (h *hooked) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	return hook(h, "TopContacts", func() (map[member.ID][]contacts.Contact, error) { return h.Store.TopContacts(ctx, users, limit) })
}

func (h *hooked) FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error) {
	return hook(h, "FollowerPages", func() ([][]member.ID, error) { return h.Store.FollowerPages(ctx, pages, limit) })
}

func (h *hooked) Enqueue(ctx context.Context, batch []queue.New) ([]uint64, error) {
	return hook(h, "Enqueue", func() ([]uint64, error) { return h.Enqueuer.Enqueue(ctx, batch) })
}

func (h *hooked) Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error) {
	return hook(h, "Active", func() (map[uint64]bool, error) { return h.Enqueuer.Active(ctx, kind, keys) })
}

func (h *hooked) Dedupe(ctx context.Context, held []queue.Task) (int, error) {
	return hook(h, "Dedupe", func() (int, error) { return h.Enqueuer.Dedupe(ctx, held) })
}

// bench is a site whose tasks go to handlers when the test says so. The sets
// hold 12, need 10, and are refilled below 10.
type bench struct {
	*testing.T
	site   *site.Memory
	queue  *queuetest.Memory
	redis  *miniredis.Miniredis
	client *redis.Client
	index  *index.Index
	hooked *hooked
	ahead  time.Duration // of the queue's clock

	pairs   *tasks.PairHandler
	uploads *tasks.UploadHandler
	refills *tasks.RefillHandler
}

func newBench(t *testing.T) *bench {
	t.Helper()
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, redis: miniredistest.Run(t), site: &site.Memory{Store: contactstest.NewMemory()}}
	b.client = redis.NewClient(&redis.Options{
		Addr: b.redis.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		ReadTimeout: time.Minute, // miniredis is slow on a busy machine
	})
	t.Cleanup(func() { _ = b.client.Close() })
	b.index = index.New(b.client, index.Options{Settings: settings})
	b.queue = queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, func() time.Time { return time.Now().Add(b.ahead) })
	b.hooked = &hooked{Index: b.index, Store: b.site.Store, Enqueuer: b.queue}
	b.pairs = &tasks.PairHandler{Index: b.hooked, Store: b.hooked, HandlerOptions: tasks.HandlerOptions{ConflictPause: -1}}
	b.uploads = &tasks.UploadHandler{Index: b.hooked, Store: b.hooked, Queue: b.hooked, HandlerOptions: tasks.HandlerOptions{PartSize: 1000}}
	b.refills = &tasks.RefillHandler{Index: b.hooked, Store: b.hooked, HandlerOptions: tasks.HandlerOptions{ConflictPause: -1}}
	return b
}

// contact makes contact a contact of user, with a last upload at date; 0 is never.
// No task comes of it.
func (b *bench) contact(user, contact member.ID, date uint64) {
	b.Helper()
	for _, id := range []member.ID{user, contact} {
		b.must(b.site.AddMember(b.Context(), id, "member "+id.String()))
	}
	b.must(b.site.SetContact(b.Context(), user, contact, site.Grant{}))
	if date > 0 {
		b.upload(contact, date)
	}
}

func (b *bench) upload(owner member.ID, date uint64) {
	b.Helper()
	_, err := b.site.Upload(b.Context(), site.Photo{Owner: owner, Visibility: contacts.Public, DateUpload: date})
	b.must(err)
}

func (b *bench) remove(user, contact member.ID) {
	b.Helper()
	b.must(b.site.RemoveContact(b.Context(), user, contact))
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// refill builds the set of user from MySQL.
func (b *bench) refill(user member.ID) {
	b.Helper()
	b.done(b.refills, tasks.NewRefill(user))
}

// handle gives the tasks to a handler as a batch.
func (b *bench) handle(h queue.Handler, batch ...queue.New) []error {
	b.Helper()
	list := make([]queue.Task, len(batch))
	for i, n := range batch {
		list[i] = queue.Task{ID: uint64(i + 1), Kind: n.Kind, Key: n.Key, Payload: n.Payload}
	}
	return queuetest.Errors(h.Handle(b.Context(), list))
}

// done handles a batch none of which may fail.
func (b *bench) done(h queue.Handler, batch ...queue.New) {
	b.Helper()
	b.must(errors.Join(b.handle(h, batch...)...))
}

// set returns a user's set as contact and score, lowest first.
func (b *bench) set(user member.ID) []index.Entry {
	b.Helper()
	list, err := b.client.ZRangeWithScores(b.Context(), "user_"+user.String(), 0, -1).Result()
	b.must(err)
	var out []index.Entry
	for _, z := range list {
		id, err := member.Parse(z.Member.(string))
		b.must(err)
		out = append(out, index.Entry{Contact: id, Score: uint64(z.Score)})
	}
	return out
}

// holds expects contacts and scores, lowest first.
func (b *bench) holds(user member.ID, want ...index.Entry) {
	b.Helper()
	if got := b.set(user); !slices.Equal(got, want) {
		b.Fatalf("the set of %s holds %v, want %v", user, got, want)
	}
}

// called expects the calls since the last time.
func (b *bench) called(want ...string) {
	b.Helper()
	if !slices.Equal(b.hooked.calls, want) {
		b.Errorf("calls %q, want %q", b.hooked.calls, want)
	}
	b.hooked.calls = nil
}

// once sets a hook that runs before the first call of that name.
func (b *bench) once(name string, do func()) {
	ran := false
	b.hooked.before = func(call string) error {
		if call == name && !ran {
			ran = true
			do()
		}
		return nil
	}
}

// steps returns the entries of contacts from, …, to, ascending, with the score
// 100·contact.
func steps(from, to uint64) []index.Entry {
	var out []index.Entry
	for i := from; i <= to; i++ {
		out = append(out, index.Entry{Contact: member.ID(i), Score: 100 * i})
	}
	return out
}

// ladder gives user the contacts 1 to n, who uploaded at 100, 200, ….
func (b *bench) ladder(user member.ID, n uint64) {
	b.Helper()
	for _, e := range steps(1, n) {
		b.contact(user, e.Contact, e.Score)
	}
}

// viewer is the user of most tests.
const viewer member.ID = 9001

type id = member.ID
