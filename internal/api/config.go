package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/recent"
)

// Reader finds the photos that a viewer is shown, at most limit of them. It
// returns [contacts.ErrNoMember] for a viewer who does not exist,
// [recent.ErrBusy] or [mysql.ErrUnavailable] when asking again later may
// help. It must be safe for concurrent use and return soon after ctx ends.
type Reader interface {
	Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

// Enqueuer stores a batch of tasks in one transaction, whole or not at all, and
// returns after the commit. The ids are in the order of the batch. It must be
// safe for concurrent use and return soon after ctx ends.
type Enqueuer interface {
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
	// EnqueueOnce is Enqueue under a key: a batch that was enqueued under it
	// before is not enqueued again, and gets its ids of then; another batch
	// fails with [queue.ErrKeyReused].
	EnqueueOnce(ctx context.Context, key string, batch []queue.New) (ids []uint64, replayed bool, err error)
}

// Checker asks the servers that activityd stands on how they are. It must be
// safe for concurrent use and return soon after ctx ends.
type Checker func(ctx context.Context) Health

// Health is what a [Checker] found.
type Health struct {
	MySQL Component // without it nothing can be served
	Redis Component // without it, reads are served from the database
}

// Component is the state of one server.
type Component struct {
	Usable bool
	// Detail says for people what is wrong and what to do about it. It is shown
	// to whoever asks, so it holds no addresses and no secrets.
	Detail string
}

// The defaults of [Config].
const (
	DefaultMaxBody        = 1 << 20
	DefaultMaxHeader      = 16 << 10
	DefaultMaxBatch       = 1000
	DefaultRequestTimeout = 5 * time.Second
	DefaultReadTimeout    = 5 * time.Second
	DefaultIdleTimeout    = time.Minute
	DefaultCheckTimeout   = time.Second
)

// writeGrace is how long a response may take to be sent after the request's
// time is up, so that even the answer to a slow request arrives.
const writeGrace = 5 * time.Second

// Config says what a [Server] serves and within which limits. Reader, Enqueuer
// and Checker are required; every zero value of the rest means its default.
type Config struct {
	Reader   Reader
	Enqueuer Enqueuer
	Checker  Checker
	Logger   *slog.Logger // default: slog.Default()

	// Access decides who may do what. Default: everybody may do everything, but is
	// no operator; the address must be one that only this machine can reach then,
	// and what needs a scope is answered only for Hosts that the server knows: see
	// [httpserver.Server.Knows].
	Access Access
	// TLS, if set, makes Serve speak TLS, and HTTP/2 with those who like it. It
	// must have a certificate.
	TLS *tls.Config

	// Overloaded tells whether no more tasks are to be taken now, and after which
	// time to ask again. It is called with every request that brings tasks, must
	// not wait, and must be safe for concurrent use. Default: never.
	Overloaded func() (retryAfter time.Duration, overloaded bool)

	MaxBody   int64 // bytes of a request's body
	MaxHeader int   // bytes of a request's header, to which net/http adds 4 KiB
	MaxBatch  int   // tasks in one request
	// MaxConnections is how many connections may be open at once. Default: see
	// [httpserver.Options].
	MaxConnections int

	RequestTimeout time.Duration // from the end of the header to the answer, as a context
	ReadTimeout    time.Duration // for reading the header, and for header and body together
	IdleTimeout    time.Duration // of a connection between two requests
	CheckTimeout   time.Duration // for the Checker
}

// withDefaults panics when a required part is missing: that is a mistake in the
// program, better met at start than by the first request.
func (c Config) withDefaults() Config {
	if c.Reader == nil || c.Enqueuer == nil || c.Checker == nil {
		panic("api: Config needs a Reader, an Enqueuer and a Checker")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Overloaded == nil {
		c.Overloaded = func() (time.Duration, bool) { return 0, false }
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxHeader = cmp.Or(c.MaxHeader, DefaultMaxHeader)
	c.MaxBatch = cmp.Or(c.MaxBatch, DefaultMaxBatch)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, DefaultRequestTimeout)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, DefaultReadTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.CheckTimeout = cmp.Or(c.CheckTimeout, DefaultCheckTimeout)
	return c
}
