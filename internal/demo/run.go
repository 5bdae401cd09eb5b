package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/testing/localserver"
)

// Options say how [Run] shows the demo.
type Options struct {
	Listen   string     // the address of the page: an address of this machine alone
	Embedded bool       // stand in for the servers even where they are installed
	Rate     float64    // changes on the made-up site in a second
	World    world.Spec // the made-up site
}

var errOpen = errors.New("the demo has no tokens: choose an address of this machine alone, such as 127.0.0.1:8080")

// Run makes the site, and serves it until ctx ends.
func Run(ctx context.Context, o Options, out io.Writer, log *slog.Logger) (err error) {
	web := &http.Server{ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	server := httpserver.New(web, httpserver.Options{Log: log})
	if err := server.Listen(ctx, o.Listen); err != nil {
		return fmt.Errorf("--listen: %w; choose another with --listen 127.0.0.1:0", err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if !httpserver.IsLoopback(server.Addr()) { // a name that resolves to another address
		return fmt.Errorf("--listen: %s: %w", server.Addr(), errOpen)
	}
	_, hasMySQL := localserver.FindMySQL()
	_, hasRedis := localserver.FindRedis()
	open := openEmbedded
	switch {
	case o.Embedded:
	case hasMySQL && hasRedis:
		open = openServers
		_, _ = fmt.Fprintln(out, "Starting a private MySQL or MariaDB and a private Redis in a temporary folder …")
	default:
		_, _ = fmt.Fprintln(out, "mariadbd and redis-server are not both installed: tables in memory and miniredis stand in for them.")
	}
	b := &backend{log: log, knows: server.Knows}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := open(ctx, b); err != nil {
		return err
	}
	w := o.World.Generate(time.Now())
	_, _ = fmt.Fprintf(out, "Making a site of %d members, %d contacts and %d photos …\n", len(w.Members), len(w.Contacts), len(w.Photos))
	if err := w.Load(ctx, b.site); err != nil {
		return fmt.Errorf("make the site: %w", err)
	}
	d := New(Config{
		World: w, Site: b.site, Reader: traced{b.reader}, Plain: b.plain, PlainName: b.plainName, Engine: b.engine,
		Wipe: func(ctx context.Context) error { return b.redis.FlushDB(ctx).Err() },
		Rate: o.Rate, Log: log, MySQL: b.mysql, Phones: b.phones, Console: b.console,
	})
	web.Handler = server.LocalOnly(d.Handler())
	_, _ = fmt.Fprintf(out, "The demo is at http://%s/  (stop it with Ctrl-C)\n", server.Addr())

	group, ctx := errgroup.WithContext(ctx)
	group.Go(server.Serve)
	group.Go(func() error {
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		return server.Shutdown(bounded)
	})
	group.Go(func() error { return d.Traffic(ctx) })
	for _, work := range b.work {
		group.Go(func() error { return work(ctx) })
	}
	return group.Wait()
}
