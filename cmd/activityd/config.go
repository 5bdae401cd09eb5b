package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/settings"
)

// config holds the values of the settings: a part for each file that uses some. A setting has a flag if it changes
// every day, or belongs to a first try; see docs/decisions/0036-settings.md.
type config struct {
	serversConfig
	processConfig
	apiConfig
	viewers viewerConfig
	indexConfig
	auditConfig
	push pushConfig
	logConfig
}

// wanted takes the verdict on the value of a setting, and the form of a good value.
type wanted func(flag string, ok bool, format string, args ...any)

// parts returns the parts in the order of docs/settings.md. A part registers its flags, and checks more than the bounds
// of numbers and words.
func (c *config) parts() []part {
	return []part{
		{"Servers", c.serverFlags, c.checkServers},
		{"The process", c.processFlags, c.checkProcess},
		{"The API", c.apiFlags, c.checkAPI},
		{"Tokens of viewers", c.viewers.flags, c.viewers.check},
		{"The index", c.indexFlags, nil},
		{"The audit", c.auditFlags, nil},
		{"Push", c.push.flags, c.push.check},
		{"The log", c.logFlags, nil},
	}
}

type part struct {
	title string
	flags func(*pflag.FlagSet)
	check func(wanted)
}

// groups returns all settings, as docs/settings.md has them.
func (c *config) groups() (list []settings.Group) {
	for _, p := range c.parts() {
		list = append(list, settings.NewGroup(p.title, p.flags))
	}
	return list
}

// serveFlags registers all settings.
func (c *config) serveFlags(f *pflag.FlagSet) {
	for _, g := range c.groups() {
		f.AddFlagSet(g.Flags)
	}
}

// allSettings returns the settings of serve: every setting is a setting of serve.
func allSettings() *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(config).serveFlags(all)
	return all
}

// check returns an error for each value that cannot be, named by its setting. It skips settings that a command has not registered.
func (c *config) check(f *pflag.FlagSet) error {
	var errs []error
	want := func(flag string, ok bool, format string, args ...any) {
		if setting := f.Lookup(flag); setting != nil && !ok {
			errs = append(errs, fmt.Errorf("%s: %s", settings.Name(setting), fmt.Sprintf(format, args...)))
		}
	}
	f.VisitAll(func(setting *pflag.Flag) {
		if number, ok := setting.Value.(interface{ Check() error }); ok {
			err := number.Check()
			want(setting.Name, err == nil, "%v", err)
		}
	})
	for _, p := range c.parts() {
		if p.check != nil {
			p.check(want)
		}
	}
	return errors.Join(errs...)
}

// secretSettings are the settings whose values are secrets, or contain a secret. The name of a file is no secret.
var secretSettings = []string{"mysql-dsn", "redis-url"}

// withoutSecrets returns an environment without the variables of secretSettings.
func withoutSecrets(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.ContainsFunc(secretSettings, func(flag string) bool { return settings.Variable(flag) == name })
	})
}

// logConfig is the part about the log.
type logConfig struct{ logFormat string }

func (c *logConfig) logFlags(f *pflag.FlagSet) {
	f.Var(settings.NewChoice(&c.logFormat, "text", "json"), "log-format", "form of the log, which goes to stderr")
}

// newLogger returns the logger of the process, and silences the Redis client, whose methods return its errors.
func newLogger(c *config, w io.Writer) *slog.Logger {
	redis.SetLogger(silent{})
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
