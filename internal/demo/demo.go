package demo

import (
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/site"
)

// Reader answers the widget's question, as the API does.
type Reader interface {
	// Read returns the answer for the viewer with at most limit photos. It
	// fails with [contacts.ErrNoMember] for a viewer who does not exist.
	Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

// Plain answers the same question as a site does that has no index. See
// [PlainSQL].
type Plain func(ctx context.Context, v contacts.Viewer, limit int) (contacts.Album, error)

// Site is the made-up photo site that the traffic changes. Changes reach the
// index in the site's own way, by the tasks that it emits.
type Site interface {
	SetContact(ctx context.Context, user, contact member.ID, grant site.Grant) error
	RemoveContact(ctx context.Context, user, contact member.ID) error
	Block(ctx context.Context, user, blocked member.ID) error
	Unblock(ctx context.Context, user, blocked member.ID) error
	Upload(ctx context.Context, p site.Photo) (uint64, error)
	SetVisibility(ctx context.Context, photo uint64, v contacts.Visibility) error
}

// Config is what a [Demo] is made of. All is required.
type Config struct {
	World  *world.World // as it was loaded into the site
	Site   Site
	Reader Reader
	Plain  Plain
	// PlainName names the other way to ask: "plain SQL" or, say, "a plain walk".
	PlainName string
	// Engine says in a few words what runs underneath, for the page's foot.
	Engine string
	// Wipe empties Redis.
	Wipe func(context.Context) error
	// Rate is the number of changes a second that the traffic makes.
	Rate float64
	// Seed makes the traffic repeatable.
	Seed uint64
	Log  *slog.Logger
}

// photosShown is how many photos the widget has room for.
const photosShown = 10

// Demo is the demo's page and traffic. All its methods are safe for concurrent
// use; [Demo.Run] is to be called once.
type Demo struct {
	cfg       Config
	memory    *memory
	templates *template.Template
	paused    atomic.Bool
	lastPhoto atomic.Uint64
	handler   http.Handler
}

// New returns a Demo that is ready to serve. Its traffic starts with [Demo.Run].
func New(cfg Config) *Demo {
	d := &Demo{
		cfg:       cfg,
		memory:    newMemory(cfg.World),
		templates: template.Must(template.ParseFS(assets, "assets/*.html")),
	}
	d.lastPhoto.Store(uint64(len(cfg.World.Photos)))
	d.handler = d.routes()
	return d
}

// Handler serves the page at / and everything that belongs to it under /demo/.
func (d *Demo) Handler() http.Handler { return d.handler }
