package demo_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// widget returns the live part of the page of a viewer.
func (s *service) widget(t *testing.T, viewer member.ID) string {
	t.Helper()
	return get(t, s.demo.Handler(), "/demo/widget?viewer="+viewer.String()).Body.String()
}

func TestFanOutIsShown(t *testing.T) {
	t.Parallel()
	s := startService(t)
	followers := map[member.ID]int{}
	var celebrity member.ID
	for _, row := range s.config.World.Contacts {
		followers[row.Contact]++
		if followers[row.Contact] > followers[celebrity] {
			celebrity = row.Contact
		}
	}
	name := s.config.World.Username(celebrity)
	requireContains(t, s.widget(t, 1), "No fan-out yet", "Upload as "+name+", for "+strconv.Itoa(followers[celebrity])+" followers")
	s.pressed(t, "upload", "viewer=1&owner=celebrity")
	servertest.Eventually(t, "the fan-out is shown", func() bool { return strings.Contains(s.widget(t, 1), "<li data-key=\""+celebrity.String()+"/") })
	shown := regexp.MustCompile(`<span class="what">([^<]*) → <b>(\d+) sets?</b> in <b>[\d.]+ m?s</b>`).FindStringSubmatch(s.widget(t, 1))
	if len(shown) == 0 || shown[1] != name {
		t.Fatalf("the fan-out of %s is shown as %q", name, shown)
	}
	if n, err := strconv.Atoi(shown[2]); err != nil || n == 0 || n > followers[celebrity] {
		t.Errorf("%d of %d followers' sets", n, followers[celebrity])
	}
}

func TestFanOutsAreTheLatest(t *testing.T) {
	t.Parallel()
	f := &demo.FanOuts{}
	for id := range member.ID(7) {
		f.Add(id+1, int(id), 5*time.Millisecond) // the first is of a member without followers
	}
	f.Add(9, 300, time.Second)
	f.Add(8, 3, time.Second)
	f.Add(8, 4, time.Second)
	f.Add(8, 5, time.Second)
	f.Add(8, 2, time.Second)
	f.Add(8, 6, time.Second)
	body := show(t, demo.Config{FanOuts: f, Reader: taking(0)}).Body.String()
	requireContains(t, body, "→ <b>300 sets</b> in <b>1.0 s</b></p>")
	_, body, _ = strings.Cut(body, `id="fan-outs"`)
	body, _, _ = strings.Cut(body, "</ol>")
	if n := strings.Count(body, "<li data-key=\""); n != 5 || strings.Index(body, "<b>6 sets</b>") > strings.Index(body, "<b>2 sets</b>") || strings.Contains(body, "<b>1 set</b>") {
		t.Errorf("%d fan-outs:\n%s", n, body)
	}
}

// show shows the widget of viewer 1 of a demo.
func show(t *testing.T, c demo.Config) *httptest.ResponseRecorder {
	t.Helper()
	c.World, c.Site, c.Plain, c.Rate = smallWorld(), &journal{}, plainly(albumOf(1), nil), 2
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return get(t, demo.New(c).Handler(), "/demo/widget?viewer=1")
}

func TestQueueAndAuditAreShown(t *testing.T) {
	t.Parallel()
	due := []queue.Summary{{Queue: "default", Due: 320 * time.Millisecond}, {Queue: "fan_out", Due: time.Second}}
	for want, stats := range map[string]queue.Stats{
		">no task<":                           {Tasks: []queue.TaskStats{{Queue: "push", State: queue.Scheduled, Count: 3}}},
		">1 task, 320 ms old<":                {Tasks: []queue.TaskStats{{State: queue.Running, Count: 1}}, Queues: due[:1]},
		">1,002 tasks, the oldest 1.0 s old<": {Tasks: []queue.TaskStats{{State: queue.Running, Count: 2}, {State: queue.Waiting, Count: 1000}}, Queues: due},
	} {
		requireContains(t, show(t, demo.Config{Reader: taking(0), Queue: func(context.Context) (queue.Stats, error) { return stats, nil }}).Body.String(), want)
	}
	away := func(context.Context) (queue.Stats, error) { return queue.Stats{}, mysql.ErrUnavailable }
	requireContains(t, show(t, demo.Config{Reader: taking(0), Queue: away}).Body.String(), "cannot be asked now")
	for want, counts := range map[string][2]int{
		`<dd id="audit">0 wrong of 0</dd>`:                                            {0, 0},
		"<dd id=\"audit\">0 wrong of 12,345 (0\u00a0%)</dd>":                          {0, 12_345},
		"<dd id=\"audit\" class=\"wrong\">3 wrong of 2,000 (0.15\u00a0%)</dd>":        {3, 2000},
		"<dd id=\"audit\" class=\"wrong\">1 wrong of 2,000,000 (0.00005\u00a0%)</dd>": {1, 2_000_000},
	} {
		requireContains(t, show(t, demo.Config{Reader: taking(0), Audit: func() (int, int) { return counts[0], counts[1] }}).Body.String(), want)
	}
}

func TestRedisIsTurnedOffAndOn(t *testing.T) {
	t.Parallel()
	s := startService(t)
	servertest.Eventually(t, "the index answers", func() bool { return strings.Contains(s.widget(t, 1), `badge index`) })
	requireContains(t, s.widget(t, 1), "Turn Redis off")
	s.pressed(t, "switch", "viewer=1&server=Redis&do=off")
	requireContains(t, s.widget(t, 1), "activityd walked through the tables this time: Redis is away.", "same answer", "Turn Redis on again", "Redis was ended by force")
	if w := press(t, s.demo.Handler(), "wipe", "viewer=1"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("wipe without Redis = %d %s", w.Code, w.Body)
	}
	s.pressed(t, "switch", "viewer=1&server=Redis&do=on")
	servertest.Eventually(t, "the index answers again", func() bool {
		body := s.widget(t, 1)
		return strings.Contains(body, `badge index`) && strings.Contains(body, "Turn Redis off") && strings.Contains(body, "Redis was started again")
	})
}

func TestServerThatIsStarting(t *testing.T) {
	t.Parallel()
	begun, end, ends := make(chan struct{}), make(chan error), 0
	var logged bytes.Buffer
	d := demo.New(demo.Config{
		World: smallWorld(), Site: &journal{err: mysql.ErrUnavailable}, Rate: 2, Plain: plainly(contacts.Album{}, nil),
		Log: slog.New(slog.NewTextHandler(&logged, nil)),
		Reader: reads(func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
			return recent.Answer{}, mysql.ErrUnavailable
		}),
		Switches: []demo.Switch{{
			Name: "MySQL", Off: func() error { ends++; return nil },
			On: func(context.Context) error {
				begun <- struct{}{}
				return <-end
			},
		}},
	})
	shows := func(wants ...string) {
		t.Helper()
		w := get(t, d.Handler(), "/demo/widget?viewer=1")
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d", w.Code)
		}
		requireContains(t, w.Body.String(), append(wants, "It alone decides what you may see", "answers 503", `id="work-title"`)...)
	}
	presses := func(do string, status int) {
		t.Helper()
		if w := press(t, d.Handler(), "switch", "viewer=1&server=MySQL&do="+do); w.Code != status {
			t.Errorf("%s = %d %s, want %d", do, w.Code, w.Body, status)
		}
	}
	presses("off", 200)
	presses("off", 200) // does not end it twice
	shows("Turn MySQL on again")
	presses("on", 200)
	<-begun
	shows("MySQL is starting …")
	presses("on", 200) // does not start it twice
	presses("off", 409)
	end <- errors.New("no room")
	servertest.Eventually(t, "it is off", func() bool {
		return strings.Contains(get(t, d.Handler(), "/demo/widget?viewer=1").Body.String(), "Turn MySQL on again")
	})
	shows("MySQL did not start")
	presses("on", 200)
	<-begun
	end <- nil
	servertest.Eventually(t, "it is on", func() bool {
		return strings.Contains(get(t, d.Handler(), "/demo/widget?viewer=1").Body.String(), "Turn MySQL off")
	})
	for form, status := range map[string]int{"server=MySQL&do=explode": 400, "server=Oracle&do=off": 404, "do=off": 404} {
		if w := press(t, d.Handler(), "switch", "viewer=1&"+form); w.Code != status {
			t.Errorf("%s = %d %s, want %d", form, w.Code, w.Body, status)
		}
	}
	if w := press(t, d.Handler(), "upload", "viewer=1&owner=other"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("upload = %d %s", w.Code, w.Body)
	}
	if n := strings.Count(logged.String(), "level="); n != 1 || !strings.Contains(logged.String(), "no room") || ends != 1 {
		t.Errorf("%d ends, and the log is:\n%s", ends, &logged)
	}
}

// A visitor who leaves, or whose page asks again, is no error.
func TestCancelledRequestIsNotLogged(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	var logged bytes.Buffer
	cfg := demo.Config{
		World: smallWorld(), Site: &journal{err: context.Canceled}, Rate: 2, Log: slog.New(slog.NewTextHandler(&logged, nil)),
		Reader: reads(func(ctx context.Context, _ contacts.Viewer, _ int) (recent.Answer, error) {
			leave()
			return recent.Answer{Album: albumOf(1)}, ctx.Err()
		}),
		Plain: []site.Plain{{Ask: func(ctx context.Context, _ contacts.Viewer, _ int) (contacts.Album, error) {
			return contacts.Album{}, ctx.Err()
		}}},
	}
	for _, path := range []string{"/", "/demo/widget?viewer=1"} {
		demo.New(cfg).Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody))
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/demo/actions/upload", strings.NewReader("viewer=1&owner=other"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	demo.New(cfg).Handler().ServeHTTP(httptest.NewRecorder(), r)
	if logged.Len() > 0 {
		t.Errorf("the log is:\n%s", &logged)
	}
}

func TestHomepageSignsIn(t *testing.T) {
	t.Parallel()
	s := startService(t)
	var asked []member.ID
	s.config.Token = func(id member.ID) (string, error) {
		asked = append(asked, id)
		return "of " + id.String(), nil
	}
	h := demo.New(s.config).Handler()
	w := get(t, h, "/demo/home?viewer=3")
	requireContains(t, w.Body.String(), "Welcome back, "+s.config.World.Username(3), "\n<recent-contact-photos src=", "&lt;recent-contact-photos src=")
	cookies := w.Result().Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("cookies %v", cookies)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/demo/token", http.NoBody)
	r.AddCookie(cookies[0])
	got := httptest.NewRecorder()
	h.ServeHTTP(got, r)
	if got.Code != http.StatusOK || strings.TrimSpace(got.Body.String()) != `{"token":"of 3"}` || got.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("token = %d %s %v", got.Code, got.Body, got.Header())
	}
	requireContains(t, get(t, h, "/demo/token").Body.String(), `"of 1"`) // the first of the featured
}

// The homepage's form leaves the browser where it is.
func TestPressThatStays(t *testing.T) {
	t.Parallel()
	s := startService(t)
	if w := press(t, s.demo.Handler(), "upload", "viewer=1&owner=other&stay=yes", "X-Requested-With", ""); w.Code != http.StatusNoContent {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
}
