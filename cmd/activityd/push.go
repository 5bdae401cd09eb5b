package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/platforms"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
)

// pushConfig has the settings about push services. Each platform has keys, or is off.
type pushConfig struct {
	kinds  []push.Kind        // nil: platforms.All
	values map[string]*string // of their settings, by name
	roots  *x509.CertPool     // by which tests know their push services; nil: the system's
}

func (p *pushConfig) platforms() []push.Kind {
	if p.kinds == nil {
		p.kinds = platforms.All()
	}
	return p.kinds
}

// value returns the value of a setting of a platform; "" if it is not given.
func (p *pushConfig) value(name string) string {
	if value := p.values[name]; value != nil {
		return *value
	}
	return ""
}

func (p *pushConfig) flags(f *pflag.FlagSet) {
	p.values = make(map[string]*string)
	for _, kind := range p.platforms() {
		for _, s := range kind.Settings {
			p.values[s.Name] = f.String(s.Name, "", s.Usage)
			settings.NoFlag(f, s.Name)
			if s.ForTests {
				settings.ForTests(f, s.Name)
			}
		}
	}
}

// addPush has the workers of a service notify members.
func (s *service) addPush(handlers *tasks.HandlerOptions) {
	c, senders := &s.config.push, s.credentials.senders
	s.pushed = push.NewHandler(push.HandlerOptions{
		Store: s.push, Followers: s.store, Senders: senders.byPlatform, MustShow: c.mustShow(), Log: s.log,
	})
	handlers.Push = s.pushed
	if senders.changed != nil { // before any file is read again
		*senders.changed = s.pushed.KeysChanged
	}
	if s.config.role != roleAPI {
		s.background = append(s.background, func(ctx context.Context) error {
			s.push.Run(ctx, s.log)
			return nil
		})
	}
}

// check calls want for each value that cannot be.
func (p *pushConfig) check(want wanted) {
	for _, kind := range p.platforms() {
		given := "" // a setting that needs the required settings
		for _, s := range kind.Settings {
			if given == "" && !s.Alone && p.value(s.Name) != "" {
				given = s.Name
			}
		}
		for _, s := range kind.Settings {
			value := p.value(s.Name)
			want(s.Name, given == "" || !s.Required || value != "", "is missing: %s needs it", settings.Variable(given))
			if value != "" && s.Check != nil {
				err := s.Check(value)
				want(s.Name, err == nil, "%v", err)
			}
		}
	}
}

// checkAddress checks the address of a device.
func (p *pushConfig) checkAddress(_ context.Context, platform push.Platform, a push.Address) error {
	for _, kind := range p.platforms() {
		if kind.Platform == platform {
			return kind.Check(p.value, a)
		}
	}
	return errors.New("there is no such platform")
}

// mustShow returns the platforms whose devices have to show all that they are sent.
func (p *pushConfig) mustShow() map[push.Platform]bool {
	must := make(map[push.Platform]bool)
	for _, kind := range p.platforms() {
		must[kind.Platform] = kind.MustShow
	}
	return must
}

// senders are the senders of the platforms that have keys.
type senders struct {
	byPlatform map[push.Platform]push.Sender
	reloaders  []*auth.Reloader // of their keys
	closers    closers
	changed    *func(push.Platform) // called with the platform whose keys were replaced; it may point to nil
}

// load makes the senders of the platforms that have keys, and logs the platforms without keys. They connect to nothing
// yet.
func (p *pushConfig) load(ctx context.Context, log *slog.Logger) (s senders, err error) {
	s = senders{byPlatform: make(map[push.Platform]push.Sender), changed: new(func(push.Platform))}
	var errs []error
	var off []push.Platform
	for _, kind := range p.platforms() {
		if p.value(kind.Settings[0].Name) == "" {
			off = append(off, kind.Platform)
			continue
		}
		errs = append(errs, s.add(kind, push.ClientOptions{Setting: p.value, RootCAs: p.roots, Log: log})) // files are read at the start
	}
	if len(off) > 0 {
		log.InfoContext(ctx, "push is off for want of keys", "platforms", off)
	}
	return s, errors.Join(errs...)
}

// add makes the sender of a platform, and replaces its keys whenever their file changes.
func (s *senders) add(kind push.Kind, o push.ClientOptions) error {
	var client push.Client
	changed := s.changed
	variable := settings.Variable(kind.Settings[0].Name)
	r, err := auth.LoadFile(variable, o.Setting(kind.Settings[0].Name), func(text []byte) (err error) {
		if client.Sender != nil {
			err = client.Reload(text)
		} else {
			o.Keys = text
			client, err = kind.New(o)
		}
		if err == nil && *changed != nil {
			(*changed)(kind.Platform)
		}
		return err
	}, o.Log)
	if err != nil {
		return fmt.Errorf("%s: %w", variable, err)
	}
	s.byPlatform[kind.Platform] = client
	s.reloaders = append(s.reloaders, r)
	s.closers.push(func() error { client.Close(); return nil })
	return nil
}

func newPush() *cobra.Command {
	return newGroup("push", "Make keys for push, and look at what became of an event",
		"Make keys for push, and look at what became of an event: which it was for, which not and why, and\n"+
			"what the push services said.",
		"  activityd push keys webpush.pem\n  activityd push show task-4711", newPushKeys(), newPushShow())
}

func newPushKeys() *cobra.Command {
	return &cobra.Command{
		Use:   "keys FILE",
		Short: "Make the VAPID keys of Web Push: a file for ACTIVITYD_WEBPUSH_KEY",
		Long: "Make the pair of keys by which browsers' push services know this site (VAPID). The private key is\n" +
			"written to FILE, for you alone to read; a file that is there is never overwritten. The public key\n" +
			"is printed: it is what the site's pages give the browser as applicationServerKey.\n\n" +
			"Subscriptions are made for one pair: with another one, browsers that subscribed before are not\n" +
			"reached any more. All processes need the same file. Keep a copy.",
		Example: "  activityd push keys /etc/activityd/webpush.pem",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return makePushKeys(args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
}

// makePushKeys writes the private key to a new file, and prints the public key.
func makePushKeys(path string, out, notes io.Writer) (err error) {
	keys, err := webpush.GenerateKey()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("FILE: %s is there already, and stays as it is: browsers subscribed for its key", path)
	}
	if err != nil {
		return fmt.Errorf("FILE: %w", err)
	}
	_, err = f.Write(keys.PEM)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("FILE: %w", err), os.Remove(path)) // a part of a key is of no use
	}
	sayf(notes, "The private key is in %s. This is the public one, for applicationServerKey:", path)
	_, err = fmt.Fprintln(out, keys.Public)
	return err
}
