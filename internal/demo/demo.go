// Package demo shows activityd at work on a made-up photo site: a page with the
// homepage widget of any viewer, which updates while it is open, and beside it the same
// question asked as a site without activityd would ask it.
//
// The package brings the page, the pictures and the traffic: a few uploads and changes of
// contacts, visibility and blocks each second. The site, the read and the index are those of
// the program, handed in by [Config]; package world makes up the data.
//
// With [Push], beside the widget are a phone and a browser of the viewer, which show what is
// sent of the visitor's uploads, and what became of each: see [Receivers].
//
// The page is rendered on the server and works without JavaScript. With it, the page
// fetches its live parts every second and replaces what differs.
package demo

import (
	"context"
	"html/template"
	"log/slog"
	"sync/atomic"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/site"
)

// Reader answers the widget's question, as the API does.
type Reader interface {
	// Read returns the viewer's answer with at most limit photos. It fails with
	// [contacts.ErrNoMember] for a viewer that does not exist.
	Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

// Plain answers the same question as a site without an index does. See [PlainSQL].
type Plain func(ctx context.Context, v contacts.Viewer, limit int) (contacts.Album, error)

// Config is what a [Demo] is made of. All but Push is required.
type Config struct {
	World     *world.World // as it was loaded into the site
	Site      site.Changer // its tasks must reach the index
	Reader    Reader
	Plain     Plain
	PlainName string                      // of Plain, such as "plain SQL"
	Engine    string                      // what runs underneath, for the page's foot
	Wipe      func(context.Context) error // empties Redis
	Push      *Push                       // nil: it needs the real servers, and the page says so
	Rate      float64                     // of the traffic, in changes a second
	Seed      uint64                      // of the traffic
	Log       *slog.Logger
}

// photosShown is how many photos the widget has room for.
const photosShown = 10

// Demo is the demo's page and traffic. All its methods are safe for concurrent
// use; [Demo.Run] is to be called once.
type Demo struct {
	cfg       Config
	memory    *memory
	templates *template.Template
	receivers receivers
	paused    atomic.Bool
	lastPhoto atomic.Uint64
}

// New returns a Demo that is ready to serve. Its traffic starts with [Demo.Run].
func New(cfg Config) *Demo {
	d := &Demo{
		cfg:       cfg,
		memory:    newMemory(cfg.World),
		templates: template.Must(template.ParseFS(assets, "assets/*.html")),
	}
	d.lastPhoto.Store(uint64(len(cfg.World.Photos)))
	return d
}
