package demo_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// pushed is what the page says of push: what became of the uploads, newest first, for the
// phone and the browser, and what they show.
type pushed struct {
	fates          [][2]string
	photos         []string
	phone, browser []string
}

var (
	pushRow    = regexp.MustCompile(`(?s)<tr data-key="(\d+)"><th scope="row">(.*?)</tr>`)
	pushFate   = regexp.MustCompile(`<span class="fate \w+">([^<]*)</span>(?: <code>([^<]*)</code>)?`)
	pushScreen = regexp.MustCompile(`(?s)<div class="screen" id="(\w+)">(.*?)</div>`)
	pushNote   = regexp.MustCompile(`<li data-key="[^"]+"><b>([^<]*)</b> ([^<]*) <span`)
)

// pushed reads the page of a viewer.
func (s *service) pushed(t *testing.T, viewer member.ID) (p pushed) {
	t.Helper()
	w := get(t, s.demo.Handler(), "/demo/widget?viewer="+viewer.String())
	if w.Code != http.StatusOK {
		t.Fatalf("the widget: %d %s", w.Code, w.Body)
	}
	_, panel, found := strings.Cut(html.UnescapeString(w.Body.String()), `<section class="card push"`)
	panel, _, closed := strings.Cut(panel, "</section>")
	if !found || !closed {
		t.Fatalf("there is no panel of push:\n%s", w.Body)
	}
	for _, row := range pushRow.FindAllStringSubmatch(panel, -1) {
		fates := pushFate.FindAllStringSubmatch(row[2], -1)
		if len(fates) != 2 {
			t.Fatalf("a row has %d fates: %s", len(fates), row[0])
		}
		p.photos = append(p.photos, row[1])
		p.fates = append(p.fates, [2]string{fates[0][1] + " / " + fates[0][2], fates[1][1] + " / " + fates[1][2]})
	}
	for _, screen := range pushScreen.FindAllStringSubmatch(html.UnescapeString(w.Body.String()), -1) {
		var notes []string
		for _, n := range pushNote.FindAllStringSubmatch(screen[2], -1) {
			notes = append(notes, n[1]+": "+n[2])
		}
		switch screen[1] {
		case "phone":
			p.phone = notes
		case "browser":
			p.browser = notes
		}
	}
	return p
}

// awaitFates waits until the newest uploads have these fates, on both devices.
func (s *service) awaitFates(t *testing.T, viewer member.ID, want ...string) pushed {
	t.Helper()
	var got pushed
	servertest.Eventually(t, fmt.Sprintf("the fates %q", want), func() bool {
		got = s.pushed(t, viewer)
		if t.Failed() || len(got.fates) < len(want) {
			return t.Failed()
		}
		for i, fate := range want {
			if got.fates[i] != [2]string{fate, fate} {
				return false
			}
		}
		return true
	})
	return got
}

// pressed presses a button that must work.
func (s *service) pressed(t *testing.T, action, form string, args ...any) {
	t.Helper()
	if w := press(t, s.demo.Handler(), action, fmt.Sprintf(form, args...)); w.Code != http.StatusOK {
		t.Fatalf("%s %s = %d %s", action, fmt.Sprintf(form, args...), w.Code, w.Body)
	}
}

// requireShown fails the test unless both devices show these notifications, newest first.
func requireShown(t *testing.T, p pushed, want ...string) {
	t.Helper()
	if !slices.Equal(p.phone, want) || !slices.Equal(p.browser, want) {
		t.Errorf("the phone shows %q, the browser %q, want %q", p.phone, p.browser, want)
	}
}

// contactsSeen returns two contacts whose photos the viewer may see.
func (s *service) contactsSeen(t *testing.T, viewer member.ID) (one, other member.ID) {
	t.Helper()
	answer, err := s.config.Reader.Read(t.Context(), contacts.Viewer{ID: viewer}, 1)
	if err != nil || answer.Contact == nil {
		t.Fatalf("viewer %d is shown %+v, %v", viewer, answer, err)
	}
	one = answer.Contact.ID
	for _, c := range s.config.World.Contacts {
		hidden := slices.ContainsFunc(s.config.World.Blocks, func(b world.Block) bool {
			return b.Member == c.Contact && b.Blocked == viewer || b.Member == viewer && b.Blocked == c.Contact
		})
		if c.User == viewer && c.Contact != one && !hidden {
			return one, c.Contact
		}
	}
	t.Fatalf("viewer %d has no other contact", viewer)
	return one, other
}

const (
	arrived  = "arrived / accepted"
	isHeld   = "waits: deliveries are held / "
	counted  = "counted by a later one / accepted doubled"
	isHidden = "not sent: may not see the photo / skipped not_visible"
	isMuted  = "not sent: the contact is muted / skipped muted"
	optedOut = "not sent: opted out of uploads / skipped opted_out"
)

// What the viewer does between upload and delivery counts, and the page says why.
func TestPushShowsWhatArrivesAndWhatDoesNotAndWhy(t *testing.T) {
	t.Parallel()
	s := startRealService(t, smallWorld())
	const viewer = 2
	one, other := s.contactsSeen(t, viewer)
	upload := fmt.Sprintf("viewer=%d&owner=%d", viewer, one)
	title := func(p pushed, i int) string {
		return "uploaded “" + s.config.World.Title(parseID(t, p.photos[i])) + "”"
	}
	requireShown(t, s.pushed(t, viewer))

	// In time between upload and delivery.
	for _, c := range []struct{ change, undo, want string }{
		{fmt.Sprintf("do=mute&contact=%d", one), fmt.Sprintf("do=unmute&contact=%d", one), isMuted},
		{"do=opt-out", "do=opt-in", optedOut},
		{"", "", isHidden},
	} {
		s.pressed(t, "push", "viewer=%d&do=hold", viewer)
		s.pressed(t, "upload", "%s", upload)
		held := s.awaitFates(t, viewer, isHeld)
		if c.change == "" {
			s.pressed(t, "private", "viewer=%d&photo=%s", viewer, held.photos[0])
		} else {
			s.pressed(t, "push", "viewer=%d&%s", viewer, c.change)
		}
		s.pressed(t, "push", "viewer=%d&do=release", viewer)
		requireShown(t, s.awaitFates(t, viewer, c.want))
		if c.undo != "" {
			s.pressed(t, "push", "viewer=%d&%s", viewer, c.undo)
		}
	}

	// Before the upload: nothing has to be held.
	s.pressed(t, "push", "viewer=%d&do=mute&contact=%d", viewer, one)
	s.pressed(t, "upload", "%s", upload)
	requireShown(t, s.awaitFates(t, viewer, isMuted))
	requireContains(t, get(t, s.demo.Handler(), "/demo/widget?viewer=2").Body.String(),
		"is muted.</li>", fmt.Sprintf(`id="do-unmute-%d"`, one))
	s.pressed(t, "push", "viewer=%d&do=unmute&contact=%d", viewer, one)

	// Quiet hours postpone.
	s.pressed(t, "push", "viewer=%d&do=quiet", viewer)
	s.pressed(t, "upload", "%s", upload)
	requireShown(t, s.awaitFates(t, viewer, "waits for the end of the quiet hours / pending"))
	requireContains(t, get(t, s.demo.Handler(), "/demo/widget?viewer=2").Body.String(), "<li>Quiet hours until ", "End the quiet hours")
	s.pressed(t, "push", "viewer=%d&do=loud", viewer)

	// A burst is one notification with its count.
	s.pressed(t, "push", "viewer=%d&do=hold", viewer)
	s.pressed(t, "upload", "viewer=%d&owner=%d&times=3", viewer, other)
	s.awaitFates(t, viewer, isHeld, isHeld, isHeld)
	s.pressed(t, "push", "viewer=%d&do=release", viewer)
	p := s.awaitFates(t, viewer, arrived, counted, counted)
	requireShown(t, p, s.config.World.Username(other)+" (3): "+title(p, 0))

	// So soon after the last one it waits for others.
	s.pressed(t, "upload", "viewer=%d&owner=%d", viewer, other)
	s.awaitFates(t, viewer, "waits for others of its burst / pending")
}

func parseID(t *testing.T, text string) (id uint64) {
	t.Helper()
	if _, err := fmt.Sscan(text, &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// The devices of a visitor who looks at every member are bounded.
func TestDevicesOfOldViewersGo(t *testing.T) {
	t.Parallel()
	s := startRealService(t, smallWorld())
	const most, seen = 50, 53
	for id := range member.ID(seen) {
		s.pushed(t, id+1)
	}
	members, devices := 0, 0
	for id := range member.ID(seen) {
		list, err := s.config.Push.Store.Devices(t.Context(), id+1)
		if err != nil {
			t.Fatal(err)
		}
		members, devices = members+min(1, len(list)), devices+len(list)
	}
	if members != most || devices != 2*most {
		t.Errorf("%d members have %d devices, want %d to have two each", members, devices, most)
	}
}

func TestPushNeedsTheRealServers(t *testing.T) {
	t.Parallel()
	s := startService(t)
	body := get(t, s.demo.Handler(), "/?viewer=1").Body.String()
	requireContains(t, body, "Push needs the real servers.", `aria-labelledby="push-title"`)
	for _, not := range []string{`class="screen"`, "do-hold", "do-burst"} {
		if strings.Contains(body, not) {
			t.Errorf("the page contains %q", not)
		}
	}
	if w := press(t, s.demo.Handler(), "push", "viewer=1&do=hold"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "real servers") {
		t.Errorf("hold = %d %s", w.Code, w.Body)
	}
}

func TestBadPressesOfPush(t *testing.T) {
	t.Parallel()
	s := startRealService(t, smallWorld())
	for _, c := range []struct {
		action, form string
		status       int
		want         string
	}{
		{"push", "viewer=1", 400, "do: want"},
		{"push", "viewer=1&do=explode", 400, "do: want"},
		{"push", "viewer=1&do=mute", 400, "contact"},
		{"push", "viewer=1&do=unmute&contact=x", 400, "contact"},
		{"push", "viewer=999999&do=mute&contact=1", 404, "no such member"},
		{"push", "viewer=999999&do=opt-out", 404, "no such member"},
		{"push", "viewer=999999&do=quiet", 404, "no such member"},
		{"upload", "viewer=1&owner=other&times=0", 400, "times"},
		{"upload", "viewer=1&owner=other&times=1000", 400, "times"},
		{"upload", "viewer=1&owner=other&times=x", 400, "times"},
	} {
		if w := press(t, s.demo.Handler(), c.action, c.form); w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("POST %s %s = %d %s, want %d about %q", c.action, c.form, w.Code, w.Body, c.status, c.want)
		}
	}
}
