package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/access"
	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/httpserver"
)

func (c *config) accessFlags(f *pflag.FlagSet) {
	f.StringVar(&c.tokenFile, "token-file", "", "`file` of the tokens that clients must show; read again when it changes, and at once on SIGHUP; activityd token makes its lines")
	f.StringVar(&c.tokens, "tokens", "", "the `lines` of such a file themselves, with semicolons between them; they change with a restart only")
	f.StringVar(&c.tlsCert, "tls-cert", "", "`file` of the certificate to speak TLS with, and its chain, in PEM; read again when it changes")
	f.StringVar(&c.tlsKey, "tls-key", "", "`file` of the certificate's key, in PEM")
}

// hasTokens tells whether clients must show a token.
func (c *config) hasTokens() bool { return c.tokenFile != "" || c.tokens != "" }

// errOpen is the refusal to serve whoever can reach a machine. It is part of a
// message that begins with the flag and the address.
var errOpen = errors.New("others than this machine can reach it, and there are no tokens to know them by: " +
	"name them with --token-file (make one with: activityd token NAME --scopes read,write --append FILE), " +
	"or listen on 127.0.0.1 behind a proxy that knows whom to let through, and sends Host: localhost")

// errOpenDemo is the same of the demo, which has no tokens.
var errOpenDemo = errors.New("others than this machine can reach it, and the demo has no tokens to know them by: " +
	"listen on 127.0.0.1; ssh -L brings it to another machine")

// checkOpen refuses an address that strangers can reach, as far as the address
// itself tells. What a name stands for is looked at once the listener is open.
func (c *config) checkOpen(f *pflag.FlagSet) error {
	switch {
	case c.hasTokens() || c.role == roleWorkers || !plainlyOpen(c.listen):
		return nil
	case f.Lookup("token-file") == nil:
		return errOpenDemo
	}
	return errOpen
}

func plainlyOpen(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false // it cannot be listened on, and is refused then
	}
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && !ip.IsLoopback()
}

// gate is what callers must pass. The zero gate is open.
type gate struct {
	tokens    *access.Tokens      // nil: everybody may pass
	cert      *access.Certificate // nil: no TLS
	followers []*access.Follower
	hangups   chan os.Signal // have the files read at once
}

// openGate reads tokens and certificate, as far as there are any.
func openGate(c *config, o access.Options) (*gate, error) {
	g := &gate{hangups: make(chan os.Signal, 1)}
	if c.role == roleWorkers {
		return g, nil // nobody calls
	}
	err := errors.Join(g.openTokens(c, o), g.openTLS(c, o))
	if err == nil && len(g.followers) > 0 {
		// Already now: whoever is told that this listens may send the signal.
		signal.Notify(g.hangups, syscall.SIGHUP)
	}
	return g, err
}

func (g *gate) openTokens(c *config, o access.Options) error {
	if c.tokenFile != "" {
		tokens, follower, err := access.FollowTokens(c.tokenFile, o)
		if err != nil {
			return fmt.Errorf("--token-file (%s): %w", environmentName("token-file"), err)
		}
		g.tokens, g.followers = tokens, append(g.followers, follower)
	}
	if c.tokens == "" {
		return nil
	}
	list, err := access.Parse(strings.ReplaceAll(c.tokens, ";", "\n"))
	if err == nil && len(list) == 0 {
		err = errors.New("there is none in it: want lines as activityd token prints them")
	}
	if err != nil {
		return fmt.Errorf("--tokens (%s): %w", environmentName("tokens"), err)
	}
	g.tokens = access.NewTokens(list)
	return nil
}

func (g *gate) openTLS(c *config, o access.Options) error {
	if c.tlsCert == "" {
		return nil
	}
	cert, follower, err := access.FollowCertificate(c.tlsCert, c.tlsKey, o)
	if err != nil {
		return fmt.Errorf("--tls-cert (%s), --tls-key: %w", environmentName("tls-cert"), err)
	}
	g.cert, g.followers = cert, append(g.followers, follower)
	return nil
}

// guard makes the API ask at the gate.
func (g *gate) guard(c *api.Config) {
	if g.tokens != nil { // a nil pointer in an interface would not be nil
		c.Access = g.tokens
	}
	if g.cert != nil {
		c.TLS = g.cert.TLS()
	}
}

// admits tells for the address that is listened on who may ask there, in the log
// or, where that would be anybody, as an error.
func (g *gate) admits(ctx context.Context, address net.Addr, log *slog.Logger) error {
	local := httpserver.IsLoopback(address)
	switch {
	case g.tokens == nil && !local:
		return fmt.Errorf("%s: %w", address, errOpen)
	case g.tokens == nil:
		log.InfoContext(ctx, "there are no tokens: whoever is on this machine may ask, and whomever a proxy on it lets through, as long as they ask for localhost, a loopback address or the name in --listen")
	case g.cert == nil && !local:
		log.WarnContext(ctx, "tokens cross the network in the clear, unless a proxy in front of this speaks TLS: see --tls-cert", "address", address.String())
	}
	return nil
}

// run follows the files until ctx ends, and reads them at once on SIGHUP. Without
// files, SIGHUP keeps its usual meaning.
func (g *gate) run(ctx context.Context) error {
	defer signal.Stop(g.hangups)
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range g.followers {
		group.Go(func() error { return f.Run(ctx) })
	}
	for {
		select {
		case <-g.hangups:
			for _, f := range g.followers {
				f.Nudge()
			}
		case <-ctx.Done():
			return group.Wait()
		}
	}
}
