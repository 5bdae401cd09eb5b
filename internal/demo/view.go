package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/site"
)

// pageView is the input of the templates, ready to print.
type pageView struct {
	Viewer     memberView
	Featured   []memberView
	Engine     string
	PlainName  string
	Problem    string // instead of an answer
	Alone      bool   // the viewer has no contacts
	SQL        bool   // there is a MySQL
	Off        bool   // it is turned off
	Console    bool
	Album      albumView
	Compare    compareView
	Candidates []candidateView
	SetKey     string
	WalkReason string
	Events     []eventView
	Phone      []noteView
}

type memberView struct {
	ID       member.ID
	Name     string
	Contacts string // their number, as in "1,200 contacts"
	Among    string // the same in a question; below two, "contacts"; "": there is no member with that id
	Quiet    bool   // the contacts were quiet when the demo began
	Ago      string // since the last upload
}

type albumView struct {
	Contact *memberView
	Photos  []photoView
	Key     string // the ids of the photos
}

type photoView struct {
	ID         uint64
	Title, Ago string
}

type compareView struct {
	Source                recent.Source
	Took, Plain           string // medians
	TookWidth, PlainWidth int    // of the bars, 1 to 100
	Agree                 bool
	PlainProblem          string // instead of the plain times
	Ways                  string // the plain ways, with their medians; "": there is a single way
	Slow                  bool   // all of them take several times as long as activityd
}

type candidateView struct {
	Contact     memberView
	Score       uint64
	Newest      string
	Verdict     recent.Verdict
	VerdictMark string // for the style sheet
}

type eventView struct {
	Ago, Kind, Text string
	Close           bool // it concerns a member on the page
	You             bool
}

type noteView struct {
	Key, Title, Body, Ago string
}

// view asks all ways and makes the whole view. The status is that of HTTP.
func (d *Demo) view(ctx context.Context, viewer member.ID) (view pageView, status int) {
	d.town.watch(viewer)
	view = d.frame(viewer)
	c, err := d.compare(ctx, contacts.Viewer{ID: viewer})
	if err != nil {
		view.Problem, status = d.problem(ctx, viewer, err)
		return view, status
	}
	view.Album = d.albumView(c.answer)
	view.Compare = d.compareView(ctx, c)
	view.Candidates = d.candidateViews(c.answer.Trace.Candidates)
	view.WalkReason = walkedBecause(c.answer.Trace.WalkReason)
	view.Events = d.eventViews(viewer, c.answer.Trace.Candidates)
	return view, http.StatusOK
}

// frame makes the part of the page that does not depend on an answer.
func (d *Demo) frame(viewer member.ID) pageView {
	view := pageView{
		Viewer:    d.memberView(viewer),
		Alone:     d.town.contactCount(viewer) == 0,
		SQL:       d.cfg.MySQL != nil,
		Off:       d.off.Load(),
		Console:   d.cfg.Console != nil,
		Engine:    d.cfg.Engine,
		PlainName: d.cfg.PlainName,
		SetKey:    "user_" + viewer.String(),
		Events:    d.eventViews(viewer, nil),
	}
	for _, id := range d.cfg.World.Featured {
		view.Featured = append(view.Featured, d.memberView(id))
	}
	if d.cfg.Phones != nil {
		for _, n := range d.cfg.Phones.notesOf(viewer) {
			view.Phone = append(view.Phone, noteView{Key: n.collapse, Title: n.title, Body: n.body, Ago: ago(n.unix)})
		}
	}
	return view
}

// problem describes the error of a read to the visitor.
func (d *Demo) problem(ctx context.Context, viewer member.ID, err error) (text string, status int) {
	switch {
	case errors.Is(err, contacts.ErrNoMember):
		return fmt.Sprintf("There is no member %s. The made-up site has members 1 to %d.", viewer, len(d.cfg.World.Members)), http.StatusNotFound
	case errors.Is(err, recent.ErrBusy):
		return "The database is busy. The page tries again.", http.StatusServiceUnavailable
	case errors.Is(err, mysql.ErrUnavailable):
		return "MySQL is away. It alone decides what you may see, so activityd answers 503 until it is back.", http.StatusServiceUnavailable
	case ctx.Err() != nil: // the visitor has gone, or asked again
		return "The request was cancelled, or took too long.", http.StatusServiceUnavailable
	default:
		d.cfg.Log.ErrorContext(ctx, "read failed", "viewer", viewer.String(), "error", err)
		return "The read failed; the log says why. The page tries again.", http.StatusInternalServerError
	}
}

// comparison is the same question asked both ways.
type comparison struct {
	answer     recent.Answer
	took       time.Duration
	usual      time.Duration   // the median of the viewer's latest comparisons
	plainUsual []time.Duration // likewise, of each plain way
	agree      bool            // of all ways
	plainErr   error           // with it, only answer and took are valid
}

// compare asks all ways. A change between two of them is no difference: if they differ, the
// answer is read once more.
func (d *Demo) compare(ctx context.Context, v contacts.Viewer) (c comparison, err error) {
	if c.answer, c.took, err = d.read(ctx, v); err != nil {
		return c, err
	}
	c.agree = true
	var plainTook []time.Duration
	for _, way := range d.cfg.Plain {
		plain, took, err := askPlain(ctx, way, v)
		if err != nil {
			c.plainErr = err
			return c, nil //nolint:nilerr // the page shows the answer, and why there is no comparison
		}
		plainTook = append(plainTook, took)
		if !c.answer.IsSame(plain) {
			if c.answer, c.took, err = d.read(ctx, v); err != nil {
				return c, err
			}
		}
		c.agree = c.agree && c.answer.IsSame(plain)
	}
	c.usual, c.plainUsual = d.town.addTimes(v.ID, c.answer.Source, c.took, plainTook)
	return c, nil
}

func (d *Demo) read(ctx context.Context, v contacts.Viewer) (recent.Answer, time.Duration, error) {
	start := time.Now()
	answer, err := d.cfg.Reader.Read(ctx, v, photosShown)
	return answer, time.Since(start), err
}

var errPlainTimeout = errors.New("no answer within 3 s")

// askPlain fails with errPlainTimeout if there is no answer in time.
func askPlain(ctx context.Context, way site.Plain, v contacts.Viewer) (contacts.Album, time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Second, errPlainTimeout)
	defer cancel()
	start := time.Now()
	album, err := way.Ask(ctx, v, photosShown)
	if err != nil && errors.Is(context.Cause(ctx), errPlainTimeout) {
		err = errPlainTimeout
	}
	return album, time.Since(start), err
}

func (d *Demo) memberView(id member.ID) memberView {
	view := memberView{ID: id, Name: d.town.name(id), Among: "contacts"}
	switch n := d.town.contactCount(id); n {
	case 0:
		view.Contacts = "no contacts"
		if d.cfg.World.Username(id) == "" {
			view.Among = ""
		}
	case 1:
		view.Contacts = "1 contact"
	default:
		view.Contacts = thousands(n) + " contacts"
		view.Among, view.Quiet = view.Contacts, d.cfg.World.IsQuiet(id)
	}
	return view
}

func (d *Demo) albumView(a recent.Answer) albumView {
	var view albumView
	if a.Contact == nil || len(a.Photos) == 0 {
		return view
	}
	view.Contact = &memberView{ID: a.Contact.ID, Name: a.Contact.Username, Ago: ago(a.Photos[0].DateUpload)}
	for _, p := range a.Photos {
		view.Photos = append(view.Photos, photoView{ID: p.ID, Title: p.Title, Ago: ago(p.DateUpload)})
		view.Key += fmt.Sprintf("%d ", p.ID)
	}
	return view
}

func (d *Demo) compareView(ctx context.Context, c comparison) compareView {
	view := compareView{Source: c.answer.Source, Took: milliseconds(c.took), Agree: c.agree}
	switch {
	case errors.Is(c.plainErr, errPlainTimeout):
		view.PlainProblem = c.plainErr.Error()
		return view
	case c.plainErr != nil:
		if ctx.Err() == nil && !d.off.Load() {
			d.cfg.Log.WarnContext(ctx, "plain query failed", "error", c.plainErr)
		}
		view.PlainProblem = "failed"
		return view
	}
	quickest := slices.Min(c.plainUsual)
	view.Took, view.Plain = milliseconds(c.usual), milliseconds(quickest)
	longer := max(c.usual, quickest, 1)
	view.TookWidth = max(1, int(100*c.usual/longer))
	view.PlainWidth = max(1, int(100*quickest/longer))
	view.Slow = quickest > 3*c.usual
	if len(d.cfg.Plain) > 1 {
		var ways []string
		for i, way := range d.cfg.Plain {
			ways = append(ways, way.Name+" "+milliseconds(c.plainUsual[i]))
		}
		view.Ways = strings.Join(ways, ", ")
	}
	return view
}

func (d *Demo) candidateViews(all []recent.Candidate) []candidateView {
	marks := map[recent.Verdict]string{
		recent.Chosen: "chosen", recent.NotLooked: "idle", recent.Older: "idle",
		recent.Nothing: "hidden", recent.NotContact: "hidden",
	}
	var views []candidateView
	for _, c := range all {
		contact := memberView{ID: c.Contact, Name: d.town.name(c.Contact), Ago: ago(c.Score)}
		view := candidateView{Contact: contact, Score: c.Score, Verdict: c.Verdict, VerdictMark: marks[c.Verdict]}
		if c.Newest.ID > 0 {
			view.Newest = ago(c.Newest.DateUpload)
		}
		views = append(views, view)
	}
	return views
}

func (d *Demo) eventViews(viewer member.ID, candidates []recent.Candidate) []eventView {
	onPage := map[member.ID]bool{viewer: true}
	for _, c := range candidates {
		onPage[c.Contact] = true
	}
	var views []eventView
	for _, e := range d.town.latestEvents() {
		views = append(views, eventView{Ago: ago(e.unix), Kind: e.kind, Text: e.text, You: e.you, Close: e.you || onPage[e.member]})
	}
	return views
}

// ago returns the age of a time in unix seconds, in a single unit.
func ago(unix uint64) string {
	const day = 24 * time.Hour
	switch d := time.Since(time.Unix(int64(unix), 0)); {
	case d < 2*time.Second:
		return "just now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	default:
		return fmt.Sprintf("%d days ago", d/day)
	}
}

// milliseconds formats a duration with about two significant digits, from a second on in
// seconds.
func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 1:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
}

// thousands formats a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// walkedBecause says why an answer needed a walk, for people; "": it did not.
func walkedBecause(reason recent.Reason) string {
	switch reason {
	case "":
		return ""
	case recent.RedisUnavailable:
		return "Redis is away"
	case recent.SetMissing:
		return "the set was missing"
	case recent.SetUnknown:
		return "the set may be old"
	case recent.WritesRefused:
		return "Redis is not ready yet"
	default:
		return strings.ReplaceAll(string(reason), "_", " ")
	}
}
