package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/httpserver"
)

func newDemo() *cobra.Command {
	c := &config{}
	o := demoOptions{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole thing on a made-up site with live traffic",
		Long: "Show the whole thing: a made-up photo site with live traffic, the index, its tasks, and the\n" +
			"widget as a page that updates as one watches.\n\n" +
			"Where mariadbd (or mysqld) and redis-server are installed, private ones are started in a\n" +
			"temporary folder; elsewhere imitations inside this process stand in for them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			return runDemo(cmd.Context(), c, o, world.Demo(), cmd.OutOrStdout(), newLogger(c, cmd.ErrOrStderr()))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.embedded, "embedded", false, "use the imitations even where real servers are installed")
	f.Float64Var(&o.rate, "rate", 2, "changes on the made-up site in a second")
	c.listenFlag(f, "`address` for the page; it must be one of this machine alone")
	c.serverFlags(f)
	c.indexFlags(f)
	c.logFlags(f)
	f.Lookup("log-level").DefValue, c.logLevel = "warn", "warn"
	_ = f.MarkHidden("role") // the demo is one process
	return cmd
}

type demoOptions struct {
	embedded bool
	rate     float64
	// ready, if set, is told the page's address when it can be opened.
	ready func(url string)
}

// runDemo makes the site, and serves it until ctx ends.
func runDemo(ctx context.Context, c *config, o demoOptions, spec world.Spec, out io.Writer, log *slog.Logger) (err error) {
	web := &http.Server{ReadHeaderTimeout: api.DefaultReadTimeout, IdleTimeout: api.DefaultIdleTimeout}
	page := httpserver.New(web, httpserver.Options{Log: log})
	if err := page.Listen(ctx, c.listen); err != nil {
		return fmt.Errorf("--listen (%s): %w; choose another with --listen 127.0.0.1:0", environmentName("listen"), err)
	}
	defer func() { err = errors.Join(err, page.Close()) }()
	if !httpserver.IsLoopback(page.Addr()) { // a name that stands for something else
		return fmt.Errorf("--listen (%s): %s: %w", environmentName("listen"), page.Addr(), errOpenDemo)
	}
	b, err := openDemoBackend(ctx, c, o, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.closers.close()) }()

	w := spec.Generate(time.Now())
	sayf(out, "Making a site of %d members, %d contacts and %d photos …", len(w.Members), len(w.Contacts), len(w.Photos))
	if err := w.Load(ctx, b.site); err != nil {
		return fmt.Errorf("make the site: %w", err)
	}
	b.start()
	s := newService(c, b.backend, &gate{}, log)
	d := demo.New(demo.Config{
		World: w, Site: b.site, Reader: s.reader, Plain: b.plain, PlainName: b.plainName,
		Engine: b.engine, Wipe: b.wipe, Rate: o.rate, Seed: uint64(time.Now().UnixNano()), Log: log,
	})
	web.Handler = page.LocalOnly(demoRoutes(s.api, d))
	url := "http://" + page.Addr().String() + "/"
	sayf(out, "The demo is at %s  (stop it with Ctrl-C)", url)
	if o.ready != nil {
		o.ready(url)
	}
	return s.run(ctx, d.Run, func(ctx context.Context) error {
		return serveUntil(ctx, c.grace, page.Serve, page.Shutdown)
	})
}

// demoRoutes puts the API beside the demo's page, for requests whose Host the page's
// server knows.
func demoRoutes(a *api.Server, d *demo.Demo) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", asLocal(a.Handler()))
	mux.Handle("/{$}", d.Handler())
	mux.Handle("/demo/", d.Handler())
	return mux
}

// asLocal spares next the judging of a Host that was judged: a server that does not
// listen itself knows less names than the one that does.
func asLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Host = "localhost"
		next.ServeHTTP(w, r)
	})
}

// sayf prints what goes on. A write that fails is no reason to stop.
func sayf(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
