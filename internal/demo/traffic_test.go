package demo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/member"
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

// runFor runs the traffic for a while of the bubble's time.
func runFor(t *testing.T, d *demo.Demo, while time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), while)
	defer cancel()
	if err := d.Traffic(ctx); err != nil {
		t.Errorf("Traffic = %v, want nil at the end of its context", err)
	}
}

// All kinds of change come at the rate of 4 a second. The contacts of the watched viewer upload
// most, and quiet members upload nothing.
func TestTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to, w := &journal{}, tinyWorld().Generate(time.Now())
		d := newDemo(answering(1, 0), to, plainly(1, 0, nil))
		const watched = 4 // with a dozen contacts, so few that chance would hardly hit them
		ask(t, d, fmt.Sprintf("/demo/live?viewer=%d", watched))
		runFor(t, d, 5*time.Minute)
		if n := len(to.all()); n < 900 || n > 1350 { // some change nothing, as when they add a contact again
			t.Errorf("%d changes in 5 minutes at 4 a second, want about 1200", n)
		}
		kinds, theirs, is := map[string]int{}, 0, map[string]bool{}
		for _, c := range w.Contacts {
			is[c.Contact.String()] = is[c.Contact.String()] || c.User == watched
		}
		for _, line := range to.all() {
			f := strings.Fields(line)
			kinds[f[0]]++
			id, err := member.Parse(f[1])
			if err == nil && w.IsQuiet(id) && (f[0] == "upload" || f[0] == "add") {
				t.Errorf("of a quiet member: %s", line)
			}
			if f[0] == "add" && f[1] == strconv.Itoa(watched) {
				is[f[2]] = true
			}
			if f[0] == "upload" && is[f[1]] {
				theirs++
			}
		}
		for _, kind := range []string{"upload", "add", "remove", "visibility", "block", "unblock"} {
			if kinds[kind] < 10 {
				t.Errorf("%d times %s in 5 minutes", kinds[kind], kind)
			}
		}
		if theirs*4 < kinds["upload"] {
			t.Errorf("%d of %d uploads are by contacts of the watched viewer, want a good part", theirs, kinds["upload"])
		}
	})
}

func TestTrafficGoesOnAfterFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &journal{err: errors.New("the site is down")}
		d := newDemo(answering(1, 0), to, plainly(1, 0, nil))
		runFor(t, d, 20*time.Second)
		if n := len(to.all()); n < 20 {
			t.Errorf("%d changes were tried on a site that is down", n)
		}
		if page := ask(t, d, "/").Body.String(); !strings.Contains(page, "Nothing yet.") {
			t.Error("the feed shows changes that never happened")
		}
	})
}
