package demo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/site"
)

// journal is a site that writes down its changes, and fails with err.
type journal struct {
	site.Changer // nil: the demo makes no other change
	mu           sync.Mutex
	lines        []string
	err          error
}

func (j *journal) note(format string, args ...any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
	return j.err
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (j *journal) count(word string) (n int) {
	for _, line := range j.all() {
		if strings.HasPrefix(line, word+" ") {
			n++
		}
	}
	return n
}

func (j *journal) SetContact(_ context.Context, m, contact member.ID, _ site.Grant) error {
	return j.note("add %d %d", m, contact)
}

func (j *journal) RemoveContact(_ context.Context, m, contact member.ID) error {
	return j.note("remove %d %d", m, contact)
}

func (j *journal) Block(_ context.Context, m, blocked member.ID) error {
	return j.note("block %d %d", m, blocked)
}

func (j *journal) Unblock(_ context.Context, m, blocked member.ID) error {
	return j.note("unblock %d %d", m, blocked)
}

func (j *journal) Upload(_ context.Context, p site.Photo) (uint64, error) {
	return p.ID, j.note("upload %d %d %s", p.Owner, p.ID, p.Title)
}

func (j *journal) SetVisibility(_ context.Context, photo uint64, v contacts.Visibility) error {
	return j.note("visibility %d %s", photo, v)
}

// nothing is a read that finds nothing.
type nothing struct{}

func (nothing) Read(context.Context, contacts.Viewer, int) (recent.Answer, error) {
	return recent.Answer{Source: recent.FromIndex}, nil
}

func newTraffic(t *testing.T, s site.Changer, seed uint64) *demo.Demo {
	t.Helper()
	return demo.New(demo.Config{
		World: smallWorld(), Site: s, Reader: nothing{}, Rate: 4, Seed: seed,
		Plain: plainly(contacts.Album{}, nil),
		Log:   slog.New(slog.DiscardHandler),
	})
}

// runFor runs the traffic for a while of the bubble's time.
func runFor(t *testing.T, d *demo.Demo, while time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), while)
	defer cancel()
	if err := d.Run(ctx); err != nil {
		t.Errorf("Run = %v, want nil at the end of its context", err)
	}
}

func TestTrafficMakesEveryKindOfChangeAtItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		site := &journal{}
		runFor(t, newTraffic(t, site, 1), 5*time.Minute)
		// Some are none, such as adding a contact again.
		if n := len(site.all()); n < 900 || n > 1350 {
			t.Errorf("%d changes in 5 minutes at 4 a second, want about 1200", n)
		}
		for _, kind := range []string{"upload", "add", "remove", "visibility", "block", "unblock"} {
			if site.count(kind) < 10 {
				t.Errorf("%d times %s in 5 minutes", site.count(kind), kind)
			}
		}
		if site.count("block")-site.count("unblock") > 4 {
			t.Errorf("%d blocks, %d taken back", site.count("block"), site.count("unblock"))
		}
	})
}

func TestTrafficOfOneSeedIsTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs [3][]string
		for i, seed := range []uint64{1, 1, 2} {
			site := &journal{}
			runFor(t, newTraffic(t, site, seed), 20*time.Second)
			runs[i] = site.all()
		}
		if !slices.Equal(runs[0], runs[1]) || slices.Equal(runs[0], runs[2]) {
			t.Errorf("seed 1: %q\nagain:  %q\nseed 2: %q", runs[0], runs[1], runs[2])
		}
	})
}

func TestTrafficFavoursTheWatchedViewer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const watched = 4 // with a dozen contacts, which chance would hardly hit
		site, w := &journal{}, smallWorld()
		d := newTraffic(t, site, 1)
		theirs := map[string]bool{}
		for _, row := range w.Contacts {
			theirs[row.Contact.String()] = theirs[row.Contact.String()] || row.User == watched
		}
		var running sync.WaitGroup
		running.Go(func() { runFor(t, d, time.Minute) })
		for range 60 {
			get(t, d.Handler(), fmt.Sprintf("/demo/widget?viewer=%d", watched))
			<-time.After(time.Second) // of the bubble's time
		}
		running.Wait()
		hits := 0
		for _, line := range site.all() {
			if f := strings.Fields(line); f[0] == "upload" && theirs[f[1]] {
				hits++
			}
		}
		if all := site.count("upload"); hits*4 < all {
			t.Errorf("%d of %d uploads are by contacts of the watched viewer, want a good part", hits, all)
		}
	})
}

// Quiet members upload nothing, and the viewer who is watched for having no others adds none.
func TestTrafficLeavesTheQuietQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spec := world.Demo()
		spec.Members, spec.Photos, spec.Quiet, spec.Featured, spec.Celebrities = 100, 300, 100, []int{20}, nil
		site, w := &journal{}, spec.Generate(time.Now())
		d := demo.New(demo.Config{World: w, Site: site, Reader: nothing{}, Rate: 4, Seed: 1, Plain: plainly(contacts.Album{}, nil), Log: slog.New(slog.DiscardHandler)})
		get(t, d.Handler(), "/") // shows the first viewer, and watches it
		runFor(t, d, 5*time.Minute)
		for _, line := range site.all() {
			f := strings.Fields(line)
			if id, err := member.Parse(f[1]); (f[0] == "upload" || f[0] == "add") && (err != nil || w.IsQuiet(id)) {
				t.Errorf("%s: %v", line, err)
			}
		}
		if site.count("upload") == 0 || site.count("add") == 0 {
			t.Error("no uploads, or no new contacts")
		}
	})
}

func TestTrafficGoesOnAfterFailuresAndStopsInAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		site := &journal{err: errors.New("the site is down")}
		d := newTraffic(t, site, 1)
		runFor(t, d, 20*time.Second)
		failed := len(site.all())
		if failed < 20 {
			t.Errorf("%d changes were tried on a site that is down", failed)
		}
		if page := get(t, d.Handler(), "/").Body.String(); !strings.Contains(page, "Nothing yet.") {
			t.Error("the feed shows changes that never happened")
		}
		press(t, d.Handler(), "traffic", "viewer=1&do=pause")
		runFor(t, d, 20*time.Second)
		if n := len(site.all()) - failed; n != 0 {
			t.Errorf("%d changes during the pause", n)
		}
		press(t, d.Handler(), "traffic", "viewer=1&do=resume")
		runFor(t, d, 20*time.Second)
		if len(site.all()) == failed {
			t.Error("no change after the pause")
		}
	})
}
