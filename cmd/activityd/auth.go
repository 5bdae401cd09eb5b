package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/settings"
)

// errOpen is the refusal to serve all that can reach an address. It is part of a
// message that begins with the flag and the address.
var errOpen = errors.New("others than this machine can reach it, and there are no tokens to know them by: " +
	"name them with --token-file (make one with: activityd token NAME --scopes read,write --append FILE), " +
	"or listen on 127.0.0.1 behind a proxy that authenticates clients and sends Host: localhost; " +
	"with --viewer-keys alone, behind one that passes on /v1/me/ and /widget.js only, with the browser's Host")

// checkOpen refuses an address that other machines can reach without a token, as far as
// the address itself says so. A name is resolved once the listener is open.
func (c *config) checkOpen() error {
	host, _, err := net.SplitHostPort(c.listen)
	ip, noIP := netip.ParseAddr(host)
	open := err == nil && (host == "" || noIP == nil && !ip.IsLoopback()) // the listener refuses what cannot be split
	if !open || c.tokenFile != "" || c.tokens != "" || c.role == roleWorkers {
		return nil
	}
	return errOpen
}

// credentials are the tokens and the certificate of the API, and the keys for push services.
type credentials struct {
	tokens    *auth.Tokens  // nil: none are asked for
	viewers   *auth.Viewers // nil: viewers may not ask themselves
	tls       *tls.Config   // nil: no TLS
	senders   senders
	reloaders []*auth.Reloader
	hangups   chan os.Signal // have the files reloaded at once
}

func loadCredentials(c *config, log *slog.Logger) (*credentials, error) {
	a := &credentials{hangups: make(chan os.Signal, 1)}
	errs := []error{a.loadSenders(c, log)}
	if c.role != roleWorkers { // there is an API
		errs = append(errs, a.loadTokens(c, log), a.loadAPI(c, log))
	} else if c.metricsListen != "" {
		a.loadOperators(c, log)
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

// loadSenders loads the keys for push services, if there are workers.
func (a *credentials) loadSenders(c *config, log *slog.Logger) (err error) {
	push.BeginSeries(c.push.platforms()...)
	if c.role == roleAPI {
		return nil
	}
	a.senders, err = c.push.load(context.Background(), log)
	a.reloaders = append(a.reloaders, a.senders.reloaders...)
	return err
}

// loadTokens loads the tokens, which the API and the console ask for.
func (a *credentials) loadTokens(c *config, log *slog.Logger) error {
	var errs []error
	if c.tokenFile != "" {
		tokens, reloader, err := auth.LoadTokens(c.tokenFile, log)
		if err != nil {
			errs = append(errs, fmt.Errorf("--token-file (%s): %w", settings.Variable("token-file"), err))
		}
		a.tokens, a.reloaders = tokens, append(a.reloaders, reloader)
	}
	if c.tokens != "" {
		list, err := auth.Parse(strings.ReplaceAll(c.tokens, ";", "\n"))
		if err == nil && len(list) == 0 {
			err = errors.New("there is none in it: want lines as activityd token prints them")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", settings.Variable("tokens"), err))
		}
		a.tokens = auth.NewTokens(list)
	}
	return errors.Join(errs...)
}

// loadOperators loads the tokens for the console of a process that has no API. Without them nobody signs in, and tasks are
// done all the same.
func (a *credentials) loadOperators(c *config, log *slog.Logger) {
	reloaders := a.reloaders
	if err := a.loadTokens(c, log); err != nil {
		log.Warn("no token is accepted", "error", err)
		a.tokens, a.reloaders = auth.NewTokens(nil), reloaders
	}
}

// loadAPI loads the keys of viewers and the certificate.
func (a *credentials) loadAPI(c *config, log *slog.Logger) error {
	var errs []error
	if c.viewers.keys != "" {
		viewers, reloader, err := auth.LoadViewers(c.viewers.keys, c.viewers.options(), log)
		if err != nil {
			errs = append(errs, fmt.Errorf("--viewer-keys (%s): %w", settings.Variable("viewer-keys"), err))
		}
		a.viewers, a.reloaders = viewers, append(a.reloaders, reloader)
	}
	if c.tlsCert != "" {
		config, reloader, err := auth.LoadCertificate(c.tlsCert, c.tlsKey, log)
		if err != nil {
			errs = append(errs, fmt.Errorf("--tls-cert (%s), --tls-key: %w", settings.Variable("tls-cert"), err))
		}
		a.tls, a.reloaders = config, append(a.reloaders, reloader)
	}
	return errors.Join(errs...)
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
