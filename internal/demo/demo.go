// Package demo shows activityd at work on a made-up photo site: a page that asks the
// question of the widget for any viewer, and asks it once more in each way that a site without
// activityd would ask it. It says how long both took, shows the work behind it (the fan-outs, the
// queue, the audit), and has switches for the servers.
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
	"database/sql"
	"html/template"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// Reader answers the widget's question, as the API does.
type Reader interface {
	// Read returns the viewer's answer with at most limit photos. It fails with
	// [contacts.ErrNoMember] for a viewer that does not exist.
	Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

// Config is what a [Demo] is made of.
type Config struct {
	World     *world.World // as it was loaded into the site
	Site      site.Changer // its tasks must reach the index
	Reader    Reader
	Plain     []site.Plain                // all are asked; the quickest for a viewer is compared
	PlainName string                      // of all of Plain, which begins a sentence, such as "Plain SQL"
	Engine    string                      // what runs underneath, for the page's foot
	Wipe      func(context.Context) error // empties Redis
	Rate      float64                     // of the traffic, in changes a second
	Seed      uint64                      // of the traffic
	Log       *slog.Logger

	// All below may be nil; the page says, or leaves out, what there is not.
	DB      *sql.DB // runs Plain and the statements of Reader; nil: tables in memory do
	Push    *Push   // it needs the real servers
	FanOuts *FanOuts
	Queue   func(context.Context) (queue.Stats, error)
	// Audit returns how many sets and answers the audit looked at, and how many were wrong.
	Audit    func() (wrong, looked int)
	Switches []Switch
	// Broadcast makes a member a broadcast member, or has it cease to be one; State says what it is.
	Broadcast func(ctx context.Context, id member.ID, joins bool) error
	State     func(ctx context.Context, id member.ID) (contacts.BroadcastState, error)
	// Token signs a viewer token for the widget of the homepage.
	Token func(member.ID) (string, error)
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
	switches  []*switched
	starting  sync.WaitGroup // of servers
}

// New returns a Demo that is ready to serve. Its traffic starts with [Demo.Run].
func New(cfg Config) *Demo {
	d := &Demo{
		cfg:       cfg,
		memory:    newMemory(cfg.World),
		templates: template.Must(template.ParseFS(assets, "assets/*.html")),
	}
	d.lastPhoto.Store(uint64(len(cfg.World.Photos)))
	for _, s := range cfg.Switches {
		d.switches = append(d.switches, &switched{Switch: s})
	}
	return d
}
