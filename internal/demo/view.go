package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
)

// pageView is what the templates are given. Everything in it is ready to print.
type pageView struct {
	Viewer     memberView
	Featured   []memberView
	Engine     string
	PlainName  string
	Problem    string // instead of an answer, in words
	Paused     bool
	CanWipe    bool
	Alone      bool // the viewer has no contacts
	Album      albumView
	Compare    compareView
	Candidates []candidateView
	SetKey     string
	WalkReason string
	Events     []eventView
}

type memberView struct {
	ID       member.ID
	Name     string
	Contacts string // how many, as in "1,200 contacts"
	Ago      string // since the last upload
}

type albumView struct {
	Contact *memberView
	Photos  []photoView
	Key     string // changes when what is shown changes
}

type photoView struct {
	ID         uint64
	Title, Ago string
}

type compareView struct {
	Source                recent.Source
	Took, Plain           string
	Usual, PlainUsual     string
	TookWidth, PlainWidth int // of a bar, 1 to 100
	Factor                string
	FactorSlower          bool // the factor is how many times as long it took
	Agree                 bool
	PlainProblem          string // instead of the plain time
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
	Close           bool // it concerns somebody on the page
	You             bool
}

// look asks both ways and makes everything of the page but its frame. The
// status is that of HTTP.
func (d *Demo) look(ctx context.Context, viewer member.ID) (view pageView, status int) {
	d.watchers.saw(viewer)
	view = d.frame(viewer)
	c, err := d.compare(ctx, contacts.Viewer{ID: viewer})
	if err != nil {
		view.Events = d.eventViews(viewer, nil)
		view.Problem, status = d.problem(ctx, viewer, err)
		return view, status
	}
	view.Album = d.albumView(c.answer)
	view.Compare = d.compareView(ctx, c)
	view.Candidates = d.candidateViews(c.answer.Trace.Candidates)
	view.WalkReason = c.answer.Trace.WalkReason
	view.Events = d.eventViews(viewer, c.answer.Trace.Candidates)
	return view, http.StatusOK
}

// frame makes what does not depend on an answer.
func (d *Demo) frame(viewer member.ID) pageView {
	view := pageView{
		Viewer:    d.memberView(viewer),
		Alone:     d.roster.count(viewer) == 0,
		Engine:    d.cfg.Engine,
		PlainName: d.cfg.PlainName,
		Paused:    d.paused.Load(),
		CanWipe:   d.cfg.Wipe != nil,
		SetKey:    "user_" + viewer.String(),
	}
	for _, id := range d.cfg.World.Featured {
		view.Featured = append(view.Featured, d.memberView(id))
	}
	return view
}

// problem puts an error into words for the page.
func (d *Demo) problem(ctx context.Context, viewer member.ID, err error) (text string, status int) {
	switch {
	case errors.Is(err, contacts.ErrNoMember):
		return fmt.Sprintf("There is no member %s. The made-up site has members 1 to %d.", viewer, len(d.cfg.World.Members)), http.StatusNotFound
	case errors.Is(err, recent.ErrBusy), errors.Is(err, mysql.ErrUnavailable):
		return "The database is busy or away. The page tries again.", http.StatusServiceUnavailable
	default:
		d.cfg.Log.ErrorContext(ctx, "demo: the read failed", "viewer", viewer.String(), "error", err)
		return "The read failed; the log says why. The page tries again.", http.StatusInternalServerError
	}
}

func (d *Demo) memberView(id member.ID) memberView {
	view := memberView{ID: id, Name: d.roster.name(id)}
	switch n := d.roster.count(id); n {
	case 0:
		view.Contacts = "no contacts"
	case 1:
		view.Contacts = "1 contact"
	default:
		view.Contacts = thousands(n) + " contacts"
	}
	return view
}

func (d *Demo) albumView(a recent.Answer) albumView {
	var view albumView
	if a.Contact == nil || len(a.Photos) == 0 {
		return view
	}
	view.Contact = &memberView{ID: a.Contact.ID, Name: a.Contact.Username}
	if view.Contact.Name == "" {
		view.Contact.Name = d.roster.name(a.Contact.ID)
	}
	for _, p := range a.Photos {
		view.Photos = append(view.Photos, photoView{ID: p.ID, Title: p.Title, Ago: d.ago(p.DateUpload)})
		view.Key += fmt.Sprintf("%d ", p.ID)
	}
	view.Contact.Ago = d.ago(a.Photos[0].DateUpload)
	return view
}

func (d *Demo) compareView(ctx context.Context, c comparison) compareView {
	view := compareView{Source: c.answer.Source, Took: milliseconds(c.took), Plain: milliseconds(c.plainTook), Agree: c.agree}
	switch {
	case errors.Is(c.plainErr, errPlainSlow):
		view.PlainProblem = c.plainErr.Error()
		return view
	case c.plainErr != nil:
		d.cfg.Log.WarnContext(ctx, "demo: the plain question failed", "error", c.plainErr)
		view.PlainProblem = "failed; the log says why"
		return view
	}
	view.Usual, view.PlainUsual = milliseconds(c.usual), milliseconds(c.plainUsual)
	longer := max(c.usual, c.plainUsual, 1)
	view.TookWidth = max(1, int(100*c.usual/longer))
	view.PlainWidth = max(1, int(100*c.plainUsual/longer))
	if longer >= time.Millisecond { // below it, a factor would boast of noise
		view.Factor, view.FactorSlower = factor(c.usual, c.plainUsual)
	}
	return view
}

func (d *Demo) candidateViews(all []recent.Examined) []candidateView {
	marks := map[recent.Verdict]string{
		recent.Chosen: "chosen", recent.NotLooked: "idle", recent.Older: "idle",
		recent.Nothing: "hidden", recent.NotContact: "hidden",
	}
	var views []candidateView
	for _, c := range all {
		who := memberView{ID: c.Contact, Name: d.roster.name(c.Contact), Ago: d.ago(c.Score)}
		view := candidateView{Contact: who, Score: c.Score, Verdict: c.Verdict, VerdictMark: marks[c.Verdict]}
		if c.Newest > 0 {
			view.Newest = d.ago(c.Newest)
		}
		views = append(views, view)
	}
	return views
}

func (d *Demo) eventViews(viewer member.ID, candidates []recent.Examined) []eventView {
	onPage := map[member.ID]bool{viewer: true}
	for _, c := range candidates {
		onPage[c.Contact] = true
	}
	now := d.cfg.Now()
	var views []eventView
	for _, e := range d.events.latest() {
		views = append(views, eventView{Ago: duration(now.Sub(e.At)), Kind: e.Kind, Text: e.Text, You: e.You, Close: e.You || onPage[e.Who]})
	}
	return views
}

// ago says how long ago a time in unix seconds is.
func (d *Demo) ago(unix uint64) string {
	return duration(d.cfg.Now().Sub(time.Unix(int64(unix), 0)))
}
