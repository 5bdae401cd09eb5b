package world_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/site"
)

var now = time.Date(2013, 3, 19, 4, 17, 12, 0, time.UTC)

// small is the world of the demo, but a hundredth of its size.
func small() world.Spec {
	s := world.Demo()
	s.Members, s.Photos, s.Blocks = 205, 600, 10
	s.Quiet = 20
	s.Featured, s.Celebrities = []int{150, 40, 12, 0}, []int{100, 40}
	return s
}

func TestSameSeedAndMomentGiveTheSameWorld(t *testing.T) {
	t.Parallel()
	s := small()
	unexported := cmpopts.IgnoreUnexported(world.World{})
	if diff := cmp.Diff(s.Generate(now), s.Generate(now), unexported); diff != "" {
		t.Errorf("two worlds of one seed differ:\n%s", diff)
	}
	other := s
	other.Seed++
	if cmp.Equal(s.Generate(now), other.Generate(now), unexported) {
		t.Error("another seed gives the same world")
	}
}

func TestDemoWorldIsHeavyTailedAndOfTheSizePromised(t *testing.T) {
	t.Parallel()
	s := world.Demo()
	w := s.Generate(now)
	contactsOf, followersOf := map[member.ID]int{}, map[member.ID]int{}
	for _, row := range w.Contacts {
		contactsOf[row.User]++
		followersOf[row.Contact]++
	}
	for i, id := range w.Featured {
		if want := append([]int{s.Quiet}, s.Featured...)[i]; contactsOf[id] != want {
			t.Errorf("viewer %d has %d contacts, want %d", id, contactsOf[id], want)
		}
	}
	for i, n := range s.Celebrities {
		if id := member.ID(len(s.Featured) + i + 1); followersOf[id] < n {
			t.Errorf("celebrity %d has %d followers, want at least %d", id, followersOf[id], n)
		}
	}
	within(t, "contacts", len(w.Contacts), 100_000, 150_000)
	within(t, "photos", len(w.Photos), s.Photos*8/10+s.Quiet, s.Photos+s.Quiet)
	within(t, "members with 60 contacts or fewer", countIf(contactsOf, func(n int) bool { return n <= s.MaxContacts }), len(contactsOf)*95/100, len(contactsOf))
	t.Logf("%d members, %d contacts, %d photos, %d blocks", len(w.Members), len(w.Contacts), len(w.Photos), len(w.Blocks))
}

func within(t *testing.T, what string, got, low, high int) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: %d, want %d to %d", what, got, low, high)
	}
}

func countIf(of map[member.ID]int, holds func(int) bool) (n int) {
	for _, v := range of {
		if holds(v) {
			n++
		}
	}
	return n
}

func TestWorldIsSound(t *testing.T) {
	t.Parallel()
	w := small().Generate(now)
	names, pairs := map[string]bool{}, map[[2]member.ID]bool{}
	for i, m := range w.Members {
		if m.ID != member.ID(i+1) || m.Username == "" || names[m.Username] || w.Username(m.ID) != m.Username {
			t.Errorf("member %d of the list is %+v", i+1, m)
		}
		names[m.Username] = true
	}
	for _, c := range w.Contacts {
		pair := [2]member.ID{c.User, c.Contact}
		if c.User == c.Contact || pairs[pair] || w.Username(c.User) == "" || w.Username(c.Contact) == "" {
			t.Errorf("contact %+v", c)
		}
		pairs[pair] = true
	}
	for _, b := range w.Blocks {
		if !pairs[[2]member.ID{b.Blocked, b.Member}] {
			t.Errorf("block %+v is of no follower", b)
		}
	}
	if len(w.Blocks) == 0 || w.Username(0) != "" || w.Username(member.ID(len(w.Members)+1)) != "" {
		t.Error("no block, or a name for an unknown member")
	}
}

func TestPhotosAreOfTheRecentPastAndOfEveryVisibility(t *testing.T) {
	t.Parallel()
	w := small().Generate(now)
	seen, owners, fresh := map[contacts.Visibility]int{}, map[member.ID]bool{}, 0
	for i, p := range w.Photos {
		if p.ID != uint64(i+1) || p.Title != w.Title(p.ID) || p.Title == "" || w.Username(p.Owner) == "" {
			t.Errorf("photo %+v", p)
		}
		age := now.Sub(time.Unix(int64(p.DateUpload), 0))
		if age <= 0 {
			t.Errorf("photo %d is from the future: %v", p.ID, age)
		}
		if age < 24*time.Hour {
			fresh++
		}
		seen[p.Visibility]++
		owners[p.Owner] = true
	}
	for _, v := range contacts.Classes() {
		if seen[v] == 0 {
			t.Errorf("no photo is %s", v)
		}
	}
	if fresh == 0 || len(owners) == len(w.Members) {
		t.Errorf("%d fresh photos, %d of %d members uploaded", fresh, len(owners), len(w.Members))
	}
}

// The first viewer's contacts are all quiet: all other members uploaded after each of them.
func TestQuietMembersUploadedLongestAgo(t *testing.T) {
	t.Parallel()
	s := small()
	w := s.Generate(now)
	latest := map[member.ID]uint64{}
	for _, p := range w.Photos {
		latest[p.Owner] = max(latest[p.Owner], p.DateUpload)
	}
	quiet := map[member.ID]bool{}
	newest := uint64(0)
	for _, c := range w.Contacts {
		if c.User == w.Featured[0] {
			quiet[c.Contact] = true
			newest = max(newest, latest[c.Contact])
		}
	}
	if len(quiet) != s.Quiet || newest == 0 || !w.IsQuiet(w.Featured[0]) || w.IsQuiet(w.Featured[1]) {
		t.Errorf("%d quiet contacts, whose latest upload was at %d", len(quiet), newest)
	}
	for id, at := range latest {
		if w.IsQuiet(id) != quiet[id] || !quiet[id] && at <= newest {
			t.Errorf("member %d: quiet %v, latest upload at %d, that of the quiet ones at %d", id, w.IsQuiet(id), at, newest)
		}
	}
}

func TestLoadedWorldGivesAnswers(t *testing.T) {
	t.Parallel()
	w := small().Generate(now)
	s := &site.Memory{Store: contactstest.NewMemory(), Emit: func(context.Context, site.Event) error {
		return errors.New("loading must not emit")
	}}
	if err := w.Load(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	got, err := s.Store.Walk(t.Context(), contacts.Viewer{ID: w.Featured[0]}, 10)
	if err != nil || got.Contact == nil || len(got.Photos) == 0 {
		t.Errorf("Walk for the first viewer = %+v, %v", got, err)
	}
	if got.Contact != nil && got.Contact.Username != w.Username(got.Contact.ID) {
		t.Errorf("contact %d is called %q", got.Contact.ID, got.Contact.Username)
	}
}

var errFull = errors.New("disk full")

// failing fails to load photos, or to block.
type failing struct {
	*site.Memory
	photos, block error
}

func (f failing) LoadPhotos(context.Context, []site.Photo) error { return f.photos }

func (f failing) Block(context.Context, member.ID, member.ID) error { return f.block }

func TestLoadReturnsTheErrorOfTheSite(t *testing.T) {
	t.Parallel()
	for _, f := range []failing{{photos: errFull}, {block: errFull}} {
		f.Memory = &site.Memory{Store: contactstest.NewMemory()}
		if err := small().Generate(now).Load(t.Context(), f); !errors.Is(err, errFull) {
			t.Errorf("Load into %+v = %v", f, err)
		}
	}
}

func TestTinyWorlds(t *testing.T) {
	t.Parallel()
	s := small()
	s.Members, s.Featured, s.Celebrities, s.Photos, s.Blocks, s.Quiet = 1, nil, nil, 0, 5, 0
	if w := s.Generate(now); len(w.Members) != 1 || len(w.Contacts)+len(w.Photos)+len(w.Blocks) != 0 {
		t.Errorf("a world of one member: %+v", w)
	}
	s.Members, s.Usernames = 50, world.Usernames{First: []string{"a"}, Second: []string{"b"}}
	names := map[string]bool{}
	for _, m := range s.Generate(now).Members {
		names[m.Username] = true
	}
	if len(names) != 50 {
		t.Errorf("50 members share %d names", len(names))
	}
}
