package api

import (
	"cmp"
	"context"
	"crypto/tls"
	_ "embed" // for openAPIDocument
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// Reader finds the photos that a viewer is shown, at most limit of them. It
// returns [contacts.ErrNoMember] for a viewer that does not exist,
// [recent.ErrBusy] or [mysql.ErrUnavailable] when asking again later may
// help. It must be safe for concurrent use and return soon after ctx ends.
type Reader interface {
	Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
	// Explain is Read with the facts for operators.
	Explain(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

// Enqueuer stores a batch of tasks in a transaction, whole or not at all, and
// returns after the commit. The ids are in the order of the batch. It must be
// safe for concurrent use and return soon after ctx ends.
type Enqueuer interface {
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
	// EnqueueOnce is Enqueue under a key: a batch that was enqueued under it
	// before is not enqueued again, and gets its ids of then; another batch
	// fails with [queue.ErrKeyReused].
	EnqueueOnce(ctx context.Context, key string, batch []queue.New) (ids []uint64, replayed bool, err error)
}

// Health is whether MySQL and Redis can be used.
type Health struct {
	MySQL Component // without it, no read is answered
	Redis Component // without it, reads are served from the database
}

// Component is the state of a server, or of several that share the data.
type Component struct {
	Usable bool // or a part of it
	// Detail is the fault and the remedy, also of a usable server. It is
	// public, so it holds no addresses and no secrets.
	Detail string
	// Away is the share of the data that cannot be used, 0 to 1, where a part can.
	Away float64
	// Nodes are the servers that cannot be used, where some can. Only operators see them.
	Nodes []Node
}

// Node is a server that cannot be used, of several.
type Node struct {
	Address string
	Detail  string // why
}

// The defaults of [Config].
const (
	DefaultMaxBody        = 1 << 20
	DefaultMaxBatch       = 1000
	DefaultRequestTimeout = 5 * time.Second
	DefaultReadTimeout    = 5 * time.Second
	DefaultIdleTimeout    = 2 * time.Minute // longer than common load balancers', so that they close first
)

// Limits that are no settings.
const (
	MaxHeader  = 16 << 10        // bytes of a request's header, and net/http adds 4 KiB
	writeGrace = 5 * time.Second // for sending a response after the request's deadline
)

// Config says what a [Server] serves and its limits. Reader, Enqueuer
// and Health are required; every zero value of the rest means its default.
type Config struct {
	Reader   Reader
	Enqueuer Enqueuer
	Health   func() Health // must not wait, and must be safe for concurrent use
	Logger   *slog.Logger  // default: slog.Default()

	// Push keeps devices, settings and mutes. Without it, as where there is no MySQL, the
	// answer to requests about push is that push is off.
	Push Push
	// Platforms and CheckAddress are required with Push.
	Platforms    []push.Kind
	CheckAddress AddressChecker

	// Leaser leases tasks to workers that ask by HTTP. Without it, there is nothing below /v1/queues.
	Leaser Leaser
	// OwnQueues are the queues that activityd works on itself, and leases to nobody.
	OwnQueues []string
	// Notifier tells claims that wait that a queue has tasks. Default: they look once a second.
	Notifier *notify.Notifier

	// Refuses reports whether Reader would refuse a read now; the tokens of viewers are not verified then. Default: never.
	Refuses func() bool

	// Auth authorizes requests. Without it every request is allowed: the address must be
	// an address that only this machine can reach, and requests that need a scope are answered only for
	// Hosts that the server knows, see [httpserver.Server.Knows].
	Auth Authorizer
	// Viewers know the tokens of viewers. Without them, there is nothing below /v1/me.
	Viewers Viewers
	// AllowOrigins are the origins of the pages that may ask below /v1/me, as [CheckOrigin]
	// wants them.
	AllowOrigins []string
	// TLS, if set, must have a certificate; Serve then uses TLS and HTTP/2.
	TLS *tls.Config

	// Overloaded reports whether n more tasks, or for 0 a single task, would be too many, as [health.Load.Overloaded]
	// does; if not, they are enqueued. It must not wait, and must be safe for concurrent use. Default: never.
	Overloaded func(n int) bool

	// Behind returns how far behind the sets may be, nil if that is not known, as [health.Load.Behind]
	// does. Operators see it with each answer by the index and in /readyz. It must not wait, and must be
	// safe for concurrent use. Default: it is not known.
	Behind func() *Behind

	MaxBody  int64 // bytes of a request's body
	MaxBatch int   // tasks in a request

	RequestTimeout time.Duration // from the end of the header to the answer, as a context
	ReadTimeout    time.Duration // for reading the header, and for header and body together
	IdleTimeout    time.Duration // of a connection between two requests
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Overloaded == nil {
		c.Overloaded = func(int) bool { return false }
	}
	if c.Behind == nil {
		c.Behind = func() *Behind { return nil }
	}
	if c.Notifier == nil {
		c.Notifier = &notify.Notifier{}
	}
	if c.Refuses == nil {
		c.Refuses = func() bool { return false }
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxBatch = cmp.Or(c.MaxBatch, DefaultMaxBatch)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, DefaultRequestTimeout)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, DefaultReadTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	return c
}

// Server serves the API on an address. Call Listen, then Serve; Shutdown may be
// called from any goroutine once Listen has returned, and more than once.
type Server struct {
	*httpserver.Server

	cfg  Config
	echo *echo.Echo

	waiters waiters

	stopping, closing atomic.Bool
}

// Stopping has /readyz answer 503 from now on, so that load balancers send no more requests. All is served as before.
func (s *Server) Stopping() { s.stopping.Store(true) }

// CloseConnections has each connection close after its next response.
func (s *Server) CloseConnections() { s.closing.Store(true) }

// New builds a Server that does not listen yet. It panics when a required part
// of cfg is missing.
func New(cfg Config) *Server {
	if cfg.Reader == nil || cfg.Enqueuer == nil || cfg.Health == nil {
		panic("api: Config needs a Reader, an Enqueuer and a Health")
	}
	if cfg.Push != nil && (cfg.Platforms == nil || cfg.CheckAddress == nil) {
		panic("api: Config needs Platforms and a CheckAddress with Push")
	}
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, echo: echo.New()}
	s.echo.HideBanner = true
	s.echo.HidePort = true
	s.echo.HTTPErrorHandler = s.writeError
	s.echo.Use(s.observe)
	for _, r := range routes() {
		s.add(r)
	}
	server := &http.Server{
		Handler:           s.Handler(),
		MaxHeaderBytes:    MaxHeader,
		ReadHeaderTimeout: cfg.ReadTimeout,
		ReadTimeout:       cfg.ReadTimeout,
		WriteTimeout:      max(cfg.RequestTimeout, cfg.ReadTimeout) + writeGrace,
		IdleTimeout:       cfg.IdleTimeout,
		TLSConfig:         cfg.TLS,
	}
	stopping, stop := context.WithCancel(context.Background())
	s.waiters.notifier, s.waiters.stopping, s.waiters.turns = cfg.Notifier, stopping, make(map[string]*turn)
	server.RegisterOnShutdown(stop)
	s.Server = httpserver.New(server, httpserver.Options{Log: cfg.Logger, Open: connections, Refused: connectionsRefused})
	return s
}

//go:embed openapi.yaml
var openAPIDocument []byte

func (s *Server) openAPI(k *call) (any, error) {
	return nil, k.Blob(http.StatusOK, "application/yaml", openAPIDocument)
}
