package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/settings"
)

// apiConfig is the part about the listeners and the clients that may ask.
type apiConfig struct {
	listen        string
	metricsListen string
	tokenFile     string
	tlsCert       string
}

// maxWaiting is the number of waiting tasks beyond which POST /v1/tasks is answered 429. It is far above any backlog that workers
// catch up with, and only keeps the table from growing without end.
const maxWaiting = 1_000_000

func (c *apiConfig) apiFlags(f *pflag.FlagSet) {
	f.StringVar(&c.listen, "listen", "127.0.0.1:8080", "`address` for HTTP, or HTTPS; without tokens it must be one of this machine alone")
	f.StringVar(&c.metricsListen, "metrics-listen", "127.0.0.1:9464",
		"`address` for metrics, probes, the console and, on this machine alone, profiles, in every role; empty for none; metrics need no token, so keep it off public networks")
	f.StringVar(&c.tokenFile, "token-file", "", "`file` of the tokens that clients must show; read again when it changes, and at once on SIGHUP; activityd token makes its lines")
	f.StringVar(&c.tlsCert, "tls-cert", "", "`file` of the certificate for TLS, its chain and its key, in PEM; read again when it changes")
}

func (c *config) checkAPI(want wanted) {
	want("listen", c.listen != "", "is empty: want an address, as in 127.0.0.1:8080")
}

// newAPI returns the API, whose reader answers the reads.
func (s *service) newAPI(reader api.Reader) *api.Server {
	requests := s.queueOn(s.requests)
	o := api.Config{
		Reader: reader, Refuses: s.limiter.Refuses, Overloaded: s.load.Overloaded, Health: s.health.Health, Behind: s.load.Behind, Logger: s.log,
		Enqueuer: requests, Leaser: requests, OwnQueues: s.config.ownQueues(), Notifier: s.notifier,
		TLS: s.credentials.tls, AllowOrigins: s.config.viewers.allowOrigins,
		Push: push.NewMySQL(s.requests), Platforms: s.config.push.platforms(), CheckAddress: s.config.push.checkAddress,
	}
	if s.credentials.viewers != nil { // a nil pointer in an interface would not be nil
		o.Viewers = s.credentials.viewers
	}
	if s.credentials.tokens != nil {
		o.Auth = s.credentials.tokens
	}
	return api.New(o)
}

// errOpen is the refusal to serve all that can reach an address. It is part of a
// message that begins with the flag and the address.
var errOpen = errors.New("others than this machine can reach it, and there are no tokens to know them by: " +
	"name them with --token-file (make one with: activityd token NAME --scopes read,write --append FILE), " +
	"or listen on 127.0.0.1 behind a proxy that authenticates clients and sends Host: localhost; " +
	"with --viewer-keys alone, behind one that passes on /v1/me/ and /widget.js only, with the browser's Host")

// credentials are the tokens and the certificate of the API, and the keys for push services.
type credentials struct {
	tokens    *auth.Tokens  // nil: none are asked for
	viewers   *auth.Viewers // nil: viewers may not ask themselves
	tls       *tls.Config   // nil: no TLS
	senders   senders
	reloaders []*auth.Reloader
	hangups   chan os.Signal // have the files reloaded at once
}

// loadCredentials loads the files that the role needs. A process without an API does its tasks also without the tokens for
// its console: nobody signs in then.
func loadCredentials(c *config, log *slog.Logger) (*credentials, error) {
	a := &credentials{hangups: make(chan os.Signal, 1)}
	var errs []error
	load := func(flag, file string, load func(file string) (*auth.Reloader, error)) {
		if file == "" {
			return
		}
		if r, err := load(file); err != nil {
			errs = append(errs, fmt.Errorf("--%s (%s): %w", flag, settings.Variable(flag), err))
		} else {
			a.reloaders = append(a.reloaders, r)
		}
	}
	push.BeginSeries(c.push.platforms()...)
	if c.role != roleAPI {
		senders, err := c.push.load(context.Background(), log)
		a.senders, a.reloaders, errs = senders, senders.reloaders, append(errs, err)
	}
	if c.role != roleWorkers {
		load("token-file", c.tokenFile, func(file string) (r *auth.Reloader, err error) {
			a.tokens, r, err = auth.LoadTokens(file, log)
			return r, err
		})
		load("viewer-keys", c.viewers.keys, func(file string) (r *auth.Reloader, err error) {
			a.viewers, r, err = auth.LoadViewers(file, auth.ViewerOptions{Audience: c.viewers.audience, Limit: viewerLimit}, log)
			return r, err
		})
		load("tls-cert", c.tlsCert, func(file string) (r *auth.Reloader, err error) {
			a.tls, r, err = auth.LoadCertificate(file, log)
			return r, err
		})
	} else if c.tokenFile != "" && c.metricsListen != "" {
		tokens, r, err := auth.LoadTokens(c.tokenFile, log)
		if a.tokens = tokens; err != nil {
			log.Warn("no token is accepted", "error", err)
		} else {
			a.reloaders = append(a.reloaders, r)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, a.senders.closers.close())
	}
	if len(a.reloaders) > 0 || os.Getenv(notifySocket) != "" {
		// Before it listens: a process that logged "listening" may be sent the signal. A service
		// manager sends it to reload, whether there are files or not.
		signal.Notify(a.hangups, syscall.SIGHUP)
	}
	return a, nil
}

// checkAddress refuses an address that other machines can reach without a token.
func (a *credentials) checkAddress(ctx context.Context, address net.Addr, log *slog.Logger) error {
	local := httpserver.IsLoopback(address)
	switch {
	case a.tokens == nil && !local:
		return fmt.Errorf("%s: %w", address, errOpen)
	case a.tokens == nil:
		log.InfoContext(ctx, "no tokens: any client on this machine may ask")
	case a.tls == nil && !local:
		log.WarnContext(ctx, "no TLS: tokens cross the network in the clear", "address", address.String())
	}
	return nil
}

// reloadInterval is how often the files are checked. A change is in use after two
// checks at most.
const reloadInterval = time.Second

// reload reloads the files when they change, until ctx ends, and at once on SIGHUP.
// Without files, SIGHUP keeps its usual meaning, unless there is a service manager.
func (a *credentials) reload(ctx context.Context) error {
	defer signal.Stop(a.hangups)
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		now := false
		select {
		case <-tick.C:
		case <-a.hangups:
			now = true
		case <-ctx.Done():
			return nil
		}
		for _, r := range a.reloaders {
			r.Reload(ctx, now)
		}
	}
}
